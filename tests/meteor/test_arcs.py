"""Spans behave as the sets of identifiers that they stand for."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meteor.ring.arcs import (
    RING_SIZE,
    TOP,
    WHOLE,
    Everything,
    Span,
    Spans,
    arc,
    contains,
    intersect,
    meeting,
    missing,
    size,
    subtract,
    union,
)

SMALL = 24  # identifiers of the tiny ring that sets stand in for

pairs = st.tuples(st.integers(0, SMALL - 1), st.integers(0, SMALL - 1)).map(
    lambda ends: (min(ends), max(ends))
)
loose = st.lists(pairs, max_size=5)
spans = loose.map(union)
identifiers = st.integers(0, TOP)


class Some:
    """A region of a few identifiers."""

    def __init__(self, members: set[int]) -> None:
        self._members = sorted(members)

    def next(self, identifier: int) -> int | None:
        at = bisect_left(self._members, identifier)
        return self._members[at] if at < len(self._members) else None


def as_set(parts: Spans | list[Span]) -> set[int]:
    return {i for low, high in parts for i in range(low, high + 1)}


def is_tidy(parts: Spans) -> bool:
    """Sorted, none empty, none touching the next."""
    inside = all(low <= high for low, high in parts)
    return inside and all(a[1] + 1 < b[0] for a, b in pairwise(parts))


# -- as sets -------------------------------------------------------------------------------------


@given(loose)
def test_union(parts: list[Span]) -> None:
    joined = union(parts)
    assert as_set(joined) == as_set(parts)
    assert is_tidy(joined)


@given(spans, spans)
def test_intersect(a: Spans, b: Spans) -> None:
    both = intersect(a, b)
    assert as_set(both) == as_set(a) & as_set(b)
    assert is_tidy(both)


@given(spans, spans)
def test_subtract(a: Spans, b: Spans) -> None:
    left = subtract(a, b)
    assert as_set(left) == as_set(a) - as_set(b)
    assert is_tidy(left)


@given(spans)
def test_size_and_contains(a: Spans) -> None:
    assert size(a) == len(as_set(a))
    assert {i for i in range(SMALL) if contains(a, i)} == as_set(a)


@given(spans, spans, st.sets(st.integers(0, SMALL - 1)))
def test_what_is_missing_is_wanted_by_the_region_and_spoken_for_by_nobody(
    wanted: Spans, covered: Spans, members: set[int]
) -> None:
    left = missing(Some(members), wanted, covered)
    assert as_set(left) & members == (as_set(wanted) - as_set(covered)) & members
    assert as_set(left) <= as_set(wanted) - as_set(covered)
    assert all(low in members for low, _ in left), "each begins where the region does"


def test_nothing_is_missing_once_everybody_has_spoken() -> None:
    assert missing(Everything(), WHOLE, ((0, 9), (10, TOP))) == ()
    assert missing(Everything(), WHOLE, ((0, 9), (11, TOP))) == ((10, 10),)


def test_meeting_keeps_what_the_region_touches() -> None:
    assert meeting(Some({5, 30}), ((0, 9), (10, 20), (30, 40))) == ((5, 9), (30, 40))


# -- arcs of the real ring -----------------------------------------------------------------------


@given(identifiers, identifiers, identifiers)
def test_an_arc_is_what_one_walks_over_from_its_beginning_to_its_end(
    after: int, upto: int, identifier: int
) -> None:
    here = arc(after, upto)
    walked = (identifier - after - 1) % RING_SIZE < ((upto - after) % RING_SIZE or RING_SIZE)
    assert contains(here, identifier) == walked
    assert size(here) == ((upto - after) % RING_SIZE or RING_SIZE)
    assert is_tidy(here)


@given(st.lists(identifiers, min_size=1, max_size=8, unique=True).map(sorted))
def test_the_arcs_of_all_peers_are_the_ring(ids: list[int]) -> None:
    arcs = [arc(before, at) for before, at in zip([ids[-1], *ids], ids, strict=False)]
    assert union(span for spans in arcs for span in spans) == WHOLE
    assert sum(map(size, arcs)) == RING_SIZE


@pytest.mark.parametrize(
    ("after", "upto", "expected"),
    [
        (7, 7, WHOLE),
        (0, TOP, ((1, TOP),)),
        (TOP, 0, ((0, 0),)),
        (TOP, 5, ((0, 5),)),
        (TOP - 1, 0, ((0, 0), (TOP, TOP))),
        (9, 3, ((0, 3), (10, TOP))),
    ],
)
def test_an_arc_over_the_top_is_two_spans(after: int, upto: int, expected: Spans) -> None:
    assert arc(after, upto) == expected


def test_everything_ends_at_the_top() -> None:
    assert Everything().next(TOP) == TOP
    assert Everything().next(RING_SIZE) is None
