"""Moves arcs between neighbours, with everything that is stored in them.

A peer whose new predecessor lies inside its arc owes it the part up to there. It copies what is
stored, page by page, while it goes on serving; then it closes the gate for the last page, the new
owner takes responsibility, and only then does the old one give it up. If either side dies before
that, the old owner still has everything. Leaving is the same towards the successor, with the
whole arc.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import trio

from arms.errors import ArmsError
from arms.message import Kind, Message, region_of, weight
from arms.rendezvous import Place
from arms.rows import Stored
from arms.store import Store
from arms.writes import Drop
from meteor.errors import Busy, InputError, MeteorError
from meteor.limits import FREEZE_SECONDS_MAX, HANDOVER_BYTES, HANDOVER_ROWS
from meteor.node.copying import START, Copier, Page
from meteor.node.gate import Gate
from meteor.node.links import Links
from meteor.node.overlay import Overlay
from meteor.node.overlay_wire import doubts_wire, read_doubts
from meteor.node.replicas import Replicas
from meteor.node.writer import Writer
from meteor.ring.arcs import RING_SIZE, TOP, WHOLE, Spans, arc, contains, meeting, subtract, union
from meteor.ring.doubts import UNKNOWN
from meteor.ring.questions import Peer, between
from meteor.transport.frames import Value
from squid import Space

log = logging.getLogger("meteor.ring")

TIDY_SECONDS = 20.0
"""How often a peer looks for messages that it need not keep any more."""

CLAIMS_MAX = 20
"""How often a peer asks for its arc before it takes it: by then nobody is left to hand it over."""

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
        deliver: Callable[[Sequence[Message]], Awaitable[list[bool]]],
    ) -> None:
        self._space, self._store, self._copier = space, store, copier
        self._writer, self._replicas = writer, replicas
        self._overlay, self._links, self._gate, self._clock = overlay, links, gate, clock
        self._deliver = deliver
        self.frozen: Callable[[], bool] = lambda: False
        """Says whether nothing may change, because the ring moves on to its next space."""
        self.order: Callable[[], Value] = lambda: None
        """Returns what the peers of a ring that moves are to do."""
        self.obey: Callable[[Value], None] = lambda order: None
        """Takes such an order."""
        self._claims = 0
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
                    await self._give_to_predecessors()
                    if not self.frozen():
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
        if self.frozen():
            raise Busy("the ring is moving on to its next space; leave it in a moment")
        overlay.leaving = True
        try:
            await self._hand_over(successor, low, overlay.me.id, overlay.retire)
        except BaseException:
            overlay.leaving = False
            raise
        with trio.CancelScope(shield=True):  # there is no way back any more
            try:
                await self._drop_foreign()
            except (MeteorError, ArmsError) as error:
                log.info("what this peer had stays in its folder: %s", error)
        return True

    async def bring_home(self, low: int) -> None:
        """Bring what this peer was responsible for in its last life, from `low` on, to its owners.

        Others have answered for it meanwhile, and wait for what this one may know.
        """
        overlay = self._overlay
        while overlay.low is not None and between(low, overlay.low, overlay.me.id):
            try:
                before = await overlay.lookup((low + 1) % RING_SIZE)
                owner = before.successors[0] if before is not None and before.successors else None
                if owner is None or not between(low, owner.id, overlay.me.id):
                    return
                await self._hand_over(owner, low, owner.id, lambda: None)
                low = owner.id
            except (MeteorError, ArmsError) as error:
                log.info("what lay here is not brought home yet: %s", error)
                await trio.sleep(RETRY_SECONDS)

    async def _give_to_predecessors(self) -> None:
        """Hand over what lies in this peer's arc and is another's: the far end first.

        After a join that is one peer, the predecessor. After two rings have met there may be many.
        """
        overlay = self._overlay
        predecessor, low = overlay.predecessor, overlay.low
        if predecessor is None or low is None or not between(low, predecessor.id, overlay.me.id):
            return
        before = await overlay.lookup((low + 1) % RING_SIZE)
        peer = before.successors[0] if before is not None and before.successors else predecessor
        if overlay.low == low and between(low, peer.id, overlay.me.id):
            await self._hand_over(peer, low, peer.id, lambda: overlay.give(low, peer.id))
            self._replicas.back(peer.id, arc(low, peer.id))  # its new owner will want copies here

    async def _claim(self) -> None:
        """Take responsibility for an arc that was never handed over because its owner died."""
        overlay = self._overlay
        successor, predecessor = overlay.successor, overlay.predecessor
        if overlay.low is not None or successor is None or predecessor is None:
            return
        body = [predecessor.id, overlay.me.id]
        coming = await self._links.request(successor.address, "claim", body, FREEZE_SECONDS_MAX)
        self._claims += 1 if coming else 2  # it may be another's, who is not known here yet
        if self._claims >= CLAIMS_MAX:
            spans = arc(predecessor.id, overlay.me.id)
            await self._replicas.recover(spans)
            overlay.accept(predecessor.id, overlay.me.id, {Peer(overlay.me.id, UNKNOWN): spans})
            self._claims = 0

    async def _hand_over(self, peer: Peer, low: int, high: int, given: Callable[[], None]) -> None:
        """Copy the arc (low, high] to a peer, and make it responsible; then `given` is called."""
        spans, mark, count = arc(low, high), START, 0

        async def copy() -> None:
            nonlocal mark, count
            last = False
            while not last:
                page = self._copier.page(spans, mark, moving=True)
                if page:
                    await self._send(peer, page, (low, high))
                mark, last, count = page.upto, page.last, count + page.count

        await copy()
        async with self._gate.closed():
            with trio.move_on_after(FREEZE_SECONDS_MAX) as frozen:
                await copy()
                await self._send(peer, Page(mark, last=True), (low, high), last=True)
                given()
        if frozen.cancelled_caught:
            raise MeteorError(f"{peer.address} took too long for the last page")
        log.info("handed an arc over to %s (messages: %d)", peer.address, count)

    async def _send(
        self, peer: Peer, page: Page, ends: tuple[int, int], *, last: bool = False
    ) -> None:
        doubts = self._overlay.doubts(arc(*ends)) if last else {}
        body = [*page.to_wire(), ends, last, doubts_wire(doubts), self.frozen(), self.order()]
        await self._links.request(peer.address, "handover", body, FREEZE_SECONDS_MAX)

    async def _tidy(self) -> None:
        """Forget, every now and then, what is neither this peer's nor a copy that it keeps."""
        while True:
            await trio.sleep(TIDY_SECONDS)
            try:
                if self._overlay.low is not None:
                    await self._drop_foreign()
            except (MeteorError, ArmsError) as error:
                log.info("what need not be kept here was not removed: %s", error)

    async def _drop_foreign(self) -> None:
        """Forget what lies in no part of the ring that concerns this peer.

        It is brought to its owner first: this peer may have been the only one for a while, and
        then it has what nobody else has.
        """
        for kind in Kind:
            for point in (True, False):
                for low, high in subtract(WHOLE, self._kept()):
                    after: Place | None = (low, "")
                    while after is not None:
                        foreign, after = self._foreign(kind, point, after, high)
                        if foreign:
                            await self._drop(foreign)
                        await trio.lowlevel.checkpoint()

    def _foreign(
        self, kind: Kind, point: bool, after: Place, high: int
    ) -> tuple[list[Stored], Place | None]:
        """Return some messages that lie elsewhere, and where to go on; None at the end."""
        foreign: list[Stored] = []
        rows = size = 0
        kept = self._kept()
        lying = self._store.places.lying(self._clock(), kind, point, after, high, HANDOVER_ROWS)
        for stored in lying:
            rows += 1
            after = (stored.identifier, stored.message.id)
            if point or not meeting(region_of(self._space, stored.message), kept):
                foreign.append(stored)
                size += weight(stored.message)
            if size > HANDOVER_BYTES:
                return foreign, after
        return foreign, after if rows == HANDOVER_ROWS else None

    async def _drop(self, foreign: list[Stored]) -> None:
        if self._overlay.leaving:  # its arc was handed over, and the rest are copies
            there = [True] * len(foreign)
        else:
            there = await self._deliver([stored.message for stored in foreign])
        async with self._changing:
            kept = self._kept()  # a part of it may be on its way here by now
            seqs = tuple(
                stored.seq
                for stored, safe in zip(foreign, there, strict=True)
                if safe and not meeting(region_of(self._space, stored.message), kept)
            )
            await self._writer.commit([Drop(seqs)] if seqs else [])

    def _kept(self) -> Spans:
        overlay = self._overlay
        if overlay.leaving:
            return ()  # what is deleted from now on must not come back with this peer
        return union((*overlay.spans, *self._incoming, *self._replicas.backed))

    # -- the receiving side ------------------------------------------------------------------------

    async def answer(self, method: str, body: Value) -> Value:
        """Answer a neighbour's page, or its question whether its arc is still to come."""
        match method, body:
            case "claim", _ if self.frozen():
                raise InputError("the ring is moving on to its next space; ask in a moment")
            case "claim", [int() as low, int() as high]:
                if self._overlay.low is None:
                    return True  # it will come through here
                mine = self._overlay.spans
                return any(contains(mine, end) for end in (high, (low + 1) % RING_SIZE))
            case "handover", [
                list() as messages,
                list() as stones,
                [int() as low, int() as high],
                bool() as last,
                list() as doubts,
                bool() as frozen,
                order,
            ] if 0 <= low <= TOP and 0 <= high <= TOP:
                self.obey(order)
                if frozen and not self.frozen():
                    raise InputError("this peer changes things still; hand it over in a moment")
                await self._take_in(messages, stones, low, high)
                if last:
                    await self._replicas.confirmed()  # the giver may forget it from now on
                    self._overlay.accept(low, high, read_doubts(doubts))
                    self._incoming = ()
                return True
            case _:
                raise InputError(f"no answer to {method!r} like this")

    async def _take_in(
        self, messages: list[Value], stones: list[Value], low: int, high: int
    ) -> None:
        writes = self._copier.read(messages, stones)
        async with self._changing:
            self._incoming = union((*self._incoming, *arc(low, high)))
            await self._writer.commit(writes)
