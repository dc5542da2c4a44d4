"""Keeps a peer's place in the ring: drives the Chord core, and says what it is responsible for.

Who is whose neighbour (Chord) and who is responsible for an arc are two things. A peer that joins
is a neighbour at once, but becomes responsible only when the arc, with all that is stored in it,
has been handed over. Until then its successor keeps answering for the arc.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

import trio

from meteor.config import Config
from meteor.errors import ConfigError, InputError, MeteorError, NoRing, Refused
from meteor.node.errands import read_peer
from meteor.node.identity import NOWHERE
from meteor.node.links import Links
from meteor.node.overlay_wire import (
    neighbours_wire,
    peer_wire,
    read_neighbours,
    read_step,
    step_wire,
)
from meteor.ring.arcs import RING_SIZE, Spans, arc, intersect, subtract, union
from meteor.ring.chord import Chord, IdTaken
from meteor.ring.doubts import Doubts, Lost
from meteor.ring.fingers import Known
from meteor.ring.questions import (
    Answer,
    Ask,
    AskNeighbours,
    AskStep,
    Meet,
    Neighbours,
    Notify,
    Operation,
    Peer,
    Question,
    between,
)
from meteor.transport.frames import Value

log = logging.getLogger("meteor.ring")

JOIN_ATTEMPTS_MAX = 8
"""Joins that a peer tries, when others take the same place at the same time."""

ISOLATED_ROUNDS = 6
"""Rounds without any other peer before this one goes on alone: a short stall of the network must
not break a ring into pieces."""

NOTICES_QUEUED_MAX = 64
"""Notices of other peers that wait; those that find no room are repeated by their senders."""

FARTHER_ROUNDS = 2
"""Rounds for which a predecessor must have stayed before its successor's arc grows back to it."""

T = TypeVar("T")


