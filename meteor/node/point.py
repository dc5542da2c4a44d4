"""The rendezvous point: carries errands out on this peer's own store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from arms.audience import Watchers
from arms.ballots import Decided, Unreached
from arms.batch import Batch
from arms.errors import ArmsError, StoreError
from arms.limits import NOTES_PER_POST_MAX
from arms.message import Action, Message, Voters, region_of, weight
from arms.notes import Due
from arms.rendezvous import Effect, Notification, Place, Rendezvous, counting
from arms.writes import PutBatch, Sweep
from arms.writes import Take as TakeWrite
from meteor.errors import MeteorError
from meteor.limits import PAGE_BYTES, RETURN_SECONDS
from meteor.node.errands import Answer, Check, Errand, Forget, Miss, Survey, Take
from meteor.node.replicas import Replicas
from meteor.node.voting import Doubled, Voting
from meteor.node.writer import Writer
from meteor.notifications import Told, told_of
from meteor.ring.arcs import TOP, contains, intersect, subtract
from meteor.transport.frames import Value


@dataclass(slots=True)
class Placed:
    """What came of a batch, or of a part of it: these rows of it."""

    rows: Sequence[int] = ()
    copies: int = 0
    matches: list[int] = field(default_factory=list)
    notes: dict[int, list[Due]] = field(default_factory=dict)
    """What has to be in inboxes before the sender is told that its post was done."""
    fault: str = ""
    """Why nothing came of it."""


ROWS_PER_SLICE = 500
"""Rows that a retrieval looks at before other tasks have a turn: about 10 ms."""

SITES_PER_SLICE = 512
"""Data that are matched at once before other tasks have a turn: a few milliseconds."""

TOO_MANY_NOTES = (
    f"it is stored, but more than {NOTES_PER_POST_MAX} reliable watches match it, and only so many "
    "are told of one post"
)

SWEEP_ROWS = 100
"""Expired rows removed in one transaction, so that posts never wait long for it."""


Tell = Callable[[Iterable[tuple[Told, Mapping[str, Sequence[tuple[str, str]]]]]], None]
"""Sends messages to watchers, (client, watch) each, by the peer that they are reached through."""


class RendezvousPoint:
    """A peer's store, and what happens at it."""

    def __init__(
        self,
        rendezvous: Rendezvous,
        writer: Writer,
        replicas: Replicas,
        voting: Voting,
        clock: Callable[[], int],
        notify: Callable[[Sequence[Notification]], None],
        tell: Tell,
        report: Callable[[], dict[str, Any]],
        forget: Callable[[str], bool],
    ) -> None:
        self._rendezvous, self._writer, self._replicas = rendezvous, writer, replicas
        self._voting, self._clock = voting, clock
        self._notify, self._tell, self._report, self._forget = notify, tell, report, forget
        self.frozen = False
        """Nothing is changed, found or told any more: the ring moves on to its next space."""
        self.obey: Callable[[Value], None] = lambda order: None
        """Takes the order that came with a survey; never waits."""

    async def carry_out(self, errands: Sequence[Errand], who: str) -> list[Answer]:
        """Carry errands out for their spans, with one commit for all that they write."""
        if self.frozen:
            return [self._look(errand) for errand in errands]
        posts = [i for i, errand in enumerate(errands) if _is_post(errand)]
        answers: list[Answer] = [Answer()] * len(errands)
        handled = await self._post([errands[i] for i in posts], who)
        for i, answer in zip(posts, handled, strict=True):
            answers[i] = answer
        takes = [i for i, errand in enumerate(errands) if isinstance(errand.task, Take)]
        taken = await self._take([errands[i] for i in takes], who)
        for i, answer in zip(takes, taken, strict=True):
            answers[i] = answer
        for i, errand in enumerate(errands):
            if errand.traced:
                answers[i] = Answer(covered=errand.spans)
                continue
            match errand.task:
                case Message(action=Action.RETRIEVE):
                    answers[i] = await self._retrieve(errand, errand.task)
                case Survey() | Check() | Forget() | Miss():
                    answers[i] = self._look(errand)
                case _:
                    pass  # a post or a take, done above
        return answers

    def _look(self, errand: Errand) -> Answer:
        """Answer what changes nothing; to anything else it is as if nobody were here."""
        match errand.task:
            case Survey(order):
                self.obey(order)
                return Answer(covered=errand.spans, reports=[self._report()])
            case Check(id_):
                there = self._rendezvous.store.find(self._clock(), id_) is not None
                return Answer(covered=errand.spans, matches=int(there))
            case Forget(address):
                return Answer(covered=errand.spans, matches=int(self._forget(address)))
            case Miss():
                return Answer(covered=errand.spans, matches=int(self._voting.misses_somebody))
            case _:
                return Answer()

    async def store(self, batch: Batch, who: str) -> Placed:
        """Store a batch of data that all lie in this peer's arc, and tell who watches for them.

        What has no time to live is not stored: those who watch now are told, and that is all.
        """
        now_ms = self._clock()
        kept = batch
        places: Sequence[int] = range(len(batch))
        if min(batch.expires_ms) <= now_ms:
            places = [i for i, end in enumerate(batch.expires_ms) if end > now_ms]
            kept = batch.part(places)
        copies, write = 0, PutBatch(kept)
        try:
            if len(kept):
                kept.voters = Voters(0, self._replicas.holders)
                await self._writer.commit([write])
                self._voting.wrote(write.seqs, kept.voters)
                copies = await self._replicas.confirmed()
            ours: list[Watchers] = []
            for begin in range(0, len(batch), SITES_PER_SLICE):
                if begin:
                    await trio.lowlevel.checkpoint()
                some = batch.sites[begin : begin + SITES_PER_SLICE]
                ours += self._rendezvous.watchers(self._clock(), some)
        except (ArmsError, MeteorError) as error:
            return Placed(fault=f"{who}: {error}")
        return self._react(batch, ours, {places[row] for row in write.repeated}, copies)

    def passes_on(self, batch: Batch) -> bool:
        """Say whether all there is to do is to tell who watches, and that soon done."""
        return 0 < len(batch) <= SITES_PER_SLICE and max(batch.expires_ms) <= self._clock()

    def pass_on(self, batch: Batch, who: str) -> Placed:
        """Tell who watches for data that have no time to live, and that is all."""
        try:
            ours = self._rendezvous.watchers(self._clock(), batch.sites)
        except ArmsError as error:
            return Placed(fault=f"{who}: {error}")
        return self._react(batch, ours, (), 0)

    def _react(
        self, batch: Batch, ours: Sequence[Watchers], repeated: Collection[int], copies: int
    ) -> Placed:
        """Tell who watches, of all but what was repeated."""
        placed = Placed(copies=copies, matches=[theirs.count for theirs in ours])
        for row in repeated:
            placed.matches[row] = 0
        news = []
        for theirs, rows in _alike(ours):
            placed.notes |= dict.fromkeys(rows, theirs.notes) if theirs.notes else {}
            new = [row for row in rows if row not in repeated] if repeated else rows
            if theirs.ways and new:
                items = told_of(batch if len(new) == len(batch) else batch.part(new))
                news.append((items, theirs.ways))
        self._tell(news)
        return placed

    async def sweep(self) -> int:
        """Remove a batch of what has expired; returns how many messages went."""
        (count,) = await self._writer.commit([Sweep(SWEEP_ROWS)])
        return count

    async def _post(self, errands: Sequence[Errand], who: str) -> list[Answer]:
        answers: list[Answer] = [Answer()] * len(errands)
        left: dict[int, Place | None] = dict.fromkeys(range(len(errands)))
        messages = [self._stamped(errand) for errand in errands]
        try:
            while left:
                now_ms = self._clock()
                plans = {
                    i: self._rendezvous.plan(now_ms, messages[i], errands[i].spans, since)
                    for i, since in left.items()
                }
                written = iter(
                    await self._writer.commit([w for plan in plans.values() for w in plan.writes])
                )
                wrote = any(plan.writes for plan in plans.values())
                copies = await self._replicas.confirmed() if wrote else 0
                for i, plan in plans.items():
                    results = [next(written) for _ in plan.writes]
                    effect = self._rendezvous.react(self._clock(), plan, results)
                    if errands[i].quiet:
                        effect = Effect(copies=effect.copies)
                    self._notify(effect.notifications)
                    answers[i] = Answer(
                        covered=errands[i].spans,
                        matches=answers[i].matches + effect.matches,
                        copies=copies if effect.copies else 0,
                        notes=list(effect.notes[:NOTES_PER_POST_MAX]),
                    )
                    if len(effect.notes) > NOTES_PER_POST_MAX:
                        answers[i].faults.append(f"{who}: {TOO_MANY_NOTES}")
                    if effect.rest is not None:
                        answers[i].matches += await self._count(errands[i], effect.rest)
                left = {i: plan.rest for i, plan in plans.items() if plan.rest is not None}
        except (StoreError, MeteorError) as error:
            for i in left:
                answers[i] = Answer(faults=[f"{who}: {error}"])
        return answers

    async def _count(self, errand: Errand, since: Place) -> int:
        """Count the rest of what a new interest finds."""
        at, id_ = since
        spans = intersect(errand.spans, ((at, TOP),))
        rest = replace(errand, spans=spans, resume={at: id_})
        return (await self._retrieve(rest, counting(_message(errand)))).matches

    async def _retrieve(self, errand: Errand, message: Message) -> Answer:
        """Walk the store in slices until the errand's bytes are used up or all is seen."""
        answer = Answer(covered=errand.spans)
        spans, resume, left = errand.spans, dict(errand.resume), min(errand.bytes_max, PAGE_BYTES)
        while True:
            now_ms = self._clock()
            page = self._rendezvous.page(now_ms, message, spans, resume, left, ROWS_PER_SLICE)
            answer.found += page.found
            answer.matches += page.matches
            answer.aggregate = answer.aggregate.merge(page.aggregate)
            limit = message.modifiers.limit
            if page.resume is None or (limit is not None and answer.matches >= limit):
                return answer
            at, id_ = page.resume
            resume = {at: id_} | {key: value for key, value in resume.items() if key > at}
            spans = intersect(errand.spans, ((at, errand.spans[-1][1]),))
            left -= sum(weight(found.message) for found in page.found)
            if left <= 0:
                answer.covered = subtract(errand.spans, spans)
                answer.resume = {at: id_}
                return answer
            await trio.lowlevel.checkpoint()

    def _stamped(self, errand: Errand) -> Message:
        """Return the message with its voters, if this peer is the one that is asked for it.

        What was asked before may have been stored elsewhere, with voters there; two majorities
        could give it to two takers. So it has none here, until there is no elsewhere.
        """
        message = _message(errand)
        known = bool(message.header.voters.peers)
        if message.action is not Action.STORE or known or errand.repeated:
            return message
        lowest = region_of(self._rendezvous.space, message).lowest
        if lowest is None or not contains(errand.spans, lowest):
            return message
        return message.voted_on_by(Voters(0, self._replicas.holders))

    def _may_be_taken(self, errand: Errand, id_: str) -> bool:
        """Say whether an item that was asked for before may be gone without a trace here."""
        trace = self._rendezvous.store.voted(id_).taker
        return trace is None and self._voting.may_be_elsewhere(errand.spans[0][0])

    async def _take(self, errands: Sequence[Errand], who: str) -> list[Answer]:
        """Give items to takers: each is voted on where its lowest identifier lies, else removed."""
        answers = [Answer(covered=errand.spans) for errand in errands]
        if not errands:
            return answers
        motions: dict[int, tuple[Message, str]] = {}
        try:
            for i, errand in enumerate(errands):
                task = errand.task
                assert isinstance(task, Take)
                stored = self._rendezvous.store.find(self._clock(), task.id)
                if stored is None or not contains(errand.spans, stored.identifier):
                    write = TakeWrite(task.id, task.taker, task.credential)
                    (answers[i].matches,) = await self._writer.commit([write])
                    if errand.repeated and self._may_be_taken(errand, task.id):
                        answers[i].faults.append(f"{who}: {MAY_BE_TAKEN}")
                elif stored.message.header.credential in ("", task.credential):
                    motions[i] = (stored.message, task.taker)
            outcomes = await self._voting.take(list(motions.values()))
            for (i, (message, taker)), outcome in zip(motions.items(), outcomes, strict=True):
                if isinstance(outcome, Decided):
                    await self._voting.bury(message.id, outcome.taker)
                    answers[i].matches = int(outcome.taker == taker)
                else:
                    answers[i].faults.append(f"{who}: {_refusal(outcome)}")
            if motions:
                await self._replicas.confirmed()
        except (ArmsError, MeteorError) as error:
            return [Answer(faults=[f"{who}: {error}"]) for _ in errands]
        return answers


