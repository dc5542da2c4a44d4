"""A plain event loop that drives many Chord cores, with every interleaving that a seed can give.

An ask is two events: the question arrives (the answer is made from the state of that moment), and
the answer arrives. Between them anything else may happen. Crashed peers answer nothing.

A lost question, or a lost answer, is asked again until it comes through, as a connection would: so
loss alone makes nobody look dead, which is what Zave assumes. A notice or a farewell that is lost
is lost. A notice may also come twice, the second time at any later moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from meteor.ring.arcs import RING_SIZE
from meteor.ring.chord import Chord
from meteor.ring.invariants import extended, ideal, list_problems, principals, violations
from meteor.ring.questions import Answer, Ask, Found, Meet, Neighbours, Notify, Operation, Peer


@dataclass(eq=False, slots=True)
class Task:
    """An operation that waits for the answer to what it asked."""

    core: Chord
    operation: Operation[Any]
    ask: Ask
    done: Callable[[Any], None]
    answered: bool = False
    answer: Answer | None = None


@dataclass(eq=False, slots=True)
class Farewell:
    """A leaver's last words on their way to a neighbour."""

    to: Peer
    leaver: Neighbours


@dataclass(eq=False, slots=True)
class LateNotice:
    """A notice that has arrived once and will arrive again."""

    to: Peer
    peer: Peer


class Broken(AssertionError):  # noqa: N818 - it reads as what happened
    """The checker found a violation."""


