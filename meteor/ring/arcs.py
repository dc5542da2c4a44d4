"""Parts of the ring as spans, and the accounting of who has spoken for which part.

A span is an inclusive pair (low, high) of identifiers that does not wrap; an arc that runs past the
top of the ring is two spans, split at 0. A `Spans` value is sorted and its spans don't touch twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

RING_SIZE = 1 << 63
TOP = RING_SIZE - 1

Span = tuple[int, int]
Spans = tuple[Span, ...]

WHOLE: Spans = ((0, TOP),)


class Members(Protocol):
    """A set of identifiers that can be walked: a squid Region, or the whole ring."""

    def next(self, identifier: int) -> int | None:
        """Return the smallest member at or after this identifier."""
        ...


class Everything:
    """Every identifier of the ring: what a survey asks for."""

    def next(self, identifier: int) -> int | None:
        """Return the identifier itself."""
        return identifier if identifier <= TOP else None


def arc(after: int, upto: int) -> Spans:
    """Return the spans of the arc (after, upto]; the whole ring when both are the same."""
    if after == upto:
        return WHOLE
    if after < upto:
        return ((after + 1, upto),)
    low: Spans = ((0, upto),)
    return low if after == TOP else (*low, (after + 1, TOP))


def size(spans: Spans) -> int:
    """Count the identifiers."""
    return sum(high - low + 1 for low, high in spans)


def contains(spans: Spans, identifier: int) -> bool:
    """Say whether one of the spans holds the identifier."""
    return any(low <= identifier <= high for low, high in spans)


def union(parts: Iterable[Span]) -> Spans:
    """Sort spans and join those that overlap or touch."""
    joined: list[Span] = []
    for low, high in sorted(parts):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def intersect(a: Spans, b: Spans) -> Spans:
    """Return what both have."""
    found: list[Span] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            found.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def subtract(a: Spans, b: Spans) -> Spans:
    """Return what a has and b has not."""
    left: list[Span] = []
    j = 0
    for low, high in a:
        while j < len(b) and b[j][1] < low:
            j += 1
        k, start = j, low
        while k < len(b) and b[k][0] <= high:
            if b[k][0] > start:
                left.append((start, b[k][0] - 1))
            start = b[k][1] + 1
            k += 1
        if start <= high:
            left.append((start, high))
    return tuple(left)


def meeting(members: Members, spans: Spans) -> Spans:
    """Keep the spans that hold a member, each cut to begin at its first one."""
    kept: list[Span] = []
    for low, high in spans:
        first = members.next(low)
        if first is not None and first <= high:
            kept.append((first, high))
    return tuple(kept)


def missing(members: Members, wanted: Spans, covered: Spans) -> Spans:
    """Return the parts of `wanted` that hold members and that nobody has spoken for."""
    return meeting(members, subtract(wanted, covered))
