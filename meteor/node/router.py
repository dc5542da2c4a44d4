"""Brings errands to the peers that own their region, and the answers back.

At each peer an errand is carried out for the part of the ring that the peer is responsible for; the
rest is split among the peers it knows (meteor.ring.table). Errands that go the same way travel in
one request. A peer that can't be reached loses its part to the others, which know whom to ask.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import trio

from meteor.errors import ConnectionLost, InputError, MeteorError, NoAnswer, Refused
from meteor.limits import (
    ANSWER_BYTES_MAX,
    ATTEMPTS_MAX,
    HOPS_MAX,
    OWNERS_CACHED_MAX,
    PAGE_BYTES,
    REPLY_SHARE,
    Bounds,
)
from meteor.node.errands import Answer, Errand, Miss, Trace
from meteor.node.gate import Gate
from meteor.node.links import Links
from meteor.node.overlay import Overlay
from meteor.node.point import RendezvousPoint
from meteor.ring.arcs import (
    WHOLE,
    Everything,
    Members,
    Spans,
    arc,
    contains,
    intersect,
    meeting,
    missing,
    subtract,
)
from meteor.ring.doubts import addresses
from meteor.ring.fingers import Known
from meteor.ring.questions import Peer
from meteor.ring.table import split
from meteor.transport.frames import Value
from squid import Space

log = logging.getLogger("meteor.node")

WHOLE_SECONDS = 5.0
"""How long all peers may take to say whether they miss one; then the ring counts as not whole."""

Share = dict[Peer, list[tuple[int, Spans]]]


class Router:
    """Routes errands by content."""

    def __init__(
        self,
        space: Space,
        overlay: Overlay,
        links: Links,
        point: RendezvousPoint,
        gate: Gate,
    ) -> None:
        self._space, self._overlay, self._links = space, overlay, links
        self._point, self._gate = point, gate
        self.owners = OwnerCache()
        """Who spoke for which arc lately."""

    def bounds(self) -> Bounds:
        """Say how many owners are remembered."""
        return {"owners remembered": (len(self.owners), OWNERS_CACHED_MAX)}

    async def ask(self, errands: Sequence[Errand], seconds: float) -> list[Answer]:
        """Route errands until each is answered for all of its region, or the time is up.

        What is missing after a round is asked again: a peer that died meanwhile has been replaced
        by then. An answer that reports a fault is not asked for again, nor is the rest of a page
        that is full: whoever turns the page asks for it.
        """
        deadline = trio.current_time() + seconds
        answers = [Answer() for _ in errands]
        regions = [errand.members(self._space) for errand in errands]
        pause = 0.02
        left = {i: errand.spans for i, errand in enumerate(errands)}
        while True:
            # The first round may take half of the time, so that there is time for another.
            share = max(0.05, (deadline - trio.current_time()) / 2)
            batch = [errands[i].within(spans) for i, spans in left.items()]
            for i, answer in zip(left, await self.route(batch, share, HOPS_MAX), strict=True):
                answers[i].merge(answer)
            left = {
                i: rest
                for i, spans in left.items()
                if not answers[i].faults
                and not answers[i].resume
                and answers[i].bytes_found < PAGE_BYTES
                and (rest := missing(regions[i], spans, answers[i].covered))
            }
            # Who is frozen does not wait for others to thaw: what is missing is asked elsewhere.
            if not left or self._point.frozen or trio.current_time() + pause >= deadline:
                return answers
            await trio.sleep(pause)
            pause = min(pause * 2, 0.5)
            errands = [replace(errand, repeated=True) for errand in errands]

    async def answer(self, body: Value) -> Value:
        """Route errands for another peer."""
        match body:
            case [int() as hops, int() | float() as seconds, int() as sender, list() as wires]:
                errands = [Errand.from_wire(wire) for wire in wires]
                answers = await self.route(errands, seconds, min(hops, HOPS_MAX), sender)
                return [answer.to_wire() for answer in answers]
            case _:
                raise InputError("what came are no errands")

    async def whole(self) -> bool:
        """Say whether all of the ring answers, and nobody in it has missed a peer lately."""
        (answer,) = await self.ask([Errand(Miss(), WHOLE)], WHOLE_SECONDS)
        return not answer.matches and not missing(Everything(), WHOLE, answer.covered)

    async def route(
        self, errands: Sequence[Errand], seconds: float, hops: int, sender: int | None = None
    ) -> list[Answer]:
        """Carry errands out here and wherever else they must go, once.

        `sender` is the place of the peer that they came from; None where they begin.
        """
        answers = [Answer() for _ in errands]
        started = trio.current_time()
        for errand in errands:
            errand.members(self._space)  # raises for what is not of this space, before the gate
        await self._gate.enter()
        mine = self._overlay.spans
        own = {i: spans for i, e in enumerate(errands) if (spans := intersect(e.spans, mine))}
        rest = {i: spans for i, e in enumerate(errands) if (spans := subtract(e.spans, mine))}
        own = {i: spans for i, spans in own.items() if self._concerns(errands[i], spans)}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._here, errands, own, answers)
            if rest and hops > 0:
                deadline = started + seconds * REPLY_SHARE
                await self._elsewhere(rest, _Trip(list(errands), answers, deadline, hops, sender))
        took = (trio.current_time() - started) * 1000
        for i, (errand, answer) in enumerate(zip(errands, answers, strict=True)):
            if errand.traced:
                answer.traces = [Trace(self._overlay.me, i in own, round(took, 3), answer.traces)]
            _trim(errand, answer)
        return answers

    def _concerns(self, errand: Errand, spans: Spans) -> bool:
        members = errand.members(self._space)
        return any((at := members.next(low)) is not None and at <= high for low, high in spans)

    async def _here(
        self, errands: Sequence[Errand], own: dict[int, Spans], answers: list[Answer]
    ) -> None:
        """Carry out what this peer is responsible for; the gate was passed by the caller."""
        try:
            mine = [errands[i].within(spans) for i, spans in own.items()]
            done = await self._point.carry_out(mine, self._overlay.me.address) if mine else []
        finally:
            self._gate.leave()
        speaker = Known(self._overlay.me, self._overlay.low)
        for i, answer in zip(own, done, strict=True):
            answer.speakers.append(speaker)
            members = errands[i].members(self._space)
            answer.lost = addresses(
                peer
                for peer, spans in self._overlay.doubts(own[i]).items()
                if meeting(members, spans)
            )
            answers[i].merge(answer)

    async def _elsewhere(self, rest: dict[int, Spans], trip: _Trip) -> None:
        """Ask others for the rest; what an unreachable peer had is shared out again."""
        for _ in range(ATTEMPTS_MAX):
            shares = self._share(rest, trip)
            trip.lost = {}
            async with trio.open_nursery() as nursery:
                for peer, parts in shares.items():
                    nursery.start_soon(self._delegate, peer, parts, len(shares), trip)
            rest = trip.lost
            if not rest or trio.current_time() >= trip.deadline:
                return

    def _share(self, rest: dict[int, Spans], trip: _Trip) -> Share:
        known = tuple(k for k in self._overlay.known() if k.peer not in trip.unreachable)
        shares: Share = {}
        for i, spans in rest.items():
            members = trip.errands[i].members(self._space)
            for peer, part in self._split(members, spans, known, trip).items():
                # Back to where it came from: neither of us knows the owner, so for the moment
                # there is none. Whoever asked asks again when the ring has closed.
                if peer.id != trip.sender:
                    shares.setdefault(peer, []).append((i, part))
        return shares

    def _split(
        self, members: Members, spans: Spans, known: tuple[Known, ...], trip: _Trip
    ) -> dict[Peer, Spans]:
        # A point goes straight to its owner, if that is known from earlier answers.
        if len(spans) == 1 and spans[0][0] == spans[0][1]:
            owner = self.owners.owner(spans[0][0])
            usable = owner not in trip.unreachable and owner != self._overlay.me
            if owner is not None and usable and trip.sender is None:
                return {owner: spans}
        # What lies between my predecessor and me, and is not mine yet: my successor still has it.
        waiting = intersect(spans, self._overlay.awaited)
        successor = self._overlay.successor
        rest = subtract(spans, waiting)
        shares = split(members, rest, self._overlay.me.id, known, trip.sender)
        if waiting and successor is not None and successor not in trip.unreachable:
            shares[successor] = tuple(sorted((*shares.get(successor, ()), *waiting)))
        return shares

    async def _delegate(
        self, peer: Peer, parts: list[tuple[int, Spans]], share: int, trip: _Trip
    ) -> None:
        """Have another peer carry out parts of errands, with a share of the bytes."""
        batch = [trip.errands[i].within(spans, share) for i, spans in parts]
        seconds = max(0.01, trip.deadline - trio.current_time())
        wires = [errand.to_wire() for errand in batch]
        body = [trip.hops - 1, seconds, self._overlay.me.id, wires]
        try:
            wire = await self._links.request(peer.address, "errands", body, seconds)
            replies = read_answers(wire, len(batch))
        except (ConnectionLost, Refused) as error:
            log.debug("%s is out of reach: %s", peer.address, error)
            trip.unreachable.add(peer)
            self.owners.forget(peer)
            self._overlay.suspect(peer)
            for i, spans in parts:
                trip.lost[i] = tuple(sorted((*trip.lost.get(i, ()), *spans)))
                if isinstance(error, ConnectionLost):  # it may have been on the way back
                    trip.errands[i] = replace(trip.errands[i], repeated=True)
        except NoAnswer as error:  # slow, or everything behind it is: the asker decides what to do
            log.debug("%s: %s", peer.address, error)
            self.owners.forget(peer)
        except MeteorError as error:
            log.warning("%s could not carry out what it was asked: %s", peer.address, error)
        else:
            for (i, _), answer in zip(parts, replies, strict=True):
                self.owners.learn(answer.speakers)
                if trip.answers[i].bytes_found + answer.bytes_found <= ANSWER_BYTES_MAX:
                    trip.answers[i].merge(answer)  # else it stays missing, and is asked for again


@dataclass(slots=True)
class _Trip:
    """Errands on their way to other peers: what came back, and what could not be delivered."""

    errands: list[Errand]
    answers: list[Answer]
    deadline: float
    hops: int
    sender: int | None
    unreachable: set[Peer] = field(default_factory=set)
    lost: dict[int, Spans] = field(default_factory=dict)


def _trim(errand: Errand, answer: Answer) -> None:
    """Keep no more matches than the errand's limit asks for; with enough, the rest is answered."""
    modifiers = getattr(errand.task, "modifiers", None)
    if modifiers is not None and modifiers.limit is not None and modifiers.aggregate is None:
        answer.found = answer.found[: modifiers.limit]
        if len(answer.found) == modifiers.limit:
            answer.covered, answer.resume = errand.spans, {}


