"""A plain event loop that drives many Chord cores, with every interleaving that a seed can give.

An ask is two events: the question arrives (the answer is made from the state of that moment), and
the answer arrives. Between them anything else may happen. Crashed peers answer nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from meteor.ring.arcs import RING_SIZE
from meteor.ring.chord import Chord
from meteor.ring.invariants import extended, ideal, principals, violations
from meteor.ring.questions import Answer, Ask, Found, Meet, Neighbours, Notify, Operation, Peer


@dataclass(eq=False)
class Task:
    core: Chord
    operation: Operation[Any]
    ask: Ask
    done: Callable[[Any], None]
    answered: bool = False
    answer: Answer | None = None


@dataclass(eq=False)
class Farewell:
    """A leaver's last words on their way to a neighbour."""

    to: Peer
    leaver: Neighbours


class Broken(AssertionError):  # noqa: N818 - it reads as what happened
    """The checker found a violation."""


class World:
    def __init__(self, seed: int, r: int = 3, core: type[Chord] = Chord, base: bool = False):
        self.random = random.Random(seed)
        self.r = r
        self.core = core
        self.principals_min = r + 1 if base else 0
        self.cores: dict[int, Chord] = {}
        self.tasks: list[Task] = []
        self.farewells: list[Farewell] = []
        self.asks = 0
        self.recovering = False  # set by tests that break the ring on purpose
        self.careless = False  # let more peers go than Zave's assumption allows

    # -- beginnings ----------------------------------------------------------------------------

    def new(self, identifier: int | None = None) -> Chord:
        place = self.random.randrange(RING_SIZE) if identifier is None else identifier
        return self.core(Peer(place, f"host:{place}"), self.r)

    def places(self, count: int) -> list[int]:
        return [self.random.randrange(RING_SIZE) for _ in range(count)]

    def make_ideal(self, ids: Iterable[int]) -> None:
        order = sorted(ids)
        self.cores = {i: self.new(i) for i in order}
        for place, i in enumerate(order):
            after = [self.cores[x].me for x in order[place + 1 :] + order[:place]]
            self.cores[i].successors = tuple(after[: self.r])
            self.cores[i].predecessor = after[-1] if after else None

    def first(self, core: Chord) -> None:
        self.cores[core.me.id] = core

    # -- what can happen -----------------------------------------------------------------------

    def join(self, core: Chord, through: Peer | None = None) -> None:
        def joined(done: bool) -> None:
            if done:
                self.cores[core.me.id] = core

        self.start(core, core.join(through or self.anyone().me), joined)

    def crash(self, core: Chord) -> None:
        del self.cores[core.me.id]

    def leave(self, core: Chord) -> None:
        words = core.neighbours()
        self.crash(core)
        told = {peer for peer in (words.predecessor, *words.successors[:1]) if peer is not None}
        for peer in sorted(told, key=lambda peer: peer.id):
            self.farewells.append(Farewell(peer, words))

    def may_go(self, core: Chord) -> bool:
        """Zave's assumption: what is left has a live successor everywhere, and the base.

        Lists on their way in answers count too: they will be adopted later.
        """
        rest = set(self.cores) - {core.me.id}
        if self.careless:
            return len(rest) > self.r
        lists = [extended(self.cores[i].neighbours()) for i in rest]
        flying = [self._carried(task.answer) for task in self.tasks if task.answered]
        flying += [f.leaver for f in self.farewells]
        flying += [core.neighbours()]  # in case it says farewell
        adoptable = [extended(n) for n in flying if n is not None]
        for successors in [x[1:] for x in lists] + [x[: self.r] for x in adoptable]:
            if successors and rest.isdisjoint(successors):
                return False
        for one in adoptable:
            if len(one) > 1 and rest.isdisjoint(one[1:]):
                return False
        enough = max(self.principals_min, 1)
        return len(principals(rest, lists + adoptable)) >= enough

    @staticmethod
    def _carried(answer: Answer | None) -> Neighbours | None:
        if isinstance(answer, Found):
            return answer.neighbours
        return answer if isinstance(answer, Neighbours) else None

    def maintain(self, core: Chord) -> None:
        kind = self.random.randrange(4)
        if kind < 2:
            self.start(core, core.stabilise())
        elif kind == 2:
            self.start(core, core.check_predecessor())
        else:
            self.start(core, core.refresh_finger())

    # -- the loop ------------------------------------------------------------------------------

    def start(
        self,
        core: Chord,
        operation: Operation[Any],
        done: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self._advance(Task(core, operation, None, done), first=True)  # type: ignore[arg-type]

    def step(self) -> bool:
        """Let one thing that is under way happen, any of them; False when nothing is."""
        events = len(self.tasks) + len(self.farewells)
        if not events:
            return False
        pick = self.random.randrange(events)
        if pick >= len(self.tasks):
            words = self.farewells.pop(pick - len(self.tasks))
            told = self.cores.get(words.to.id)
            if told is not None and told.me == words.to:
                told.departed(words.leaver.peer, words.leaver)
                self.check()
            return True
        task = self.tasks[pick]
        if not task.answered:
            task.answer = self._answer(task.ask)
            task.answered = True
            return True
        self.tasks.remove(task)
        self._advance(task)
        return True

    def _advance(self, task: Task, first: bool = False) -> None:
        joining = self.cores.get(task.core.me.id) is not task.core
        if joining and not first and task.operation.__name__ != "join":
            task.operation.close()  # its peer has crashed
            return
        before = task.core.neighbours()
        try:
            task.ask = next(task.operation) if first else task.operation.send(task.answer)
        except StopIteration as end:
            task.done(end.value)
        else:
            task.answered, task.answer = False, None
            self.tasks.append(task)
        if task.core.neighbours() != before:
            self.check()

    def _answer(self, ask: Ask) -> Answer | None:
        self.asks += 1
        core = self.cores.get(ask.peer.id)
        if core is None or core.me != ask.peer:
            return None
        if isinstance(ask.question, Notify):
            self.start(core, core.rectify(ask.question.peer))
            return True
        if isinstance(ask.question, Meet):
            self.start(core, core.meet(ask.question.peer))
            return True
        return core.answer(ask.question)

    def finish(self) -> None:
        while self.step():
            pass

    def quiet(self, rounds: int) -> None:
        """Let everyone stabilise and check its predecessor, in a random order, all at once."""
        for _ in range(rounds):
            for core in self.shuffled():
                self.start(core, core.stabilise())
                self.start(core, core.check_predecessor())
            self.finish()

    def run(self, operation: Operation[Any]) -> Any:
        """Carry one operation out alone and return its result."""
        answer: Answer | None = None
        try:
            ask = next(operation)
            while True:
                answer = self._answer(ask)
                ask = operation.send(answer)
        except StopIteration as end:
            return end.value

    # -- looking on ----------------------------------------------------------------------------

    def anyone(self) -> Chord:
        return self.random.choice(list(self.cores.values()))

    def shuffled(self) -> list[Chord]:
        cores = list(self.cores.values())
        self.random.shuffle(cores)
        return cores

    def snapshot(self) -> dict[int, Neighbours]:
        return {i: core.neighbours() for i, core in self.cores.items()}

    def check(self) -> None:
        found = violations(self.snapshot(), self.r, self.principals_min)
        if found and not self.recovering:
            raise Broken("\n".join(found))

    def not_ideal(self) -> list[str]:
        return ideal(self.snapshot(), self.r)

    def owner(self, identifier: int) -> int:
        return min(self.cores, key=lambda i: (i - identifier) % RING_SIZE)


def seasons(world: World, count: int, crashes: int = 1) -> None:
    """Season by season: peers join amid other work, `crashes` at once, then all stabilise twice."""
    for _ in range(count):
        if len(world.cores) < 9:
            world.join(world.new())
        for _ in range(60):
            if world.random.random() < 0.1:
                core = world.anyone()
                world.start(core, core.stabilise())
            world.step()
        world.finish()
        for victim in world.shuffled()[:crashes]:
            if len(world.cores) > world.r + 2:
                world.crash(victim)
                world.check()
        for _ in range(2):
            for core in world.shuffled():
                world.start(core, core.stabilise())
            world.finish()


def churn(world: World, steps: int, size_max: int = 14, crash: bool = True) -> None:
    """Join, crash, leave and maintain at random, and check after every change."""
    for _ in range(steps):
        dice = world.random.random()
        if dice < 0.04 and len(world.cores) < size_max:
            world.join(world.new())
        elif dice < 0.10 and crash:
            victim = world.anyone()
            if world.may_go(victim):
                (world.leave if dice < 0.06 else world.crash)(victim)
                world.check()
        elif dice < 0.30 and len(world.tasks) < 8:
            world.maintain(world.anyone())
        else:
            world.step()
