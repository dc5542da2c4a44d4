"""The ring stays one ordered cycle whatever the interleaving, and comes to rest as it should be."""

from __future__ import annotations

from itertools import pairwise
from math import log2
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meteor.ring.arcs import RING_SIZE
from meteor.ring.chord import Chord, IdTaken
from meteor.ring.fingers import Fingers
from meteor.ring.invariants import ideal, violations
from meteor.ring.questions import Ask, AskNeighbours, Found, Neighbours, Peer, between
from meteor.simulation.cores import World, churn


def peer(identifier: int) -> Peer:
    return Peer(identifier, f"host:{identifier}")


def neighbours(me: int, predecessor: int | None, *successors: int) -> Neighbours:
    before = None if predecessor is None else peer(predecessor)
    return Neighbours(peer(me), before, tuple(map(peer, successors)))


# -- identifiers ---------------------------------------------------------------------------------


@given(st.integers(0, 15), st.integers(0, 15), st.integers(0, 15))
def test_between_is_a_walk_clockwise(a: int, x: int, b: int) -> None:
    walked, place = [], (a + 1) % 16
    while place != b and place != a:
        walked.append(place)
        place = (place + 1) % 16
    assert between(a, x, b) == (x in walked)


# -- invariants under churn ----------------------------------------------------------------------


@pytest.mark.parametrize("r", [2, 3, 4])
@pytest.mark.parametrize("seed", range(25))
def test_a_ring_with_a_base_keeps_its_invariants_and_becomes_ideal(seed: int, r: int) -> None:
    world = World(seed, r, base=True)
    world.make_ideal(world.places(r + 1))
    churn(world, 1200)
    world.finish()
    world.quiet(2 * len(world.cores) + r)
    assert world.not_ideal() == []
    before = world.snapshot()
    world.quiet(1)
    assert world.snapshot() == before, "an ideal ring is at rest"


def test_churn_really_happens() -> None:
    world = World(1, 3, base=True)
    world.make_ideal(world.places(4))
    first = set(world.cores)
    churn(world, 5000)
    assert len(first & set(world.cores)) < 4, "peers of the base have gone"
    assert len(world.cores) > 4


@pytest.mark.parametrize("seed", range(12))
def test_a_ring_grows_from_one_peer(seed: int) -> None:
    world = World(seed, 4)
    world.first(world.new())
    while len(world.cores) < 32:
        world.join(world.new())
        world.finish()
        for core in world.shuffled()[:3]:
            world.start(core, core.stabilise())
    world.quiet(40)
    assert world.not_ideal() == []


@pytest.mark.parametrize("seed", range(12))
def test_a_ring_of_one_takes_part_in_churn_without_crashes(seed: int) -> None:
    world = World(seed, 3)
    world.first(world.new())
    churn(world, 1500, size_max=16, crash=False)
    world.finish()
    world.quiet(40)
    assert world.not_ideal() == []


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_smallest_rings_are_ideal_when_all_have_stabilised(size: int) -> None:
    world = World(size, 4)
    world.first(world.new(100))
    for i in range(1, size):
        world.join(world.new(100 + i * 50))
        world.finish()
    world.quiet(8)
    assert len(world.cores) == size
    assert world.not_ideal() == []


@pytest.mark.parametrize("seed", range(10))
def test_many_join_at_the_same_place_at_once(seed: int) -> None:
    world = World(seed, 4)
    if seed % 2:
        world.first(world.new(10))
    else:
        world.make_ideal([10, 10**6, 10**9, 10**12, 10**15])
    for i in range(12):
        world.join(world.new(1000 + i))
    world.finish()
    world.quiet(40)
    assert len(world.cores) == (13 if seed % 2 else 17)
    assert world.not_ideal() == []


# -- peers that go -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_restarted_peer_joins_again_over_its_own_ghost(seed: int) -> None:
    world = World(seed, 3)
    world.make_ideal([10, 20, 30, 40, 50, 60])
    world.crash(world.cores[30])
    again = world.new(30)
    world.join(again)
    world.finish()
    assert again.successors[0] == peer(40)
    assert again.predecessor == peer(20)
    world.quiet(3)
    assert world.not_ideal() == []


def test_the_other_of_two_joins_again_over_its_own_ghost() -> None:
    world = World(1)
    world.make_ideal([10, 20])
    world.crash(world.cores[20])
    world.join(world.new(20))
    world.quiet(2)
    assert world.not_ideal() == []


def test_an_id_in_use_is_refused() -> None:
    world = World(1)
    world.make_ideal([10, 20, 30])
    for through in (10, 20, 30):
        thief = Chord(Peer(20, "elsewhere:1"))
        with pytest.raises(IdTaken, match=r"taken by host:20"):
            world.run(thief.join(peer(through)))


