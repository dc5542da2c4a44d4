"""Moves arcs between neighbours, with everything that is stored in them.

A peer whose new predecessor lies inside its arc owes it the part up to there. It copies what is
stored, page by page, while it goes on serving; then it closes the gate for the last page, the new
owner takes responsibility, and only then does the old one give it up. If either side dies before
that, the old owner still has everything. Leaving is the same towards the successor, with the
whole arc.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from arms.errors import ArmsError
from arms.message import Message, region_of
from arms.rendezvous import weight
from arms.store import Store
from arms.writes import Bury, Drop, Put, Tombstone, Write
from meteor.errors import InputError, MeteorError
from meteor.limits import FREEZE_SECONDS_MAX, HANDOVER_BYTES, HANDOVER_ROWS
from meteor.node.gate import Gate
from meteor.node.links import Links
from meteor.node.overlay import Overlay
from meteor.node.writer import Writer
from meteor.ring.arcs import TOP, Spans, arc, contains, meeting, union
from meteor.ring.questions import Peer, between
from meteor.transport.frames import Value
from squid import Space

log = logging.getLogger("meteor.ring")

RETRY_SECONDS = 0.5
"""A hand-over that failed is tried again after this, as long as the neighbour is there."""


class Handover:
    """Gives arcs away and takes them over."""

    def __init__(
        self,
        space: Space,
        store: Store,
        writer: Writer,
        overlay: Overlay,
        links: Links,
        gate: Gate,
        clock: Callable[[], int],
    ) -> None:
        self._space, self._store, self._writer = space, store, writer
        self._overlay, self._links, self._gate, self._clock = overlay, links, gate, clock
        self._incoming: Spans = ()  # arcs that are on their way here: not to be dropped again
        self._changing = trio.Lock()

    async def run(self) -> None:
        """Hand over what a new predecessor is owed, and claim what nobody will hand over."""
        while True:
            changed = self._overlay.changed
            try:
                if not self._overlay.leaving:
                    await self._give_to_predecessor()
                    await self._claim()
            except (MeteorError, ArmsError) as error:
                log.info("a hand-over did not come through, and will be tried again: %s", error)
            with trio.move_on_after(RETRY_SECONDS):
                await changed.wait()

    async def leave(self) -> bool:
        """Hand everything to the successor; False in a ring of one, where there is nobody."""
        overlay = self._overlay
        successor, low = overlay.successor, overlay.low
        if successor is None or low is None:
            return False
        overlay.leaving = True
        try:
            await self._hand_over(successor, low, overlay.me.id, overlay.retire)
        except BaseException:
            overlay.leaving = False
            raise
        await self._drop_foreign()  # all of it: what is deleted from now on must not come back
        return True

    async def _give_to_predecessor(self) -> None:
        overlay = self._overlay
        predecessor, low = overlay.predecessor, overlay.low
        if predecessor is None or low is None or not between(low, predecessor.id, overlay.me.id):
            return
        upto = predecessor.id
        await self._hand_over(predecessor, low, upto, lambda: overlay.give(upto))
        await self._drop_foreign()

    async def _claim(self) -> None:
        """Take responsibility for an arc that was never handed over because its owner died."""
        overlay = self._overlay
        successor, predecessor = overlay.successor, overlay.predecessor
        if overlay.low is not None or successor is None or predecessor is None:
            return
        body = [predecessor.id, overlay.me.id]
        if not await self._links.request(successor.address, "claim", body, FREEZE_SECONDS_MAX):
            overlay.accept(predecessor.id, overlay.me.id)

    async def _hand_over(self, peer: Peer, low: int, high: int, given: Callable[[], None]) -> None:
        """Copy the arc (low, high] to a peer, and make it responsible; then `given` is called."""
        copied = _Progress()
        while not await self._copy(peer, (low, high), copied):
            pass
        async with self._gate.closed():
            with trio.move_on_after(FREEZE_SECONDS_MAX) as frozen:
                while not await self._copy(peer, (low, high), copied):
                    pass
                await self._send(peer, [], [], (low, high), last=True)
                given()
        if frozen.cancelled_caught:
            raise MeteorError(f"{peer.address} took too long for the last page")
        log.info("handed an arc with %d messages to %s", copied.messages, peer.address)

    async def _copy(self, peer: Peer, ends: tuple[int, int], copied: _Progress) -> bool:
        """Send one page; True when there was nothing more to send."""
        now_ms, spans = self._clock(), arc(*ends)
        stones = self._store.tombstones(now_ms, copied.stone, HANDOVER_ROWS)
        before, page, size = copied.seq, list[Message](), 0
        for stored in self._store.after(now_ms, copied.seq, HANDOVER_ROWS):
            copied.seq = stored.seq
            if meeting(region_of(self._space, stored.message), spans):
                page.append(stored.message)
                size += weight(stored.message)
            if size > HANDOVER_BYTES:
                break
        mine = [stone for _, stone in stones if contains(spans, stone.identifier)]
        if page or mine:
            await self._send(peer, page, mine, ends)
        if stones:
            copied.stone = stones[-1][0]
        copied.messages += len(page)
        return copied.seq == before and not stones

    async def _send(
        self,
        peer: Peer,
        messages: Sequence[Message],
        stones: Sequence[Tombstone],
        ends: tuple[int, int],
        *,
        last: bool = False,
    ) -> None:
        body = [
            [message.to_wire() for message in messages],
            [[s.id, s.taker, s.identifier, s.expires_ms] for s in stones],
            ends,
            last,
        ]
        await self._links.request(peer.address, "handover", body, FREEZE_SECONDS_MAX)

    async def _drop_foreign(self) -> None:
        """Forget what this peer is no longer responsible for in any part."""
        before, at = -1, 0
        while at != before:
            before, foreign = at, list[int]()
            async with self._changing:
                kept = union((*self._overlay.spans, *self._incoming))
                for stored in self._store.after(self._clock(), at, HANDOVER_ROWS):
                    at = stored.seq
                    if not meeting(region_of(self._space, stored.message), kept):
                        foreign.append(stored.seq)
                await self._writer.commit([Drop(tuple(foreign))] if foreign else [])
            await trio.lowlevel.checkpoint()

    # -- the receiving side ------------------------------------------------------------------------

    async def answer(self, method: str, body: Value) -> Value:
        """Answer a neighbour's page, or its question whether its arc is still to come."""
        match method, body:
            case "claim", [int() as low, int() as high]:
                mine = self._overlay.spans
                return any(contains(mine, end) for end in (high, (low + 1) % (1 << 63)))
            case "handover", [
                list() as messages,
                list() as stones,
                [int() as low, int() as high],
                bool() as last,
            ] if 0 <= low <= TOP and 0 <= high <= TOP:
                await self._take_in(messages, stones, low, high)
                if last:
                    self._overlay.accept(low, high)
                    self._incoming = ()
                return True
            case _:
                raise InputError(f"no answer to {method!r} like this")

    async def _take_in(
        self, messages: list[Value], stones: list[Value], low: int, high: int
    ) -> None:
        writes: list[Write] = [Put(Message.from_wire(entry)) for entry in messages]
        if stones:
            writes.append(Bury(tuple(_read_tombstone(entry) for entry in stones)))
        async with self._changing:
            self._incoming = union((*self._incoming, *arc(low, high)))
            await self._writer.commit(writes)


class _Progress:
    """How far a hand-over has come."""

    def __init__(self) -> None:
        self.seq = 0
        self.stone = 0
        self.messages = 0


def _read_tombstone(wire: object) -> Tombstone:
    match wire:
        case [str() as id_, str() as taker, int() as identifier, int() as expires_ms]:
            return Tombstone(id_, taker, identifier, expires_ms)
        case _:
            raise InputError("what came is not a tombstone")
