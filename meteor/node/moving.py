"""Moves a ring from one space to the next while it runs.

Each peer gets an *heir*: a peer of its own in a second ring, with the next space, on the same
address. What is stored is copied from the old ring to the new one while the old one serves. Then
everything stops for a moment: the rest is copied, what was deleted meanwhile is taken out of the
new ring again, and all clients are served by the heirs. So the two never serve at the same time,
and each ring by itself keeps all that a ring promises.

    COPYING   the heir is in its ring, and gets all that this peer is responsible for
    FROZEN    nothing is changed or answered in the old ring any more; noted on disk
    CHECKED   what the heir has and the old ring has no longer is taken out again
    MOVED     clients are served by the heir; noted on disk

A phase begins when all peers of the old ring have come to the one before, in a complete survey
without doubts. The owner of the identifier 0 sees to that; whoever owns it after a crash goes on
from what the others say. There is no way back: once all are frozen, anybody may finish it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import trio

from arms.errors import ArmsError
from arms.message import Action, Kind, Message, Modifiers, Voters, region_of
from arms.rows import Stored, read_row
from meteor.background import background_nursery
from meteor.errors import InputError, MeteorError
from meteor.limits import HANDOVER_ROWS
from meteor.node import epochs
from meteor.node.copying import START, Page
from meteor.node.errands import Answer, Check, Errand, errand_for
from meteor.ring.arcs import WHOLE, Spans, contains, missing
from meteor.ring.placement import even_places
from meteor.transport.frames import Value
from squid import Space, SpaceError
from squid.errors import SquidError

if TYPE_CHECKING:
    from meteor.node.node import Node

log = logging.getLogger("meteor.ring")

STEP_SECONDS = 0.25
"""How often a peer looks whether there is something to copy or to do."""

CONDUCT_SECONDS = 0.5
"""How often the ring is surveyed while it moves."""

LAG_MAX = 500
"""Messages of one peer that may still have to be copied when everything stops."""


SAMPLE = -1
"""The order to say where data would lie in the next space, before anything begins."""

SAMPLE_ROWS = 256
"""Rows that are looked at for that, copies for others among them: each costs 20 microseconds."""


class Phase(IntEnum):
    """How far a peer has come."""

    NONE = 0
    COPYING = 1
    FROZEN = 2
    CHECKED = 3
    MOVED = 4


class Move:
    """One peer's part in the move."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.heir: Node | None = None
        """The peer in the next ring, once it has its arc there."""
        self.phase = Phase.NONE
        self.sample: tuple[int, list[int]] = (0, [])
        """How many data this peer owns, and where some of them would lie in the next space."""
        self._ordered = Phase.NONE
        self._space: Space | None = None
        self._behind: int | None = None
        """Messages still to be copied, up to a page; None: not known."""
        self._misfits: dict[str, str] = {}
        self._checked: tuple[int, Spans] = (-1, ())
        """The round in which the heir's part of the next ring was checked, and that part.

        It is checked again only in another round: once somebody has moved, what the old ring has
        not may be new.
        """
        self._round = 0
        """How often everything has to be copied: once more when the next ring has lost a peer."""
        self._copied = -1
        """The round in which everything was copied last."""
        self._doubted: set[tuple[str, str]] = set()
        self._seen_frozen: set[str] = set()
        self._begun = trio.Event()

    # -- orders ------------------------------------------------------------------------------------

    async def announce(self, definition: Value) -> bool:
        """Have the whole ring set out for its next space; True: all have heard of it."""
        if not isinstance(definition, str):
            raise InputError("what came is not the definition of a space")
        self._check_definition(definition)
        node, version = self._node, self._node.space.version + 1
        seconds = node.config.post_seconds
        answer = await node.service.survey(seconds, [version, SAMPLE, definition, {}, 0])
        samples = {report["address"]: report["sample"] for report in answer.reports}
        places = even_places(samples)
        answer = await node.service.survey(seconds, [version, 0, definition, places, 0])
        return answer.covered == WHOLE

    def _check_definition(self, definition: str) -> Space:
        """Return the space of a definition; `InputError` if the ring can't move to it."""
        space = following_space(self._node.space, definition)
        if self._space is not None and self._space != space:
            raise InputError(
                f"the ring is on its way to another space of version {space.version} "
                f"({self._space.fingerprint()}) already"
            )
        return space

    def obey(self, order: Value) -> None:
        """Take an order from the peer that conducts."""
        match order:
            case [
                int() as version,
                int() as phase,
                str() as definition,
                dict() as places,
                int() as round_,
            ] if version == self._node.space.version + 1 and phase in (SAMPLE, *Phase):
                try:
                    space = self._check_definition(definition)
                except InputError as error:
                    log.warning("%s", error)
                    return
                if phase == SAMPLE:
                    self.sample = self._sample(space)
                    return
                if self._space is None:
                    epochs.begin(self._node.root, space)
                    self._set_out(space, places.get(self._node.me.address))
                self._ordered = max(self._ordered, Phase(phase))
                self._round = max(self._round, round_)

    def _sample(self, space: Space) -> tuple[int, list[int]]:
        """Return how many data this peer owns, and where some of them will lie."""
        node, found = self._node, []
        now_ms, spans, newest = node.now_ms(), node.overlay.spans, node.store.newest()[0]
        for probe in range(SAMPLE_ROWS):
            for stored in _rows(node, newest * probe // SAMPLE_ROWS, 1):
                if stored.kind is Kind.DATA and contains(spans, stored.identifier):
                    with suppress(SquidError):  # who copies it says that it does not fit
                        found.append(region_of(space, stored.message).lowest)
        return node.store.counts(now_ms, spans)[Kind.DATA], [at for at in found if at is not None]

    def order(self) -> Value:
        """Return what all peers are to do, as far as this one knows."""
        if self._space is None:
            return None
        return [self._space.version, int(self._ordered), self._space.to_toml(), {}, self._round]

    def report(self) -> dict[str, Any] | None:
        """Say how far this peer has come, if the ring moves."""
        if self._space is None:
            return None
        heir = self.heir
        return {
            "version": self._space.version,
            "fingerprint": self._space.fingerprint(),
            "phase": int(self.phase),
            "behind": self._behind,
            "round": self._copied,
            "misfits": list(self._misfits.values())[:1],
            "checked": self._checked[0],
            "still": heir is not None and self._checked[1] == heir.overlay.spans,
        }

    # -- one peer ----------------------------------------------------------------------------------

    def recall(self) -> None:
        """Be where this peer was when it stopped."""
        found = epochs.following(self._node.root, self._node.space)
        if found is not None:
            home, self._space = found
            if epochs.is_frozen(home):
                self._node.freeze()
                self.phase = self._ordered = Phase.FROZEN

    async def run(self) -> None:
        """Take part until cancelled."""
        if self._space is not None:
            self._set_out(self._space)
        await self._begun.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._conduct)
            nursery.start_soon(self._copy)
            while self.phase is not Phase.MOVED:
                await trio.sleep(STEP_SECONDS)
                try:
                    await self._step()
                except (MeteorError, ArmsError) as error:
                    log.info("the move goes on in a moment: %s", error)

    def _set_out(self, space: Space, place: object = None) -> None:
        log.info("on the way to version %d of the space %s", space.version, space.name)
        self._space = space
        self._node.nursery.start_soon(self._live_on, space, place if isinstance(place, int) else -1)
        self._begun.set()

    async def _live_on(self, space: Space, place: int) -> None:
        """Be in the next ring too; the owner of the identifier 0 begins it."""
        while self.heir is None:
            heir = self._node.make_heir(space, place)
            try:
                async with background_nursery() as nursery:
                    await nursery.start(heir.run)
                    self._node.front.introduce(heir)
                    self.heir = heir
                    await trio.sleep_forever()
            except MeteorError as error:
                if self.heir is not None:
                    raise
                log.info("not in the next ring yet: %s", error)
                await trio.sleep(STEP_SECONDS)

    async def _step(self) -> None:
        heir = self.heir
        if heir is None:
            return
        self.phase = max(self.phase, Phase.COPYING)
        if self._ordered >= Phase.FROZEN and self.phase < Phase.FROZEN:
            async with self._node.gate.closed():  # whatever is on its way comes to its end first
                epochs.freeze(heir.home)
                self._node.freeze()
            self._behind = None
            self.phase = Phase.FROZEN
        if self._ordered is Phase.CHECKED and self._checked[0] < (round_ := self._round):
            spans = heir.overlay.spans
            await self._check(heir, spans)
            self._checked = round_, spans
            self.phase = max(self.phase, Phase.CHECKED)
        if self._ordered >= Phase.MOVED:
            epochs.complete(heir.home)
            self._node.serve_by(heir)
            self.phase = Phase.MOVED
            log.info("the ring has moved to version %d of its space", heir.space.version)

    async def _copy(self) -> None:
        """Copy what this peer is responsible for to the next ring, as it comes."""
        node, mark, round_ = self._node, START, 0
        spans: Spans = ()
        while True:
            if self.heir is not None and self.phase is not Phase.MOVED:
                if spans != node.overlay.spans or round_ != self._round:
                    spans, mark, self._behind = node.overlay.spans, START, None
                    round_ = self._round
                page = node.copier.page(spans, mark)
                mine = [m for m in _messages(page) if self._lies_in(m, spans)]
                if page.last and not mine:
                    self._behind, mark, self._copied = 0, page.upto, round_
                else:
                    self._behind = len(mine) if page.last else LAG_MAX + len(mine)
                    if await self._put(self.heir, mine):
                        mark = page.upto
                        continue
            await trio.sleep(STEP_SECONDS)

    def _lies_in(self, message: Message, spans: Spans) -> bool:
        lowest = region_of(self._node.space, message).lowest
        return lowest is not None and contains(spans, lowest)

    async def _put(self, heir: Node, messages: Sequence[Message]) -> bool:
        """Store messages in the next ring; says whether all are there, on enough disks."""
        errands = []
        for message in messages:
            try:
                errand = errand_for(heir.space, message.voted_on_by(Voters()))
                errands.append(replace(errand, quiet=True))
            except (ArmsError, SquidError) as error:
                self._misfits[message.id] = f"{message.profile}: {error}"
        try:
            answers = await heir.router.ask(errands, self._node.config.post_seconds)
        except (MeteorError, ArmsError) as error:
            log.info("what moves is not copied yet: %s", error)
            return False
        return all(_is_whole(heir, *pair) for pair in zip(errands, answers, strict=True))

    async def _check(self, heir: Node, spans: Spans) -> None:
        """Take out of the next ring what the old one, which is frozen, has no longer."""
        seq, rows = 0, HANDOVER_ROWS
        while rows == HANDOVER_ROWS:
            page = _rows(heir, seq, HANDOVER_ROWS)
            rows = len(page)
            seq = page[-1].seq if page else seq
            await self._check_rows(heir, [row for row in page if contains(spans, row.identifier)])

    async def _check_rows(self, heir: Node, rows: Sequence[Stored]) -> None:
        node = self._node
        errands = []
        for row in rows:
            at = region_of(node.space, row.message).lowest
            assert at is not None, "what was stored there had a place"
            errands.append(Errand(Check(row.message.id), ((at, at),)))
        answers = await self._ask_old(errands)
        gone = [row for row, answer in zip(rows, answers, strict=True) if not answer.matches]
        deletes = [_delete(heir.space, row.message) for row in gone]
        done = await heir.router.ask(deletes, node.config.post_seconds)
        if not all(_is_whole(heir, *pair) for pair in zip(deletes, done, strict=True)):
            raise MeteorError("what was deleted is not taken out of the next ring yet")

    async def _ask_old(self, errands: Sequence[Errand]) -> list[Answer]:
        answers = await self._node.router.ask(errands, self._node.config.post_seconds)
        if not all(_is_whole(self._node, *pair) for pair in zip(errands, answers, strict=True)):
            raise MeteorError("a part of the ring did not say what it has")
        return answers

    # -- the whole ring ----------------------------------------------------------------------------

    async def _conduct(self) -> None:
        """See to it, while this peer owns the identifier 0, that all go on together."""
        done = False
        while not done:
            await trio.sleep(CONDUCT_SECONDS)
            try:
                if contains(self._node.overlay.spans, 0) and self.heir is not None:
                    done = await self._conduct_step(self.heir)
            except (MeteorError, ArmsError) as error:
                log.info("the move goes on in a moment: %s", error)

    async def _conduct_step(self, heir: Node) -> bool:
        """Take one step; True: all have moved."""
        node, seconds = self._node, self._node.config.post_seconds
        old = await node.service.survey(seconds, self.order())
        new = await heir.service.survey(seconds)
        if not old.reports:
            return False
        moves = [report.get("move") or {} for report in old.reports]
        phases = [int(move.get("phase", 0)) for move in moves]
        self._seen_frozen |= {
            report["address"]
            for report, phase in zip(old.reports, phases, strict=True)
            if phase >= Phase.FROZEN
        }
        self._ordered = max(self._ordered, *map(Phase, phases))
        if any(report["serves_clients"] for report in new.reports):
            self._ordered = Phase.MOVED  # somebody has heard it from all
        self._round = max(self._round, *(int(move.get("round", 0)) for move in moves))
        doubted = {(r["address"], lost) for r in new.reports for lost in r["in_doubt"]}
        if not doubted <= self._doubted:
            self._doubted |= doubted
            self._round += 1
        if not self._is_sure(old) or new.covered != WHOLE:
            return False
        if _addresses(old) != _addresses(new) or any(move.get("misfits") for move in moves):
            return False
        if min(phases) == Phase.MOVED:
            return True
        behind = [int(move["behind"]) for move in moves if move.get("behind") is not None]
        if len(behind) < len(moves) or min(phases) < self._ordered:
            return False
        # What the next ring had may be lost with a peer: then all of it is copied once more.
        if any(move["round"] != self._round for move in moves):
            return False
        caught_up = not any(behind)
        match self._ordered:
            case Phase.NONE | Phase.COPYING if max(behind) <= LAG_MAX:
                self._ordered = Phase.FROZEN if min(phases) == Phase.COPYING else Phase.COPYING
            case Phase.FROZEN if caught_up:
                self._ordered = Phase.CHECKED
            case Phase.CHECKED if caught_up and all(m["checked"] == self._round for m in moves):
                if all(move["still"] for move in moves):
                    self._ordered = Phase.MOVED
                else:
                    self._round += 1  # arcs of the next ring have moved since
        return False

    def _is_sure(self, answer: Answer) -> bool:
        """Say whether all have answered, and nobody is lost who might still change something.

        A peer that was frozen when it was lost has nothing that the others don't have.
        """
        lost = {address for report in answer.reports for address in report["in_doubt"]}
        return answer.covered == WHOLE and lost <= self._seen_frozen