MAY_BE_TAKEN = (
    "an item is not here, and may have been given to you before a peer went out of reach: nobody "
    "can tell until it is back"
)


def _refusal(outcome: Unreached | Doubled) -> str:
    if isinstance(outcome, Doubled):
        return (
            "an item is not given away: its post was repeated, so it may be elsewhere too, and be "
            f"given to somebody else there; try again when no peer is missing, after "
            f"{RETURN_SECONDS:.0f} seconds"
        )
    if not outcome.voters:
        return "others try to take the same items; try again"
    return (
        f"an item is not given away: only {outcome.reached} of the {outcome.voters} peers that "
        "have a say in who gets it can be reached, and the others may give it to somebody else; "
        "try again when they are back"
    )


def _alike(watchers: Sequence[Watchers]) -> Iterable[tuple[Watchers, Sequence[int]]]:
    """Return the rows that each has; nearly always one has all of them."""
    if len({*watchers}) == 1:
        return [(watchers[0], range(len(watchers)))]
    rows: dict[Watchers, list[int]] = {}
    for row, theirs in enumerate(watchers):
        rows.setdefault(theirs, []).append(row)
    return rows.items()


def _is_post(errand: Errand) -> bool:
    task = errand.task
    return isinstance(task, Message) and task.action is not Action.RETRIEVE and not errand.traced


def _message(errand: Errand) -> Message:
    assert isinstance(errand.task, Message)
    return errand.task
