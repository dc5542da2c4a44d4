"""Content routing: every owner of a region is reached, once, in O(log N) steps."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import log2
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meteor.ring.arcs import (
    RING_SIZE,
    TOP,
    WHOLE,
    Everything,
    Spans,
    contains,
    subtract,
    union,
)
from meteor.ring.chord import Chord
from meteor.ring.fingers import Known
from meteor.ring.questions import Peer
from meteor.ring.table import split
from meteor.simulation.cores import World
from meteor.simulation.resting import RestingRing, Walk
from squid import Box, Curve, Region

CURVE = Curve(2, 3)
SHIFT = 63 - 6

identifiers = st.integers(0, TOP) | st.sampled_from([0, 1, TOP - 1, TOP])


class Some:
    """A region of a few identifiers."""

    def __init__(self, members: Sequence[int]) -> None:
        self.members = sorted(members)

    def next(self, identifier: int) -> int | None:
        at = bisect_left(self.members, identifier)
        return self.members[at] if at < len(self.members) else None


def peer(identifier: int) -> Peer:
    return Peer(identifier, f"host:{identifier % 60_000}")


def clockwise(me: int, known: list[Known]) -> list[Known]:
    return sorted(known, key=lambda entry: (entry.peer.id - me) % RING_SIZE)


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, list[Known]]:
    """A peer and what it knows; predecessors may be true, unknown or outdated."""
    me, *others = draw(st.lists(identifiers, min_size=2, max_size=9, unique=True))
    before = st.none() | identifiers | st.sampled_from([me, *others])
    return me, clockwise(me, [Known(peer(i), draw(before)) for i in others])


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    """A box in a plane of 8 x 8 cells."""
    sides = [sorted((draw(st.integers(0, 7)), draw(st.integers(0, 7)))) for _ in range(2)]
    return tuple((low, high) for low, high in sides)


@st.composite
def wanted_spans(draw: st.DrawFn) -> Spans:
    ends = sorted(draw(st.lists(identifiers, min_size=2, max_size=8, unique=True)))
    return union(zip(ends[::2], ends[1::2], strict=False))


# -- one split -----------------------------------------------------------------------------------


@given(tables(), wanted_spans(), st.lists(identifiers, max_size=10))
def test_every_member_is_given_to_exactly_one_peer(
    table: tuple[int, list[Known]], wanted: Spans, members: list[int]
) -> None:
    me, known = table
    shares = split(Some(members), wanted, me, known)
    for member in members:
        given_to = [peer for peer, part in shares.items() if contains(part, member)]
        assert len(given_to) == contains(wanted, member)


@given(tables(), wanted_spans(), st.lists(identifiers, max_size=10))
def test_nobody_is_asked_for_nothing(
    table: tuple[int, list[Known]], wanted: Spans, members: list[int]
) -> None:
    me, known = table
    for part in split(Some(members), wanted, me, known).values():
        assert part
        assert subtract(part, wanted) == ()
        assert all(low in members for low, _ in part)


@given(tables(), wanted_spans())
def test_without_a_region_all_that_is_wanted_is_given(
    table: tuple[int, list[Known]], wanted: Spans
) -> None:
    me, known = table
    shares = split(Everything(), wanted, me, known)
    assert union(span for part in shares.values() for span in part) == wanted


def test_a_part_begins_where_its_peers_own_arc_does() -> None:
    known = [Known(peer(20), 10), Known(peer(40), 30), Known(peer(80), 60)]
    assert split(Everything(), WHOLE, 10, known) == {
        peer(20): ((11, 30),),
        peer(40): ((31, 60),),
        peer(80): ((0, 10), (61, TOP)),
    }


def test_the_only_other_peer_gets_everything() -> None:
    assert split(Everything(), ((0, 9), (21, TOP)), 20, [Known(peer(10), 20)]) == {
        peer(10): ((0, 9), (21, TOP))
    }


def test_who_knows_nobody_gives_nothing() -> None:
    assert split(Everything(), WHOLE, 10, []) == {}


def test_where_a_peers_arc_begins_is_unknown_the_peer_before_gets_the_arc() -> None:
    known = [Known(peer(20), 10), Known(peer(40), None)]
    assert split(Everything(), ((11, 50),), 10, known) == {
        peer(20): ((11, 40),),
        peer(40): ((41, 50),),
    }


def test_an_outdated_predecessor_takes_nothing_from_the_peer_before() -> None:
    # 40 said that its predecessor is 15; since then 20 has come in between.
    known = [Known(peer(20), 10), Known(peer(40), 15)]
    assert split(Everything(), ((11, 50),), 10, known) == {
        peer(20): ((11, 20),),
        peer(40): ((21, 50),),
    }


def test_a_predecessor_from_beyond_its_peer_is_not_believed() -> None:
    known = [Known(peer(20), 10), Known(peer(40), 45)]
    assert split(Everything(), ((11, 50),), 10, known) == {
        peer(20): ((11, 20),),
        peer(40): ((21, 50),),
    }


# -- whole rings ---------------------------------------------------------------------------------


def random_ring(count: int, random: Random, **settings: int) -> RestingRing:
    return RestingRing([random.randrange(RING_SIZE) for _ in range(count)], **settings)


class FourFingers(Chord):
    def __init__(self, me: Peer, successors_kept: int) -> None:
        super().__init__(me, successors_kept, fingers_per_octave=4)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 20, 64])
@pytest.mark.parametrize(("fingers", "core"), [(1, Chord), (4, FourFingers)])
def test_a_resting_ring_knows_what_chord_converges_to(
    fingers: int, core: type[Chord], count: int
) -> None:
    world = World(count, 3, core)
    world.make_ideal(world.places(count))
    ring = RestingRing(world.cores, successors=3, fingers_per_octave=fingers)
    for one in world.cores.values():
        for _ in range(fingers * 63):
            world.run(one.refresh_finger())
    for one in world.cores.values():
        entries = [(entry.peer.id, entry.predecessor) for entry in one.known()]
        assert entries == [(k.peer.id, k.predecessor) for k in ring.known(one.me.id)]
        identifier = world.random.randrange(RING_SIZE)
        _, asked = world.run_counted(one.lookup(identifier))
        assert asked == ring.hops(one.me.id, identifier)
        if one.successors:
            successor = one.successors[0].id
            looked_up = {one.fingers.next_target(successor) for _ in range(fingers * 63)}
            others = {i for i in looked_up if i is not None and ring.owner(i) != one.me.id}
            assert others == {i for i in ring.targets(one.me.id) if ring.owner(i) != one.me.id}


def depth_max(count: int) -> float:
    return log2(count) + 2


@pytest.mark.parametrize("fingers", [1, 4])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 64, 200])
def test_a_survey_reaches_everybody_once_with_one_message_each(count: int, fingers: int) -> None:
    random = Random(count)
    ring = random_ring(count, random, fingers_per_octave=fingers)
    for origin in random.sample(ring.ids, min(count, 4)):
        walk = Walk(ring, Everything(), origin)
        assert walk.spoken == Counter(ring.ids)
        assert walk.messages == count - 1
        assert walk.covered == WHOLE
        assert walk.depth <= depth_max(count)


@pytest.mark.parametrize("fingers", [1, 4])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("count", "points"), [(5, 3), (64, 1), (64, 40), (200, 12)])
def test_every_owner_of_a_region_is_reached_once(
    seed: int, count: int, points: int, fingers: int
) -> None:
    random = Random(f"{seed} {count} {points}")
    ring = random_ring(count, random, fingers_per_octave=fingers)
    region = Some([random.randrange(RING_SIZE) for _ in range(points)])
    owners = {ring.owner(member) for member in region.members}
    walk = Walk(ring, region, random.choice(ring.ids))
    assert walk.spoken == Counter(owners)
    assert owners == ring.owners(region)
    assert walk.asked_twice == 0
    assert walk.depth <= depth_max(count)
    assert walk.messages <= len(owners) * depth_max(count)


@given(st.integers(1, 30), st.integers(0, 2**32), st.lists(identifiers, max_size=12))
def test_every_owner_is_reached_in_any_ring(count: int, seed: int, members: list[int]) -> None:
    random = Random(seed)
    settings = {"successors": random.randint(1, 4), "fingers_per_octave": random.randint(1, 4)}
    ring = random_ring(count, random, **settings)
    walk = Walk(ring, Some(members), random.choice(ring.ids))
    assert walk.spoken == Counter({ring.owner(member) for member in members})
    assert walk.asked_twice == 0


@given(st.integers(2, 40), st.integers(0, 2**32), st.lists(boxes(), min_size=1, max_size=3))
def test_a_region_of_boxes_is_answered_as_by_looking_at_every_cell(
    count: int, seed: int, wanted: list[Box]
) -> None:
    random = Random(seed)
    ring = random_ring(count, random, fingers_per_octave=random.choice([1, 4]))
    region = Region(CURVE, wanted, SHIFT)
    cells = [CURVE.encode(point) << SHIFT for point in product(range(1 << CURVE.bits), repeat=2)]
    inside = [identifier for identifier in cells if identifier in region]
    walk = Walk(ring, region, random.choice(ring.ids))
    assert set(walk.spoken) == {ring.owner(identifier) for identifier in inside}
    assert all(contains(walk.covered, identifier) for identifier in inside)
    assert walk.asked_twice == 0


class Outdated(RestingRing):
    """A ring in which some joined after the others had made their tables.

    Those know their neighbours as they are now, but not where far peers' arcs begin now.
    """

    def __init__(self, count: int, joined: int, random: Random) -> None:
        self.old = random_ring(count, random)
        joiners = random_ring(joined, random)
        super().__init__((*self.old.ids, *joiners.ids))

    def known(self, me: int) -> Sequence[Known]:
        fresh = super().known(me)
        if me not in self.old.ids:
            return fresh
        found = {entry.peer.id: entry for entry in (*self.old.known(me), fresh[0])}
        before = self.before(me)
        found.setdefault(before, Known(peer(before), None))
        return clockwise(me, list(found.values()))


@pytest.mark.parametrize("joined", [1, 10, 60])
@pytest.mark.parametrize("seed", range(8))
def test_everybody_is_reached_though_tables_are_outdated(seed: int, joined: int) -> None:
    random = Random(f"outdated {seed} {joined}")
    ring = Outdated(40, joined, random)
    for origin in random.sample(ring.ids, 3):
        walk = Walk(ring, Everything(), origin)
        assert set(walk.spoken) == set(ring.ids)
        assert walk.covered == WHOLE
        assert walk.messages <= 2 * len(ring.ids)


def test_what_was_sent_here_by_mistake_goes_to_the_peer_before() -> None:
    # 70 believes that 20's arc begins at 0, but 10 has come in between.
    known = [Known(peer(40), 20), Known(peer(70), 60), Known(peer(10), None)]
    assert split(Everything(), ((1, 10), (21, 60)), 20, known, sender=70) == {
        peer(10): ((1, 10),),
        peer(40): ((21, 60),),
    }