def following_space(space: Space, definition: str) -> Space:
    """Return the space of a definition, if a ring can move to it from this one."""
    try:
        found = Space.from_toml(definition)
    except SpaceError as error:
        raise InputError(f"the next space is not usable: {error}") from error
    problems = []
    if found.name != space.name:
        problems.append(f"its name is {found.name!r}, not {space.name!r}")
    if found.version != space.version + 1:
        problems.append(f"its version is {found.version}, not {space.version + 1}")
    names = [[dimension.name for dimension in one.dimensions] for one in (space, found)]
    if names[0] != names[1]:
        problems.append(f"its dimensions are {', '.join(names[1])}, not {', '.join(names[0])}")
    if problems:
        raise InputError(f"the ring can't move to this space: {'; '.join(problems)}")
    return found


def _delete(space: Space, message: Message) -> Errand:
    """Return the errand that deletes a message by its id, where it lies."""
    is_data = message.stored_as is Kind.DATA
    action = Action.DELETE_DATA if is_data else Action.DELETE_INTEREST
    order = replace(message, action=action, data=b"", modifiers=Modifiers(only=message.id))
    return Errand(order, errand_for(space, message).spans)


def _rows(node: Node, seq: int, limit: int) -> list[Stored]:
    """Return what is stored at a peer after a number."""
    return [read_row(row) for row in node.store.rows_after(node.now_ms(), seq, limit)]


def _messages(page: Page) -> Iterator[Message]:
    """Give the messages of a page one by one."""
    for entry in page.messages:
        if isinstance(entry, Message):
            yield entry
        else:
            yield from map(entry.message, range(len(entry)))


def _is_whole(node: Node, errand: Errand, answer: Answer) -> bool:
    left = missing(errand.members(node.space), errand.spans, answer.covered)
    return not answer.faults and not left


def _addresses(answer: Answer) -> set[str]:
    return {report["address"] for report in answer.reports}
