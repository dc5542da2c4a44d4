"""Keeps a peer's place in the ring: drives the Chord core, and says what it is responsible for.

Who is whose neighbour (Chord) and who is responsible for an arc are two things. A peer that joins
is a neighbour at once, but becomes responsible only when the arc, with all that is stored in it,
has been handed over. Until then its successor keeps answering for the arc.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import trio

from meteor.config import Config
from meteor.errors import ConfigError, InputError, MeteorError, NoRing, Refused
from meteor.node.errands import read_peer
from meteor.node.links import Links
from meteor.ring.arcs import RING_SIZE, Spans, arc, subtract
from meteor.ring.chord import Chord, IdTaken
from meteor.ring.fingers import Known
from meteor.ring.questions import (
    Answer,
    Ask,
    AskNeighbours,
    AskStep,
    Forward,
    Found,
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
        self.leaving = False
        """On its way out: it no longer offers itself as a neighbour, nor accepts an arc."""
        self.changed = trio.Event()
        """Set, and replaced, whenever a neighbour or the responsibility changed."""
        self._config, self._links, self._random = config, links, random
        self._chord = Chord(me, config.successors, config.fingers)
        self._wake = trio.Event()
        self._rounds_isolated = 0
        self._rounds_farther = 0
        self._heard: trio.MemorySendChannel[Peer]
        self._notices: trio.MemoryReceiveChannel[Peer]
        self._heard, self._notices = trio.open_memory_channel(64)

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

    def begin(self) -> None:
        """Be the first peer, responsible for everything."""
        self.low = self.me.id
        log.info("first peer of a new ring, at %s", self.me.address)
        self._announce()

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
        around = _neighbours_wire(self.neighbours())
        neighbours = {peer for peer in (self.predecessor, self.successor) if peer is not None}
        for peer in neighbours:
            try:
                await self._request(peer.address, "departed", around)
            except MeteorError as error:
                log.info("%s did not hear of the departure: %s", peer.address, error)

    def accept(self, low: int, high: int) -> None:
        """Become responsible for the arc (low, high], which its owner just handed over."""
        if self.leaving:
            raise InputError("this peer is leaving the ring and takes over nothing")
        if high == self.me.id and (self.low is None or self.low == low or high == self.low):
            self.low = low
        elif high == self.low:
            self.low = low  # what a leaving predecessor had
        elif high == self.me.id and between(low, self.low or 0, high):
            self.low = low  # given back to a peer that was believed dead
        else:
            raise InputError(f"the arc up to {high} does not adjoin this peer's")
        log.info("responsible for %s of the ring now", _percent(self.spans))
        self._announce()

    def give(self, upto: int) -> None:
        """Stop being responsible for what lies before and at `upto`."""
        self.low = upto
        log.info("responsible for %s of the ring now", _percent(self.spans))
        self._announce()

    def retire(self) -> None:
        """Be responsible for nothing, having handed everything over."""
        self.low = None
        self._announce()

    # -- keeping it fresh --------------------------------------------------------------------------

    async def run(self) -> None:
        """Stabilise until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._every, self._stabilise)
            nursery.start_soon(self._every, self._check_predecessor)
            nursery.start_soon(self._every, self._refresh_finger)
            nursery.start_soon(self._every, self._grow)
            async for peer in self._notices:
                before = self.predecessor
                if await self._drive(self._chord.rectify(peer)):
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
        self.low = self.me.id
        self._announce()

    async def _check_predecessor(self) -> None:
        dead = await self._drive(self._chord.check_predecessor())
        if dead is not None:
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
            self.low = predecessor.id
            log.warning("took over %s of the ring from a peer that is gone", _percent(added))
            self._announce()

    async def _lives(self, place: int) -> bool:
        """Say whether a peer at exactly this place answers."""
        before = await self._drive(self._chord.lookup(place))
        for peer in before.successors[:1] if before is not None else ():
            if peer.id == place:
                return await self._ask(Ask(peer, AskNeighbours())) is not None
        return False

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
                return _neighbours_wire(self.neighbours())
            case "step", int() as identifier if 0 <= identifier < RING_SIZE:
                step = self._chord.step(identifier)
                if isinstance(step, Found):
                    return ["found", _neighbours_wire(step.neighbours)]
                return ["forward", [_peer_wire(peer) for peer in step.peers]]
            case "notify", [int(), str()]:
                try:
                    self._heard.send_nowait(read_peer(body))
                except trio.WouldBlock:
                    log.debug("a notice was passed over: there are many, and they are repeated")
                return True
            case "nudge", _:
                self._wake.set()
                return True
            case "departed", _:
                gone = _read_neighbours(body)
                self._chord.departed(gone.peer, gone)
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
                return _read_neighbours(await self._request(address, "neighbours", None))
            case AskStep(identifier):
                return _read_step(await self._request(address, "step", identifier))
            case Notify(peer):
                return bool(await self._request(address, "notify", _peer_wire(peer)))

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
        return _read_neighbours(await self._request(address, "neighbours", None))

    async def _request(self, address: str, method: str, body: Value) -> Value:
        return await self._links.request(address, method, body, self._config.request_seconds)


async def _recover_nothing(spans: Spans) -> None:
    """Where there are no copies, take over with what is here."""


def _percent(spans: Spans) -> str:
    return f"{sum(high - low + 1 for low, high in spans) / RING_SIZE:.2%}"


def _peer_wire(peer: Peer) -> list[int | str]:
    return [peer.id, peer.address]


def _neighbours_wire(neighbours: Neighbours) -> Value:
    predecessor = neighbours.predecessor
    return [
        _peer_wire(neighbours.peer),
        None if predecessor is None else _peer_wire(predecessor),
        [_peer_wire(peer) for peer in neighbours.successors],
    ]


def _read_neighbours(wire: Value) -> Neighbours:
    match wire:
        case [peer, predecessor, list() as successors] if len(successors) <= 64:
            return Neighbours(
                read_peer(peer),
                None if predecessor is None else read_peer(predecessor),
                tuple(read_peer(entry) for entry in successors),
            )
        case _:
            raise InputError("what came is not a peer's neighbours")


def _read_step(wire: Value) -> Found | Forward:
    match wire:
        case ["found", neighbours]:
            return Found(_read_neighbours(neighbours))
        case ["forward", list() as peers] if len(peers) <= 64:
            return Forward(tuple(read_peer(peer) for peer in peers))
        case _:
            raise InputError("what came is not a step of a lookup")
