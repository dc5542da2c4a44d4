"""Voting: the peers that an item was written to decide who takes it, once and for all.

The peer that is responsible for the item leads (`arms.ballots` has the rules). It asks the voters,
wherever they are by now; those that were lost, or are cut off, don't answer. With a majority the
item goes to one taker, and no other majority can ever give it to another. Without one it is
refused. When peers have come and gone, the voters of what this peer is responsible for are replaced
by those that have the copies now, which takes a majority of the old ones.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

import trio

from arms.ballots import (
    Ballot,
    Decided,
    Moved,
    Overtaken,
    Propose,
    Unreached,
    Voted,
    accepted,
    moved_to,
    promised,
    taken_by,
)
from arms.errors import ArmsError
from arms.limits import ROUNDS_MAX
from arms.message import Message, Voters
from arms.rows import Stored
from arms.store import Store
from arms.writes import Assign, Take, Vote
from meteor.config import Config
from meteor.errors import InputError, MeteorError
from meteor.limits import RETURN_SECONDS, VOTES_PER_REQUEST_MAX
from meteor.node.links import Links
from meteor.node.overlay import Overlay
from meteor.node.replicas import Replicas
from meteor.node.voting_wire import read_vote, read_voted, vote_wire, voted_wire
from meteor.node.writer import Writer
from meteor.ring.arcs import Spans, subtract, union
from meteor.transport.frames import Value

log = logging.getLogger("meteor.ring")

ATTEMPTS_MAX = 6
"""Ballots on one item before it is left for another time: others lead too, or voters change."""

PAUSE_SECONDS = 0.05
"""The longest pause before the next ballot when two peers lead; drawn, so that they part."""

RENEW_SECONDS = 2.0
"""How often a peer looks for items whose voters are not those that have the copies."""

ROWS_LOOKED_AT = 2_000
"""Items that are looked at in one go: a few milliseconds."""

RUNS_WRITTEN_MAX = 64
"""Runs of items that are known to have the right voters; those of earlier ones are looked at."""

LOOKS_AT_ONCE = 5
"""How many times that for a report."""


LOOK_AROUND_SECONDS = 10.0
"""How often a peer asks all others, at most, whether they miss one: while repeated posts wait."""


@dataclass(frozen=True, slots=True)
class Motion:
    """An item to be voted on, and what its leader wants."""

    id: str
    voters: Voters
    wanted: str
    expires_ms: int


Outcome = Decided | Moved | Overtaken | Unreached


@dataclass(frozen=True, slots=True)
class Doubled:
    """The item may be elsewhere too, with voters that can't be asked now."""


Verdict = Decided | Unreached | Doubled