class World:
    """All cores of a ring, what is under way between them, and the checker.

    The checker looks at the whole ring after every `check_every`-th change of a peer's
    neighbours, and at the changed peer's own list after each.
    """

    def __init__(
        self,
        seed: int,
        r: int = 3,
        core: type[Chord] = Chord,
        base: bool = False,
        *,
        loss: float = 0.0,
        duplicates: float = 0.0,
        check_every: int = 1,
    ) -> None:
        self.random = Random(seed)
        self.r = r
        self.core = core
        self.principals_min = r + 1 if base else 0
        self.loss, self.duplicates, self.check_every = loss, duplicates, check_every
        self.cores: dict[int, Chord] = {}
        self.joining: set[Chord] = set()
        self.tasks: list[Task] = []
        self.words: list[Farewell | LateNotice] = []
        self.messages = 0
        self.changes = 0
        self.checks = 0
        self.recovering = False  # set by tests that break the ring on purpose
        self.careless = False  # let more peers go than Zave's assumption allows

    # -- beginnings ----------------------------------------------------------------------------

    def new(self, identifier: int | None = None) -> Chord:
        """Return a core that belongs to no ring yet."""
        place = self.random.randrange(RING_SIZE) if identifier is None else identifier
        return self.core(Peer(place, f"host:{place}"), self.r)

    def places(self, count: int) -> list[int]:
        """Return random places of the ring."""
        return [self.random.randrange(RING_SIZE) for _ in range(count)]

    def make_ideal(self, ids: Iterable[int]) -> None:
        """Begin with a ring of these, at rest."""
        order = sorted(ids)
        self.cores = {i: self.new(i) for i in order}
        for place, i in enumerate(order):
            after = [self.cores[x].me for x in order[place + 1 :] + order[:place]]
            self.cores[i].successors = tuple(after[: self.r])
            self.cores[i].predecessor = after[-1] if after else None

    def first(self, core: Chord) -> None:
        """Begin with a ring of one."""
        self.cores[core.me.id] = core

    # -- what can happen -----------------------------------------------------------------------

    def join(self, core: Chord, through: Peer | None = None) -> None:
        """Let a core look for its place; it is a member once it has found it."""

        def joined(done: bool) -> None:
            self.joining.discard(core)
            if done:
                self.cores[core.me.id] = core

        self.joining.add(core)
        self.start(core, core.join(through or self.anyone().me), joined)

    def crash(self, core: Chord) -> None:
        """End a peer in the middle of whatever it does."""
        del self.cores[core.me.id]

    def leave(self, core: Chord) -> None:
        """End a peer in good order: its neighbours will hear of it."""
        words = core.neighbours()
        self.crash(core)
        told = {peer for peer in (words.predecessor, *words.successors[:1]) if peer is not None}
        for peer in sorted(told, key=lambda peer: peer.id):
            self._say(Farewell(peer, words))

    def may_go(self, core: Chord) -> bool:
        """Zave's assumption: what is left has a live successor everywhere, and the base.

        Lists on their way in answers count too: they will be adopted later.
        """
        rest = set(self.cores) - {core.me.id}
        if self.careless:
            return len(rest) > self.r
        lists = [extended(self.cores[i].neighbours()) for i in rest]
        flying = [self._carried(task.answer) for task in self.tasks if task.answered]
        flying += [words.leaver for words in self.words if isinstance(words, Farewell)]
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
        """Begin one of the things that a peer does from time to time."""
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
        """Begin an operation of a core; `done` gets its result."""
        self._advance(core, operation, done, None)

    def step(self) -> bool:
        """Let one thing that is under way happen, any of them; False when nothing is."""
        events = len(self.tasks) + len(self.words)
        if not events:
            return False
        pick = self.random.randrange(events)
        if pick >= len(self.tasks):
            self._hear(_take(self.words, pick - len(self.tasks)))
            return True
        task = self.tasks[pick]
        if not task.answered:
            task.answered, task.answer = self._carry(task.ask)
            return True
        _take(self.tasks, pick)
        if task.core not in self.joining and self.cores.get(task.core.me.id) is not task.core:
            task.operation.close()  # its peer has crashed
        else:
            self._advance(task.core, task.operation, task.done, task.answer)
        return True

    def _advance(
        self,
        core: Chord,
        operation: Operation[Any],
        done: Callable[[Any], None],
        answer: Answer | None,
    ) -> None:
        before = core.neighbours()
        try:
            ask = operation.send(answer)
        except StopIteration as end:
            done(end.value)
        else:
            self.tasks.append(Task(core, operation, ask, done))
        if core.neighbours() != before:
            self.changed(core)

    def _carry(self, ask: Ask) -> tuple[bool, Answer | None]:
        """Carry a question there and its answer back; False when one of the two is lost."""
        self.messages += 1
        notice = isinstance(ask.question, Notify)
        if self._lost():
            return notice, None
        answer = self._answer(ask)
        self.messages += answer is not None
        if answer is not None and self._lost():
            return notice, None
        return True, answer

    def _answer(self, ask: Ask) -> Answer | None:
        core = self.cores.get(ask.peer.id)
        if core is None or core.me != ask.peer:
            return None
        if isinstance(ask.question, Notify):
            self.start(core, core.rectify(ask.question.peer))
            if self.duplicates and self.random.random() < self.duplicates:
                self.messages += 1
                self.words.append(LateNotice(ask.peer, ask.question.peer))
            return True
        if isinstance(ask.question, Meet):
            self.start(core, core.meet(ask.question.peer))
            return True
        return core.answer(ask.question)

    def _say(self, words: Farewell) -> None:
        self.messages += 1
        if not self._lost():
            self.words.append(words)

    def _hear(self, words: Farewell | LateNotice) -> None:
        core = self.cores.get(words.to.id)
        if core is None or core.me != words.to:
            return
        if isinstance(words, LateNotice):
            self.start(core, core.rectify(words.peer))
        else:
            core.departed(words.leaver.peer, words.leaver)
            self.changed(core)

    def _lost(self) -> bool:
        return self.loss > 0 and self.random.random() < self.loss

    def finish(self) -> None:
        """Let everything that is under way come to its end."""
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
        """Carry one operation out alone, without faults, and return its result."""
        return self.run_counted(operation)[0]

    def run_counted(self, operation: Operation[Any]) -> tuple[Any, int]:
        """Carry one operation out alone, without faults; return its result and its questions."""
        asks = 0
        try:
            ask = next(operation)
            while True:
                asks += 1
                ask = operation.send(self._answer(ask))
        except StopIteration as end:
            return end.value, asks

    # -- looking on ----------------------------------------------------------------------------

    def anyone(self) -> Chord:
        """Return a random member."""
        return self.random.choice(list(self.cores.values()))

    def shuffled(self) -> list[Chord]:
        """Return all members in a random order."""
        cores = list(self.cores.values())
        self.random.shuffle(cores)
        return cores

    def snapshot(self) -> dict[int, Neighbours]:
        """Return what every member knows of its neighbours."""
        return {i: core.neighbours() for i, core in self.cores.items()}

    def changed(self, core: Chord) -> None:
        """Look at what a change has made of the ring."""
        self.changes += 1
        if self.changes % self.check_every == 0:
            self.check()
        elif core.me.id in self.cores:
            self._object(list_problems(core.neighbours(), self.cores, self.r))

    def check(self) -> None:
        """Look at the whole ring; raise `Broken` if it is beyond repair."""
        self._object(violations(self.snapshot(), self.r, self.principals_min))

    def _object(self, found: list[str]) -> None:
        self.checks += 1
        if found and not self.recovering:
            raise Broken("\n".join(found))

    def not_ideal(self) -> list[str]:
        """Say what is not as it should be at rest."""
        return ideal(self.snapshot(), self.r)

    def owner(self, identifier: int) -> int:
        """Return the id of the member that an identifier belongs to."""
        return min(self.cores, key=lambda i: (i - identifier) % RING_SIZE)


T = TypeVar("T")


def _take(things: list[T], place: int) -> T:
    """Remove one of many without moving the rest: their order means nothing."""
    things[place], things[-1] = things[-1], things[place]
    return things.pop()


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


@dataclass
class Counts:
    """What happened in a time of churn."""

    joins: int = 0
    left: int = 0


def churn(world: World, steps: int, size_max: int = 14, crash: bool = True) -> Counts:
    """Join, crash, leave and maintain at random, and check after every change."""
    counts = Counts()
    for _ in range(steps):
        dice = world.random.random()
        if dice < 0.04 and len(world.cores) < size_max:
            world.join(world.new())
            counts.joins += 1
        elif dice < 0.10 and crash:
            victim = world.anyone()
            if world.may_go(victim):
                (world.leave if dice < 0.06 else world.crash)(victim)
                counts.left += 1
                world.check()
        elif dice < 0.30 and len(world.tasks) < 8:
            world.maintain(world.anyone())
        else:
            world.step()
    return counts