def read_answers(wire: Value, count: int) -> list[Answer]:
    """Read the answers to a request of errands."""
    if not isinstance(wire, list) or len(wire) != count:
        raise InputError("what came are not the answers to what was asked")
    return [Answer.from_wire(entry) for entry in wire]


class OwnerCache:
    """Owners by the arcs they spoke for lately, so that a point is one hop away.

    An entry may be out of date: the peer asked passes on what is no longer its own.
    """

    def __init__(self) -> None:
        self._ids: list[
            int
        ] = []  # sorted: the owner of x is the first at or after x, if it goes that far
        self._owners: dict[int, Known] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def owner(self, identifier: int) -> Peer | None:
        """Return who spoke for an identifier last."""
        if not self._ids:
            return None
        at = bisect_left(self._ids, identifier) % len(self._ids)
        known = self._owners[self._ids[at]]
        assert known.predecessor is not None
        covers = contains(arc(known.predecessor, known.peer.id), identifier)
        return known.peer if covers else None

    def learn(self, speakers: Sequence[Known]) -> None:
        """Remember who speaks for which arc."""
        for known in speakers:
            if known.predecessor is None:
                continue
            if known.peer.id not in self._owners:
                if len(self._ids) >= OWNERS_CACHED_MAX:
                    continue  # those that are known may have news
                insort(self._ids, known.peer.id)
            self._owners[known.peer.id] = known

    def forget(self, peer: Peer) -> None:
        """Drop a peer that could not be reached."""
        if self._owners.pop(peer.id, None) is not None:
            self._ids.remove(peer.id)