def test_an_id_in_use_by_a_ring_of_one_is_refused() -> None:
    world = World(1)
    world.first(world.new(20))
    with pytest.raises(IdTaken):
        world.run(Chord(Peer(20, "elsewhere:1")).join(peer(20)))


def test_join_says_when_nobody_answers() -> None:
    assert World(1).run(Chord(peer(1)).join(peer(2))) is False


def test_leaving_in_good_order_needs_no_stabilising_next_door() -> None:
    world = World(1, 2)
    world.make_ideal([10, 20, 30, 40])
    world.leave(world.cores[20])
    world.finish()
    assert world.cores[10].successors == (peer(30), peer(40))
    assert world.cores[30].predecessor == peer(10)


def test_the_other_of_two_leaves_a_ring_of_one() -> None:
    world = World(1)
    world.make_ideal([10, 20])
    world.leave(world.cores[20])
    world.finish()
    assert world.not_ideal() == []
    assert world.cores[10].neighbours() == neighbours(10, None)


def test_the_other_of_two_leaves_while_a_third_joins() -> None:
    chord = Chord(peer(10))
    chord.successors, chord.predecessor = (peer(20),), peer(30)
    chord.departed(peer(20), neighbours(20, 10, 10))
    assert chord.neighbours() == neighbours(10, 30, 30)


def test_a_peer_whose_successors_all_died_says_so_and_keeps_the_last() -> None:
    world = World(1, 2)
    world.make_ideal([10, 20])
    world.crash(world.cores[20])
    alone = world.cores[10]
    assert world.run(alone.stabilise()) == (peer(20),)
    assert alone.isolated
    assert alone.successors == (peer(20),)
    assert world.run(alone.check_predecessor()) == peer(20)
    alone.reset()
    assert not alone.isolated
    assert world.not_ideal() == []


def test_an_isolated_peer_finds_its_place_again_through_anyone_it_knows() -> None:
    world = World(1, 2)
    world.make_ideal([10, 20, 30, 40, 50])
    alone = world.cores[10]
    world.recovering = True
    world.crash(world.cores[20])
    world.crash(world.cores[30])
    assert world.run(alone.stabilise()) == (peer(20), peer(30))
    assert not alone.isolated
    world.quiet(6)
    assert world.not_ideal() == []


def test_a_dead_predecessor_is_noticed_though_nobody_notifies() -> None:
    world = World(1)
    world.make_ideal([10, 20, 30])
    world.crash(world.cores[20])
    assert world.run(world.cores[30].check_predecessor()) == peer(20)
    assert world.cores[30].predecessor is None


def test_another_peer_at_the_address_is_no_answer() -> None:
    chord = Chord(peer(10))
    chord.successors = (peer(20), peer(30))
    operation = chord.stabilise()
    assert next(operation) == Ask(peer(20), AskNeighbours())
    stranger = Neighbours(Peer(77, "host:20"), None, ())
    assert operation.send(stranger) == Ask(peer(30), AskNeighbours())
    assert chord.successors == (peer(30),)


def test_a_nearer_successor_that_came_meanwhile_is_kept() -> None:
    chord = Chord(peer(10))
    chord.successors = (peer(40),)
    operation = chord.stabilise()
    next(operation)
    chord.successors = (peer(20), peer(40))
    with pytest.raises(StopIteration):
        operation.send(neighbours(40, 30, 50))
    assert chord.successors == (peer(20), peer(40))


# -- lookups and fingers -------------------------------------------------------------------------


def ring_with_fingers(size: int, seed: int = 5) -> World:
    world = World(seed, 4)
    world.make_ideal(world.places(size))
    for core in world.cores.values():
        for _ in range(2 * int(log2(size)) + 4):
            world.run(core.refresh_finger())
    return world


@pytest.mark.parametrize("size", [1, 2, 5, 64, 256])
def test_lookups_find_the_owner_in_logarithmically_many_hops(size: int) -> None:
    world = ring_with_fingers(size) if size > 1 else World(5)
    if size == 1:
        world.first(world.new())
    hops = []
    for _ in range(200):
        identifier = world.random.randrange(RING_SIZE)
        found, asks = world.run_counted(world.anyone().lookup(identifier))
        hops.append(asks)
        owner = found.successors[0] if found.successors else found.peer
        assert owner.id == world.owner(identifier)
    assert sum(hops) / len(hops) <= log2(size) / 2 + 1
    assert max(hops) <= log2(size) + 4


def test_the_owner_of_a_peers_own_id_is_that_peer() -> None:
    world = ring_with_fingers(20)
    for core in world.cores.values():
        found = world.run(world.anyone().lookup(core.me.id))
        assert found.successors[0] == core.me


