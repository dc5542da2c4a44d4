"""Moves arcs between neighbours, with everything that is stored in them.

A peer whose new predecessor lies inside its arc owes it the part up to there. It copies what is
stored, page by page, while it goes on serving; then it closes the gate for the last page, the new
owner takes responsibility, and only then does the old one give it up. If either side dies before
that, the old owner still has everything. Leaving is the same towards the successor, with the
whole arc.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from arms.errors import ArmsError
from arms.message import region_of
from arms.store import Store
from arms.writes import Drop
from meteor.errors import InputError, MeteorError
from meteor.limits import FREEZE_SECONDS_MAX, HANDOVER_ROWS
from meteor.node.copying import START, Copier, Page, read_writes
from meteor.node.gate import Gate
from meteor.node.links import Links
from meteor.node.overlay import Overlay
from meteor.node.replicas import Replicas
from meteor.node.writer import Writer
from meteor.ring.arcs import TOP, Spans, arc, contains, meeting, union
from meteor.ring.questions import Peer, between
from meteor.transport.frames import Value
from squid import Space

log = logging.getLogger("meteor.ring")

TIDY_SECONDS = 20.0
"""How often a peer looks for messages that it need not keep any more."""

RETRY_SECONDS = 0.5
"""A hand-over that failed is tried again after this, as long as the neighbour is there."""


class Handover:
    """Gives arcs away and takes them over."""

    def __init__(
        self,
        space: Space,
        store: Store,
        copier: Copier,
        writer: Writer,
        replicas: Replicas,
        overlay: Overlay,
        links: Links,
        gate: Gate,
        clock: Callable[[], int],
    ) -> None:
        self._space, self._store, self._copier = space, store, copier
        self._writer, self._replicas = writer, replicas
        self._overlay, self._links, self._gate, self._clock = overlay, links, gate, clock
        self._incoming: Spans = ()  # arcs that are on their way here: not to be dropped again
        self._changing = trio.Lock()

    async def run(self) -> None:
        """Hand over what a new predecessor is owed, claim what nobody hands over, and tidy up."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tidy)
            await self._keep_handing_over()

    async def _keep_handing_over(self) -> None:
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
        await self._drop_foreign()
        return True

    async def _give_to_predecessor(self) -> None:
        overlay = self._overlay
        predecessor, low = overlay.predecessor, overlay.low
        if predecessor is None or low is None or not between(low, predecessor.id, overlay.me.id):
            return
        upto = predecessor.id
        await self._hand_over(predecessor, low, upto, lambda: overlay.give(upto))
        self._replicas.back(upto, arc(low, upto))  # its new owner will want copies here

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
        spans, mark, count = arc(low, high), START, 0

        async def copy() -> None:
            nonlocal mark, count
            last = False
            while not last:
                page = self._copier.page(spans, mark)
                if page:
                    await self._send(peer, page, (low, high))
                mark, last, count = page.upto, page.last, count + len(page.messages)

        await copy()
        async with self._gate.closed():
            with trio.move_on_after(FREEZE_SECONDS_MAX) as frozen:
                await copy()
                await self._send(peer, Page(mark, last=True), (low, high), last=True)
                given()
        if frozen.cancelled_caught:
            raise MeteorError(f"{peer.address} took too long for the last page")
        log.info("handed an arc with %d messages to %s", count, peer.address)

    async def _send(
        self, peer: Peer, page: Page, ends: tuple[int, int], *, last: bool = False
    ) -> None:
        body = [*page.to_wire(), ends, last]
        await self._links.request(peer.address, "handover", body, FREEZE_SECONDS_MAX)

    async def _tidy(self) -> None:
        """Forget, every now and then, what is neither this peer's nor a copy that it keeps."""
        while True:
            await trio.sleep(TIDY_SECONDS)
            if self._overlay.low is not None:
                await self._drop_foreign()

    async def _drop_foreign(self) -> None:
        """Forget what lies in no part of the ring that concerns this peer."""
        before, at = -1, 0
        while at != before:
            before, foreign = at, list[int]()
            async with self._changing:
                kept = self._kept()
                for stored in self._store.after(self._clock(), at, HANDOVER_ROWS):
                    at = stored.seq
                    if not meeting(region_of(self._space, stored.message), kept):
                        foreign.append(stored.seq)
                await self._writer.commit([Drop(tuple(foreign))] if foreign else [])
            await trio.lowlevel.checkpoint()

    def _kept(self) -> Spans:
        overlay = self._overlay
        if overlay.leaving:
            return ()  # what is deleted from now on must not come back with this peer
        return union((*overlay.spans, *self._incoming, *self._replicas.backed))

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
        writes = read_writes(messages, stones)
        async with self._changing:
            self._incoming = union((*self._incoming, *arc(low, high)))
            await self._writer.commit(writes)
