"""Copies: the peers after an owner follow what is written to its arc.

Each of the next peers on the ring is sent, page by page, what the owner's store gets, in the order
it gets it; a post is acknowledged when enough of them have come past it. What there was before, a
peer that is new among them gets meanwhile by comparing stores (`meteor.node.reconciler`), which is
also done again every now and then: anti-entropy. So when the owner dies, its successor, which takes
over the arc, has everything that was acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from arms.errors import ArmsError
from arms.store import Mark, Store
from meteor.config import Config
from meteor.errors import MeteorError
from meteor.limits import Bounds
from meteor.node.copying import Copier, Page
from meteor.node.links import Links
from meteor.node.overlay import Overlay
from meteor.node.reconciler import Mended, Reconciler
from meteor.node.writer import Writer
from meteor.ring.arcs import TOP, Spans, arc, subtract, union
from meteor.ring.questions import Peer
from meteor.transport.frames import Value

log = logging.getLogger("meteor.ring")

HEARTBEAT_SECONDS = 2.0
"""How often an owner tells the peers that hold its copies that they do."""

BACKED_SECONDS = 30.0
"""How long copies are kept after their owner was last heard: others have them by then."""

BACKED_OWNERS_MAX = 256
"""Owners whose copies are kept at the same time: those of the peers before, and of the many that
come and go among them within half a minute. Beyond it the one that was heard longest ago goes."""

PAUSE_SECONDS = 0.1
"""The pause after a page that a peer did not take."""


@dataclass(slots=True, eq=False)
class Follower:
    """A peer that follows this one's arc, and how far it has come."""

    peer: Peer
    has: Mark
    """Everything written up to here, from the time it began to follow."""
    agreed: Spans = ()
    """The part of the ring of which it has what there was before."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def passed(self, mark: Mark) -> bool:
        """Say whether this peer has everything up to a mark."""
        return self.has[0] >= mark[0] and self.has[1] >= mark[1]


class Replicas:
    """Makes copies of this peer's arc, and keeps those of others."""

    def __init__(
        self,
        store: Store,
        copier: Copier,
        writer: Writer,
        overlay: Overlay,
        links: Links,
        config: Config,
        clock: Callable[[], int],
    ) -> None:
        self._store, self._copier, self._writer = store, copier, writer
        self._overlay, self._links, self._config, self._clock = overlay, links, config, clock
        self._reconciler = Reconciler(store, copier, writer, clock)
        self._followers: dict[Peer, Follower] = {}
        self._backed: dict[int, tuple[Spans, int]] = {}  # by owner: its arc, and when it was heard
        self._written = trio.Event()
        self._progress = trio.Event()

    # -- as an owner -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Have the next peers on the ring follow, whoever they are, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                changed = self._overlay.changed
                wanted = self._overlay.successors[: self._config.copies - 1]
                for peer in [peer for peer in self._followers if peer not in wanted]:
                    self._followers.pop(peer).scope.cancel()
                for peer in wanted:
                    if peer not in self._followers:
                        follower = Follower(peer, self._store.newest())
                        self._followers[peer] = follower
                        nursery.start_soon(self._lead, follower)
                self._signal()
                await changed.wait()

    @property
    def holders(self) -> tuple[int, ...]:
        """The places of those that are to have what is written to this peer's arc now."""
        return (self._overlay.me.id, *(peer.id for peer in self._followers))

    @property
    def settled(self) -> bool:
        """Whether every follower has what there was before it followed."""
        spans = self._overlay.spans
        return not any(subtract(spans, follower.agreed) for follower in self._followers.values())

    async def confirmed(self) -> int:
        """Wait until all that is written is on enough disks; returns how many have it.

        Raises `MeteorError` when they don't have it in time.
        """
        if not self._followers:
            return 1
        mark = self._store.newest()
        self._written.set()
        self._written = trio.Event()
        with trio.move_on_after(self._config.request_seconds):
            while self._copies(mark) < self._needed():
                await self._progress.wait()
        copies, needed = self._copies(mark), self._needed()
        if copies < needed:
            raise MeteorError(
                f"only {copies} of the {needed} copies needed (ack = {self._config.ack}) were made "
                f"within {self._config.request_seconds:g} s; it may or may not be kept"
            )
        return copies

    def _copies(self, mark: Mark) -> int:
        return 1 + sum(follower.passed(mark) for follower in self._followers.values())

    def _needed(self) -> int:
        """Return how many copies a post needs; a ring of few peers can't make more than it has."""
        possible = 1 + len(self._followers)
        return {"owner": 1, "quorum": possible // 2 + 1, "all": possible}[self._config.ack]

    async def _lead(self, follower: Follower) -> None:
        """Send a follower what it lacks, as it comes."""
        with follower.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._mend, follower)
                while True:
                    written, changed = self._written, self._overlay.changed
                    try:
                        idle = await self._send_next(follower)
                    except (MeteorError, ArmsError) as error:
                        log.debug("%s does not follow: %s", follower.peer.address, error)
                        await trio.sleep(PAUSE_SECONDS)
                        continue
                    if idle:
                        await self._wait(written, changed)

    async def _wait(self, written: trio.Event, changed: trio.Event) -> None:
        """Wait until something was written, the arc may have changed, or it is time to be heard."""
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + HEARTBEAT_SECONDS

            async def either(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(either, written)
            nursery.start_soon(either, changed)

    async def _send_next(self, follower: Follower) -> bool:
        """Send what was written lately; True: all is sent."""
        page = self._copier.page(self._overlay.spans, follower.has)
        await self._send(follower, page)
        follower.has = page.upto
        self._signal()
        return page.last

    async def _mend(self, follower: Follower) -> None:
        """Have a follower agree on what there was before it followed, and now and then on all."""
        while True:
            spans, changed = self._overlay.spans, self._overlay.changed
            try:
                mended = await self._reconcile(follower.peer, spans)
            except (MeteorError, ArmsError) as error:
                log.debug("%s is not compared with: %s", follower.peer.address, error)
                await trio.sleep(PAUSE_SECONDS)
                continue
            follower.agreed = spans
            if mended.sent or mended.got:
                log.debug("%s was mended: %s", follower.peer.address, mended)
            with trio.move_on_after(self._config.repair_seconds):
                while self._overlay.spans == spans:
                    await changed.wait()
                    changed = self._overlay.changed

    async def _send(self, follower: Follower, page: Page) -> None:
        low = self._overlay.low
        if low is None:
            return
        body = [*page.to_wire(), low, self._overlay.me.id]
        await self._request(follower.peer, "replicate", body)

    def _signal(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

    def report(self) -> list[dict[str, Any]]:
        """Say how many messages and tombstones each copy lacks, counted up to a page."""
        spans = self._overlay.spans
        lacking = {
            follower: self._copier.page(spans, follower.has)
            for follower in self._followers.values()
        }
        return [
            {
                "address": follower.peer.address,
                "behind": page.count + len(page.stones),
                "catching_up": bool(subtract(spans, follower.agreed)),
            }
            for follower, page in lacking.items()
        ]

    # -- taking over -------------------------------------------------------------------------------

    async def recover(self, spans: Spans) -> None:
        """Agree with the next peers on an arc whose owner is gone, before it becomes ours.

        A majority of the copies had what was acknowledged; this peer need not have been of it.
        """
        for peer in self._overlay.successors[: self._config.copies - 1]:
            try:
                mended = await self._reconcile(peer, spans)
            except (MeteorError, ArmsError) as error:
                log.warning("%s could not say what copies it has: %s", peer.address, error)
            else:
                if mended.got:
                    log.info("got what was lacking from %s (%d)", peer.address, mended.got)

    async def _reconcile(self, peer: Peer, spans: Spans) -> Mended:
        return await self._reconciler.reconcile(partial(self._request, peer), spans)

    async def _request(self, peer: Peer, method: str, body: Value) -> Value:
        seconds = self._config.request_seconds
        return await self._links.request(peer.address, method, body, seconds)

    # -- as a follower -----------------------------------------------------------------------------

    async def answer(self, method: str, body: Value) -> Value:
        """Take a page from an owner, or answer one that compares its store with this one."""
        match method, body:
            case "replicate", [
                list() as messages,
                list() as stones,
                int() as low,
                int() as owner,
            ] if 0 <= low <= TOP and 0 <= owner <= TOP:
                self.back(owner, arc(low, owner))
                await self._writer.commit(self._copier.read(messages, stones))
                return True
            case _:
                return await self._reconciler.answer(method, body)

    def back(self, owner: int, spans: Spans) -> None:
        """Keep what lies in spans that another peer owns, for a while from now."""
        self._backed.pop(owner, None)
        self._backed[owner] = (spans, self._clock())
        if len(self._backed) > BACKED_OWNERS_MAX:
            del self._backed[next(iter(self._backed))]  # the longest unheard

    def bounds(self) -> Bounds:
        """Say for how many owners copies are kept."""
        return {"owners whose copies are kept": (len(self._backed), BACKED_OWNERS_MAX)}

    @property
    def backed(self) -> Spans:
        """The parts of the ring whose copies this peer keeps for others."""
        oldest = self._clock() - BACKED_SECONDS * 1000
        self._backed = {k: entry for k, entry in self._backed.items() if entry[1] >= oldest}
        return union(span for spans, _ in self._backed.values() for span in spans)