def test_lookups_go_round_dead_peers_before_anyone_has_stabilised() -> None:
    world = ring_with_fingers(64)
    world.recovering = True
    order = sorted(world.cores)
    for i in order[1::4] + order[2::4]:
        world.crash(world.cores[i])
    right = 0
    for _ in range(200):
        identifier = world.random.randrange(RING_SIZE)
        found = world.run(world.anyone().lookup(identifier))
        assert found is not None
        live = [p.id for p in found.successors if p.id in world.cores]
        right += live[0] == world.owner(identifier)
    assert right == 200


def test_a_lookup_asks_no_dead_peer_twice() -> None:
    world = ring_with_fingers(64)
    order = sorted(world.cores)
    for i in order[1::3]:
        world.crash(world.cores[i])
    for _ in range(50):
        operation = world.anyone().lookup(world.random.randrange(RING_SIZE))
        dead: list[Peer] = []
        try:
            ask = next(operation)
            while True:
                answer = world._answer(ask)
                if answer is None:
                    dead.append(ask.peer)
                ask = operation.send(answer)
        except StopIteration:
            assert len(dead) == len(set(dead))


def test_known_peers_lie_clockwise_with_their_arcs() -> None:
    world = ring_with_fingers(64)
    order = sorted(world.cores)
    for core in world.cores.values():
        known = core.known()
        offsets = [(k.peer.id - core.me.id) % RING_SIZE for k in known]
        assert offsets == sorted(set(offsets))
        assert 6 <= len(known) <= 20
        for entry in known:
            true = order[order.index(entry.peer.id) - 1]
            assert entry.predecessor in (true, None)
            assert entry.predecessor == true or entry.peer == core.predecessor


def test_fingers_per_octave_are_spread_geometrically() -> None:
    fingers = Fingers(0, per_octave=4)
    targets = [fingers.next_target(1 << 40) for _ in range(91)]
    assert len(set(targets)) == 91
    for far, near in pairwise(targets):
        assert far is not None
        assert near is not None
        assert far / near == pytest.approx(2**0.25)
    assert fingers.next_target(1 << 40) == max(t for t in targets if t is not None)


def test_a_finger_is_looked_up_once_for_all_the_targets_in_its_arc() -> None:
    fingers = Fingers(0, per_octave=4)
    first = fingers.next_target(1 << 40)
    assert first is not None
    fingers.learn(neighbours(first + 5, first // 2 - 1))  # its arc holds the four targets before
    second = fingers.next_target(1 << 40)
    assert second is not None
    assert second == pytest.approx(first / 2 / 2**0.25)


def test_no_target_lies_beyond_a_successor_that_is_next_to_me_on_the_other_side() -> None:
    assert Fingers(5).next_target(4) is None


@given(st.lists(st.integers(1, 1 << 20), min_size=1, unique=True), st.integers(0, 2**32))
def test_a_finger_is_the_first_known_peer_at_or_after_its_target(ids: list[int], seed: int) -> None:
    fingers = Fingers(0)
    forgotten = set(Random(seed).sample(ids, len(ids) // 3))
    for i in ids:
        fingers.learn(neighbours(i, None))
    every = {min((i for i in ids if i >= 1 << k), default=None) for k in range(21)}
    assert {k.peer.id for k in fingers.known()} == every - {None}
    for i in forgotten:
        fingers.forget(peer(i))
    assert forgotten.isdisjoint(k.peer.id for k in fingers.known())


def test_the_newest_word_about_a_predecessor_wins() -> None:
    fingers = Fingers(0)
    fingers.learn(neighbours(100, 50))
    fingers.learn(neighbours(100, 70))
    assert [k.predecessor for k in fingers.known()] == [70]


def test_step_in_a_ring_of_one_is_found_at_once() -> None:
    chord = Chord(peer(7))
    assert chord.step(3) == Found(neighbours(7, None))


# -- the checker itself --------------------------------------------------------------------------


def test_the_checker_names_what_is_wrong() -> None:
    two = {i: neighbours(i, j, j) for i, j in ((1, 2), (2, 1), (5, 6), (6, 5))}
    assert "2 rings" in violations(two, 2)[0]
    twisted = {i: neighbours(i, None, j) for i, j in ((1, 3), (3, 2), (2, 4), (4, 1))}
    assert "out of order" in violations(twisted, 2)[0]
    assert "no live successor" in violations({1: neighbours(1, None, 9)}, 2)[0]
    disorder = {1: neighbours(1, None, 3, 2), 2: neighbours(2, 1, 1), 3: neighbours(3, 2, 1)}
    assert "disorder" in violations(disorder, 2)[0]
    double = {1: neighbours(1, None, 2, 2), 2: neighbours(2, 1, 1)}
    assert "duplicates" in violations(double, 2)[0]
    skipping = {1: neighbours(1, 3, 3), 2: neighbours(2, 1, 3), 3: neighbours(3, 1, 1)}
    assert violations(skipping, 2) == []
    assert "only 2 principals" in violations(skipping, 2, principals_min=3)[0]
    assert len(ideal(skipping, 2)) == 4