class Voting:
    """Leads ballots, and takes part in those of others."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        replicas: Replicas,
        overlay: Overlay,
        links: Links,
        config: Config,
        clock: Callable[[], int],
        random: Random,
    ) -> None:
        self._store, self._writer, self._replicas = store, writer, replicas
        self._overlay, self._links, self._config = overlay, links, config
        self._clock, self._random = clock, random
        self._leading = trio.Lock()
        self._round = 0
        self._looked_for: tuple[str, Spans] = ("", ())
        self._looked = 0  # the number of the last item that was looked at for stale voters
        self._wrote: tuple[str, Spans] = ("", ())  # numbers of items that had these voters at once
        self._passed_over = False  # some had stale voters that could not be replaced
        self.whole: Callable[[], Awaitable[bool]] = _nobody_knows
        """Says whether nobody in the ring misses a peer."""
        self._whole_ms = 0  # when nobody did
        self._asked = -LOOK_AROUND_SECONDS
        self._waiting: Stored | None = None  # the first item that may have no voters yet

    # -- leading -----------------------------------------------------------------------------------

    async def take(self, items: Sequence[tuple[Message, str]]) -> list[Verdict]:
        """Decide for each item and its would-be taker who has it; at most one ever does."""
        async with self._leading:  # takers that come here at once need not outbid each other
            return await self._take(items)

    async def _take(self, items: Sequence[tuple[Message, str]]) -> list[Verdict]:
        motions = {
            motion.id: motion for motion in await self._motions([message for message, _ in items])
        }
        for message, taker in items:
            motions[message.id] = replace(motions[message.id], wanted=taken_by(taker))
        outcomes: dict[str, Verdict] = {
            id_: Doubled() for id_, motion in motions.items() if not motion.voters.peers
        }
        for attempt in range(ATTEMPTS_MAX):
            undecided = [motion for id_, motion in motions.items() if id_ not in outcomes]
            if not undecided:
                break
            if attempt:
                await trio.sleep(self._random.uniform(0, PAUSE_SECONDS))
            for id_, outcome in (await self._ballot(undecided)).items():
                match outcome:
                    case Moved(voters):
                        motions[id_] = replace(motions[id_], voters=voters)
                    case Decided() | Unreached():
                        outcomes[id_] = outcome
        return [outcomes.get(message.id, Unreached(0, 0)) for message, _ in items]

    async def _motions(self, messages: Sequence[Message]) -> list[Motion]:
        """Return motions on items, with their voters; those that have none get theirs first.

        Items of an older version have none, what lay in another peer's arc when it was stored, and
        what may be elsewhere too, with voters there: that gets none while it may.
        """
        found = {m.id: self._store.find(self._clock(), m.id) for m in messages}
        without = [e for e in found.values() if e is not None and not e.message.header.voters.peers]
        if ids := tuple(entry.message.id for entry in without if self._may_have_voters(entry)):
            await self._writer.commit([Assign(ids, Voters(0, self._replicas.holders))])
            await self._replicas.confirmed()
            found |= {id_: self._store.find(self._clock(), id_) for id_ in ids}
        motions = []
        for message in messages:
            stored = found[message.id]
            header = (message if stored is None else stored.message).header
            motions.append(Motion(header.id, header.voters, "", header.expires_ms))
        return motions

    def _may_have_voters(self, entry: Stored) -> bool:
        """Say whether an item can't be elsewhere, with voters there.

        It was posted before it came here, perhaps into a part of the ring that was cut off. A while
        later the cut was noticed by all who are next to it, or had healed.
        """
        return entry.stored_ms + RETURN_SECONDS * 1000 <= self._whole_ms

    @property
    def misses_somebody(self) -> bool:
        """Whether this peer misses another, or did a while ago."""
        return self._overlay.lost.missing(trio.current_time())

    def may_be_elsewhere(self, identifier: int) -> bool:
        """Say whether what lies at a place may be elsewhere too, unknown here."""
        return self._overlay.lost.may_be_elsewhere(identifier, trio.current_time())

    async def _ballot(self, motions: Sequence[Motion]) -> dict[str, Outcome]:
        """Hold one ballot on each item."""
        self._round += 1
        ballot = (self._round, self._overlay.me.id)
        outcomes: dict[str, Outcome] = {}
        proposed: dict[str, tuple[Motion, str]] = {}
        votes = await self._ask([(motion, None) for motion in motions], ballot)
        for motion in motions:
            verdict = promised(motion.voters, ballot, motion.wanted, votes[motion.id])
            if isinstance(verdict, Propose):
                proposed[motion.id] = (motion, verdict.value)
            else:
                outcomes[motion.id] = verdict
        votes = await self._ask(list(proposed.values()), ballot)
        for id_, (motion, value) in proposed.items():
            outcomes[id_] = accepted(motion.voters, ballot, value, votes[id_])
        latest = [o.round for o in outcomes.values() if isinstance(o, Overtaken)]
        self._round = min(max([self._round, *latest]), ROUNDS_MAX)
        return outcomes

    async def _ask(
        self, questions: Sequence[tuple[Motion, str | None]], ballot: Ballot
    ) -> dict[str, list[Voted]]:
        """Ask every voter about the items that it votes on; those that answer have voted."""
        votes: dict[str, list[Voted]] = {motion.id: [] for motion, _ in questions}
        ballots: dict[int, list[Vote]] = {}
        for motion, value in questions:
            vote = Vote(motion.id, motion.voters, ballot, value, motion.expires_ms)
            for place in motion.voters.peers:
                ballots.setdefault(place, []).append(vote)

        async def ask(place: int, asked: list[Vote]) -> None:
            try:
                answers = await self._put(place, asked)
            except (MeteorError, ArmsError) as error:
                log.debug("the voter at %d does not vote: %s", place, error)
                return
            for vote, answer in zip(asked, answers, strict=True):
                votes[vote.id].append(answer)

        async with trio.open_nursery() as nursery:
            for place, asked in ballots.items():
                nursery.start_soon(ask, place, asked)
        return votes

    async def _put(self, place: int, asked: list[Vote]) -> list[Voted]:
        if place == self._overlay.me.id:
            return await self._vote(asked)
        address = await self._address(place)
        if address is None:
            raise MeteorError("nobody is there")
        answers: list[Voted] = []
        for i in range(0, len(asked), VOTES_PER_REQUEST_MAX):
            body = [vote_wire(vote) for vote in asked[i : i + VOTES_PER_REQUEST_MAX]]
            reply = await self._links.request(
                address, "vote", [place, body], self._config.request_seconds
            )
            if not isinstance(reply, list) or len(reply) != len(body):
                raise InputError("what came are no votes")
            answers += map(read_voted, reply)
        return answers

    async def _address(self, place: int) -> str | None:
        """Return where the peer with a place is, if it is in the ring."""
        for known in self._overlay.known():
            if known.peer.id == place:
                return known.peer.address
        before = await self._overlay.lookup(place)
        after = before.successors[0] if before is not None and before.successors else None
        return after.address if after is not None and after.id == place else None

    # -- who votes ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Replace the voters of what this peer is responsible for when its copies have moved."""
        while True:
            await trio.sleep(RENEW_SECONDS)
            try:
                await self._look_around()
                while self._replicas.settled and self._unlooked:
                    stale = self._look()
                    if stale and not await self._replace(stale):
                        self._pass_over(stale)
                    await trio.lowlevel.checkpoint()
            except (MeteorError, ArmsError) as error:
                log.info("voters were not replaced: %s; it will be tried again", error)
            if self._passed_over:
                self._looked, self._passed_over = 0, False

    async def _look_around(self) -> None:
        """See whether the ring is whole, if an item has waited for that for long enough."""
        now_ms, now = self._clock(), trio.current_time()
        waiting = self._waiting
        if waiting is None or waiting.stored_ms + RETURN_SECONDS * 1000 > now_ms:
            return
        if now >= self._asked + LOOK_AROUND_SECONDS and not self.misses_somebody:
            self._asked = now
            if await self.whole():
                self._whole_ms = now_ms

    @property
    def renewing(self) -> bool:
        """Whether some items are still voted on by peers that need not have them any more."""
        for _ in range(LOOKS_AT_ONCE):
            if self._unlooked and self._look():
                return True
        return self._unlooked or self._passed_over

    @property
    def _unlooked(self) -> bool:
        """Whether there are items in this peer's arc whose voters were not looked at.

        All that is written here has the right ones, so what was looked at need not be again, until
        this peer's arc or its copies move.
        """
        wanted = (str(Voters(0, self._replicas.holders)), self._overlay.spans)
        if wanted != self._looked_for:
            self._looked_for, self._looked, self._passed_over = wanted, 0, False
            self._waiting = None
        if self._waiting is not None and self._may_have_voters(self._waiting):
            self._looked = min(self._looked, self._waiting.seq - 1)
            self._waiting = None
        return self._looked < self._store.newest()[0]

    def _look(self) -> list[Stored]:
        """Look at some more items; return those whose voters are not those that have the copies."""
        newest = self._store.newest()[0]
        voters, right = self._wrote
        left = subtract(
            ((self._looked + 1, newest),), right if voters == self._looked_for[0] else ()
        )
        if not left:
            self._looked = newest
            return []
        (first, last), *_ = left
        upto = min(first + ROWS_LOOKED_AT - 1, last)
        found = self._store.voted_otherwise(
            *self._looked_for, first - 1, upto, VOTES_PER_REQUEST_MAX
        )
        stale = [e for e in found if e.message.header.voters.peers or self._may_have_voters(e)]
        waiting = [entry for entry in found if entry not in stale]
        if waiting and self._waiting is None:
            self._waiting = waiting[0]
        if not stale:
            full = len(found) == VOTES_PER_REQUEST_MAX
            self._looked = max(entry.seq for entry in found) if full else upto
        return stale

    def wrote(self, seqs: range, voters: Voters) -> None:
        """Hear of items that were written with their voters: they need not be looked at."""
        if seqs:
            known, right = self._wrote
            kept = right if known == str(voters) else ()
            joined = union([*kept, (seqs.start, seqs.stop - 1)])
            self._wrote = str(voters), joined[-RUNS_WRITTEN_MAX:]

    def _pass_over(self, stale: Sequence[Stored]) -> None:
        """Go on behind items whose voters can't be replaced now; they come again in a while."""
        self._looked, self._passed_over = max(entry.seq for entry in stale), True

    async def _replace(self, stale: Sequence[Stored]) -> bool:
        """Replace the voters of items; False when it can't be done for any of them."""
        current = moved_to(Voters(0, self._replicas.holders))
        motions = await self._motions([entry.message for entry in stale])
        progress = False
        async with self._leading:
            outcomes = await self._ballot(
                [replace(m, wanted=current) for m in motions if m.voters.peers]
            )
            for id_, outcome in outcomes.items():
                progress |= await self._settle(id_, outcome)
        return progress

    async def _settle(self, id_: str, outcome: Outcome) -> bool:
        """Write down what was decided about an item; says whether anything was."""
        match outcome:
            case Moved(voters):
                (count,) = await self._writer.commit([Assign((id_,), voters)])
                return bool(count)
            case Decided(taker) if taker:
                return bool(await self.bury(id_, taker))
            case _:
                return False

    async def bury(self, id_: str, taker: str) -> int:
        """Remove an item that has gone to a taker; says whether it was to this one."""
        stored = self._store.find(self._clock(), id_)
        credential = "" if stored is None else stored.message.header.credential
        (taken,) = await self._writer.commit([Take(id_, taker, credential)])
        return taken

    # -- taking part -------------------------------------------------------------------------------

    async def answer(self, body: Value) -> Value:
        """Vote, as another peer asks; the votes are on disk when it hears of them."""
        match body:
            case [int() as place, list() as wires] if len(wires) <= VOTES_PER_REQUEST_MAX:
                if place != self._overlay.me.id:
                    raise InputError(f"the voter at {place} is not here")
                return [voted_wire(voted) for voted in await self._vote(map(read_vote, wires))]
            case _:
                raise InputError("what came is no ballot")

    async def _vote(self, asked: Iterable[Vote]) -> list[Voted]:
        votes = list(asked)
        granted = await self._writer.commit(votes)
        return [
            replace(self._store.voted(vote.id), granted=bool(done))
            for vote, done in zip(votes, granted, strict=True)
        ]


async def _nobody_knows() -> bool:
    """Without a ring around it a peer can't tell."""
    return False
