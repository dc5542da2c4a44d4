"""Two rings become one: after a cut, from any place where a peer of one hears of the other."""

from __future__ import annotations

from random import Random

import pytest

from meteor.ring.chord import Chord
from meteor.ring.questions import Ask, Meet, Operation
from meteor.simulation.cores import World


def two_rings(seed: int, sizes: tuple[int, int]) -> tuple[World, list[Chord], list[Chord]]:
    """Return a world with two rings, each at rest, whose places are shuffled together."""
    world = World(seed)
    places = world.places(sum(sizes))
    world.make_ideal(places[: sizes[0]])
    one = list(world.cores.values())
    world.make_ideal(places[sizes[0] :])
    other = list(world.cores.values())
    world.cores |= {core.me.id: core for core in one}
    world.recovering = True  # that there are two rings is what is to be mended
    return world, one, other


def heard(world: World, one: Chord, other: Chord) -> None:
    """Do what a peer does that hears of one outside: look its place up, and have them meet."""

    def have_them_meet() -> Operation[None]:
        before = yield from one.lookup(other.me.id)
        if before is not None:
            yield Ask(before.peer, Meet(other.me))

    world.run(have_them_meet())


@pytest.mark.parametrize("sizes", [(1, 1), (1, 5), (2, 3), (3, 2), (8, 8), (20, 4)])
@pytest.mark.parametrize("seed", range(20))
def test_two_rings_become_one_when_one_peer_hears_of_the_other(
    seed: int, sizes: tuple[int, int]
) -> None:
    world, one, other = two_rings(seed, sizes)
    heard(world, world.random.choice(one), world.random.choice(other))
    world.finish()
    world.quiet(2 * world.r + 2)
    assert world.not_ideal() == []


@pytest.mark.parametrize("seed", range(40))
def test_both_sides_may_hear_of_each_other_at_once_and_in_many_places(seed: int) -> None:
    world, one, other = two_rings(seed, (7, 9))
    for _ in range(4):
        for a, b in ((one, other), (other, one)):
            heard(world, world.random.choice(a), world.random.choice(b))
        for _ in range(5):
            world.step()
    world.finish()
    world.quiet(2 * world.r + 2)
    assert world.not_ideal() == []


@pytest.mark.parametrize("seed", range(40))
def test_rings_close_although_most_of_the_words_between_them_are_lost(seed: int) -> None:
    """One `Meet` gets through; the walk that follows breaks off; stabilising does the rest."""
    world, one, other = two_rings(seed, (10, 6))
    heard(world, one[0], other[0])
    dice = Random(seed)
    for _ in range(200):
        if world.tasks and isinstance(world.tasks[-1].ask.question, Meet) and dice.random() < 0.7:
            world.tasks.pop()
        world.step()
    world.finish()
    world.quiet(24)
    assert world.not_ideal() == []


@pytest.mark.parametrize("seed", range(20))
def test_a_peer_that_dies_while_rings_meet_stops_nothing(seed: int) -> None:
    world, one, other = two_rings(seed, (8, 8))
    heard(world, one[0], other[0])
    for _ in range(world.random.randrange(30)):
        world.step()
    world.crash(world.anyone())
    world.finish()
    world.quiet(24)
    assert world.not_ideal() == []
