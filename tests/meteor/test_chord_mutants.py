"""The checker catches the mistakes that published versions of Chord made."""

from __future__ import annotations

import pytest

from meteor.ring.chord import Chord
from meteor.ring.questions import Ask, AskNeighbours, Neighbours, Notify, Operation, Peer, between
from meteor.simulation.cores import Broken, World, seasons


class BelievesUnasked(Chord):
    """Adopts its successor's predecessor without asking whether it lives."""

    def _improve(self, successor: Neighbours, dead: list[Peer]) -> Operation[None]:
        nearer = successor.predecessor
        if nearer is not None and between(self.me.id, nearer.id, self.successors[0].id):
            self.successors = (nearer, *self.successors)[: self.successors_kept]
        yield Ask(self.successors[0], Notify(self.me))


class NeverDoubtsItsPredecessor(Chord):
    """Takes a notifier only if it is nearer, and never asks whether the old one lives."""

    def rectify(self, candidate: Peer) -> Operation[bool]:
        current = self.predecessor
        if not self.successors or current is None:
            return (yield from super().rectify(candidate))
        if between(current.id, candidate.id, self.me.id):
            self.predecessor = candidate
        return self.predecessor == candidate

    def check_predecessor(self) -> Operation[Peer | None]:
        if self.predecessor is not None:
            yield Ask(self.predecessor, AskNeighbours())
        return None


class KnowsOneSuccessor(Chord):
    """Joins with the first successor of its predecessor alone."""

    def _place_after(self, before: Neighbours) -> None:
        super()._place_after(before)
        self.successors = self.successors[:1]


def caught(core: type[Chord], seeds: int = 40, crashes: int = 1) -> list[str]:
    """Run until the checker objects; return its words, or nothing if it never does."""
    for seed in range(seeds):
        world = World(seed, 2, core)
        world.make_ideal(world.places(5))
        try:
            seasons(world, 12, crashes)
            world.quiet(2 * len(world.cores))
        except Broken as broken:
            return str(broken).splitlines()
        if world.not_ideal():
            return ["never ideal", *world.not_ideal()]
    return []


def test_the_real_one_is_not_caught() -> None:
    assert caught(Chord) == []


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        (BelievesUnasked, "no live successor"),
        (NeverDoubtsItsPredecessor, ""),
        (KnowsOneSuccessor, "no live successor"),
    ],
)
def test_mutants_are_caught(mutant: type[Chord], words: str) -> None:
    found = caught(mutant)
    assert found
    assert words in found[0]


def test_failures_beyond_the_assumption_are_caught() -> None:
    assert "no live successor" in caught(Chord, crashes=2)[0]


@pytest.mark.parametrize("core", [Chord, KnowsOneSuccessor])
def test_a_joiner_that_knows_one_successor_does_not_survive_its_death(core: type[Chord]) -> None:
    world = World(1, 3, core, base=True)
    world.make_ideal([10, 20, 30, 40, 50])
    world.join(world.new(15), through=world.cores[40].me)
    world.finish()
    world.crash(world.cores[20])  # one failure: within what lists of three must bear
    if core is Chord:
        world.check()
        world.quiet(4)
        assert world.not_ideal() == []
    else:
        with pytest.raises(Broken, match="15 has no live successor"):
            world.check()