class Overlay:
    """A peer's view of the ring, kept fresh."""

    def __init__(self, me: Peer, config: Config, links: Links, random: Random) -> None:
        self.me = me
        self.low: int | None = None
        """The arc (low, me] is this peer's responsibility; None: none yet."""
        self.recover: Callable[[Spans], Awaitable[None]] = _recover_nothing
        """Gets the copies of an arc before this peer takes it over."""
        self.lost = Lost()
        """Peers that went without a word, and what was taken over from them."""
        self.past: Spans = ()
        """What this peer was responsible for in its last life, until that is brought home."""
        self.leaving = False
        """On its way out: it no longer offers itself as a neighbour, nor accepts an arc."""
        self.changed = trio.Event()
        """Set, and replaced, whenever a neighbour or the responsibility changed."""
        self._config, self._links, self._random = config, links, random
        self._chord = Chord(me, config.successors, config.fingers)
        self._wake = trio.Event()
        self._rounds_isolated = 0
        self._rounds_farther = 0
        self._heard, self._notices = trio.open_memory_channel[Notify | Meet](NOTICES_QUEUED_MAX)

    # -- what is known -----------------------------------------------------------------------------

    @property
    def spans(self) -> Spans:
        """The part of the ring that this peer is responsible for."""
        return () if self.low is None else arc(self.low, self.me.id)

    @property
    def awaited(self) -> Spans:
        """The part that will be this peer's when its successor has handed it over."""
        predecessor = self.predecessor
        if predecessor is None or self.low is not None:
            return ()
        return subtract(arc(predecessor.id, self.me.id), self.spans)

    @property
    def predecessor(self) -> Peer | None:
        """The peer before this one."""
        return self._chord.predecessor

    @property
    def successor(self) -> Peer | None:
        """The peer after this one; None when it is alone."""
        return self._chord.successors[0] if self._chord.successors else None

    @property
    def successors(self) -> tuple[Peer, ...]:
        """The peers after this one."""
        return self._chord.successors

    @property
    def alone(self) -> bool:
        """True in a ring of one."""
        return not self._chord.successors

    def known(self) -> tuple[Known, ...]:
        """Return every peer known, clockwise from this one."""
        return self._chord.known()

    def neighbours(self) -> Neighbours:
        """Return this peer between its neighbours."""
        return self._chord.neighbours()

    # -- joining and leaving -----------------------------------------------------------------------

    def begin(self, low: int | None = None, known: Sequence[Peer] = ()) -> None:
        """Be the first peer, responsible for everything.

        `low` is where this peer's arc began in its last life, and `known` are those that it knew:
        the others of that ring may be on their way back, and know more.
        """
        log.info("first peer of a new ring, at %s", self.me.address)
        for peer in known:
            if peer.id != NOWHERE:
                self.lost.add(peer, trio.current_time())
        self.low = low
        self._take_over_everything()

    async def join(self, through: str) -> None:
        """Join the ring of the peer at an address; `NoRing` if nobody there answers."""
        contact = await self._ask_neighbours(through)
        self.low = None
        joined = await self._drive(self._chord.join(contact.peer))
        if not joined:
            raise NoRing(f"the ring at {through} did not answer; is it stable?")
        log.info("joined the ring through %s, at place %d", through, self.me.id)
        self._announce()
        self._wake.set()

    async def depart(self) -> None:
        """Tell both neighbours that this peer is gone for good."""
        around = neighbours_wire(self.neighbours())
        neighbours = (self.predecessor, self.successor)
        for peer in dict.fromkeys(peer for peer in neighbours if peer is not None):
            try:
                await self._request(peer.address, "departed", around)
            except MeteorError as error:
                log.info("%s did not hear of the departure: %s", peer.address, error)

    def accept(self, low: int, high: int, doubts: Doubts) -> None:
        """Become responsible for the arc (low, high], which its owner just handed over.

        It ends at this peer, or where this peer's own begins (a predecessor that leaves). One that
        begins nearer than this peer's own, from a peer that another ring had here, changes nothing.
        """
        if self.leaving:
            raise InputError("this peer is leaving the ring and takes over nothing")
        if high not in (self.me.id, self.low):
            raise InputError(f"the arc up to {high} does not adjoin this peer's")
        before = union((*self.spans, *self.past))
        self.lost.handed(before, arc(low, high), doubts, trio.current_time())
        mine, me = self.low, self.me.id
        everything = mine == me
        if mine is None or (not everything and (high == mine or between(low, mine, high))):
            self.low = low
            log.info("responsible for %s of the ring now", _percent(self.spans))
        self._announce()

    def give(self, low: int, upto: int) -> None:
        """Stop being responsible for (low, upto], where this peer's arc begins.

        Unless it begins elsewhere by now: then more than that was handed over meanwhile.
        """
        if self.low == low:
            self.low = upto
            self.lost.hold(self.spans)
            log.info("responsible for %s of the ring now", _percent(self.spans))
        self._announce()

    def retire(self) -> None:
        """Be responsible for nothing, having handed everything over."""
        self.low = None
        self.lost.hold(())
        self._announce()

    def doubts(self, spans: Spans) -> dict[Peer, Spans]:
        """Return what is in doubt of spans, by the lost peer that may know more of it."""
        return self.lost.doubts(intersect(spans, self.spans))

    def forget(self, address: str) -> bool:
        """Wait no longer for a lost peer; says whether this one did."""
        waited = self.lost.forget(address)
        self._announce()
        return waited

    # -- keeping it fresh --------------------------------------------------------------------------

    async def run(self) -> None:
        """Stabilise until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._every, self._stabilise)
            nursery.start_soon(self._every, self._check_predecessor)
            nursery.start_soon(self._every, self._refresh_finger)
            nursery.start_soon(self._every, self._grow)
            async for notice in self._notices:
                if isinstance(notice, Meet):
                    await self.meet(notice.peer)
                else:
                    await self._rectify(notice.peer)

    async def _rectify(self, peer: Peer) -> None:
        before = self.predecessor
        if await self._drive(self._chord.rectify(peer)):
            if before is not None and not between(before.id, peer.id, self.me.id):
                self.lost.add(before, trio.current_time())  # else it would still be the nearer one
            self._announce()
            if before is not None:
                await self._nudge(before)

    async def _nudge(self, peer: Peer) -> None:
        """Tell the peer that was before me that there is another between us now.

        It would find out when it stabilises next; so it does that at once.
        """
        try:
            await self._request(peer.address, "nudge", None)
        except MeteorError as error:
            log.debug("%s was not nudged: %s", peer.address, error)

    async def _every(self, step: Callable[[], Awaitable[None]]) -> None:
        while not self.leaving:
            await step()
            pause = self._config.stabilise_seconds * self._random.uniform(0.8, 1.2)
            with trio.move_on_after(pause):
                await self._wake.wait()
            self._wake = trio.Event()

    async def _stabilise(self) -> None:
        before = self._chord.successors
        for dead in await self._drive(self._chord.stabilise()):
            self.lost.add(dead, trio.current_time())
            log.warning("peer %s does not answer: taken out of the ring", dead.address)
        if self._chord.successors[:1] != before[:1]:
            log.info("successor is %s now", self.successor.address if self.successor else "nobody")
        if self._chord.successors != before:
            self._announce()
        if self.leaving:
            return
        self._rounds_isolated = self._rounds_isolated + 1 if self._chord.isolated else 0
        if self._rounds_isolated >= ISOLATED_ROUNDS:
            self._go_on_alone()

    def _go_on_alone(self) -> None:
        """Become a ring of one when every other peer is gone: somebody must serve what is here."""
        self._rounds_isolated = 0
        log.warning("no other peer answers: this one goes on as a ring of one")
        self._chord.reset()
        self._take_over_everything()

    def _take_over_everything(self) -> None:
        if self.low != self.me.id and self.lost.peers:
            upto = self.me.id if self.low is None else self.low
            self.lost.take_over(self.me.id, upto, trio.current_time())
        self.low = self.me.id
        self._announce()

    async def _check_predecessor(self) -> None:
        dead = await self._drive(self._chord.check_predecessor())
        if dead is not None:
            self.lost.add(dead, trio.current_time())
            log.warning("predecessor %s does not answer", dead.address)
            self._announce()

    async def _refresh_finger(self) -> None:
        await self._drive(self._chord.refresh_finger())

    async def _grow(self) -> None:
        """Take over the arc of a predecessor that is gone: the one before it is my neighbour now.

        A predecessor that lies farther back than my arc may also be one that has not heard yet of
        a newer peer between us. So it must stay for some rounds, and nobody may be found at the
        place where my arc begins.
        """
        predecessor, low = self.predecessor, self.low
        if (
            predecessor is None
            or low is None
            or predecessor.id == low
            or not between(predecessor.id, low, self.me.id)
        ):
            self._rounds_farther = 0
            return
        self._rounds_farther += 1
        if self._rounds_farther < FARTHER_ROUNDS or await self._lives(low):
            return
        added = arc(predecessor.id, low)
        await self.recover(added)
        if (predecessor, low) == (self.predecessor, self.low) and not self.leaving:
            self.lost.take_over(predecessor.id, low, trio.current_time())
            self.low = predecessor.id
            log.warning("took over %s of the ring from a peer that is gone", _percent(added))
            self._announce()

    async def _lives(self, place: int) -> bool:
        """Say whether a peer at exactly this place answers."""
        before = await self.lookup(place)
        for peer in before.successors[:1] if before is not None else ():
            if peer.id == place:
                return await self._ask(Ask(peer, AskNeighbours())) is not None
        return False

    async def lookup(self, identifier: int) -> Neighbours | None:
        """Return the peer before an identifier, whose first successor is the owner."""
        return await self._drive(self._chord.lookup(identifier))

    async def meet(self, other: Peer) -> None:
        """Take in a peer of another ring, or send it on to where it belongs."""
        before = self._chord.successors
        await self._drive(self._chord.meet(other))
        if self._chord.successors != before:
            log.info("met %s, which had another place or another ring", other.address)
            self._announce()
            self._wake.set()

    async def send_to_meet(self, at: Peer, other: Peer) -> None:
        """Have a peer of this ring meet one of another."""
        if at == self.me:
            await self.meet(other)
        else:
            await self._ask(Ask(at, Meet(other)))

    def suspect(self, peer: Peer) -> None:
        """Hear that a peer could not be reached: stop using it as a finger, and look at once."""
        self._chord.fingers.forget(peer)
        if peer in (self.successor, self.predecessor):
            self._wake.set()

    def _announce(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    # -- asking and answering ----------------------------------------------------------------------

    def answer(self, method: str, body: Value) -> Value:
        """Answer another peer's question about the ring."""
        match method, body:
            case "neighbours", _:
                return neighbours_wire(self.neighbours())
            case "step", int() as identifier if 0 <= identifier < RING_SIZE:
                return step_wire(self._chord.step(identifier))
            case (("notify" | "meet"), [int(), str()]):
                peer = read_peer(body)
                try:
                    self._heard.send_nowait(Notify(peer) if method == "notify" else Meet(peer))
                except trio.WouldBlock:
                    log.debug("a notice was passed over: there are many, and they are repeated")
                return True
            case "nudge", _:
                self._wake.set()
                return True
            case "departed", _:
                gone = read_neighbours(body)
                self._chord.departed(gone.peer, gone)
                self.lost.gone(gone.peer)
                log.info("peer %s has left the ring", gone.peer.address)
                if self._chord.successors == () and self.low is not None:
                    self.low = self.me.id
                self._announce()
                return True
            case _:
                raise InputError(f"no answer to {method!r} like this")

    async def _drive(self, operation: Operation[T]) -> T:
        """Carry out a Chord operation by asking other peers."""
        try:
            ask = next(operation)
            while True:
                ask = operation.send(await self._ask(ask))
        except StopIteration as stop:
            value: T = stop.value
            return value
        except IdTaken as error:
            raise ConfigError(str(error)) from error

    async def _ask(self, ask: Ask) -> Answer | None:
        """Put a question to a peer; None when it, and nobody else at its address, answers."""
        try:
            answer = await self._put(ask.peer.address, ask.question)
        except MeteorError as error:
            log.debug("%s did not answer: %s", ask.peer.address, error)
            return None
        identity = self._links.identity(ask.peer.address)
        return answer if identity in (None, ask.peer.id) else None

    async def _put(self, address: str, question: Question) -> Answer:
        match question:
            case AskNeighbours():
                return read_neighbours(await self._request(address, "neighbours", None))
            case AskStep(identifier):
                return read_step(await self._request(address, "step", identifier))
            case Notify(peer):
                return bool(await self._request(address, "notify", peer_wire(peer)))
            case Meet(peer):
                return bool(await self._request(address, "meet", peer_wire(peer)))

    async def ring_at(self, address: str) -> Neighbours | None:
        """Return what the peer at an address says of its ring; None when there is none.

        Raises `Refused` when there is one, but not for us.
        """
        try:
            return await self._ask_neighbours(address)
        except Refused:
            raise
        except MeteorError as error:
            log.debug("%s: %s", address, error)
            return None

    async def _ask_neighbours(self, address: str) -> Neighbours:
        return read_neighbours(await self._request(address, "neighbours", None))

    async def _request(self, address: str, method: str, body: Value) -> Value:
        return await self._links.request(address, method, body, self._config.request_seconds)


async def _recover_nothing(spans: Spans) -> None:
    """Where there are no copies, take over with what is here."""


def _percent(spans: Spans) -> str:
    return f"{sum(high - low + 1 for low, high in spans) / RING_SIZE:.2%}"
