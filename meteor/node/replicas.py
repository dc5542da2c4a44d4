"""Copies: the peers after an owner follow what is written to its arc.

Each of the next peers on the ring is sent, page by page, what the owner's store gets, in the order
it gets it; a post is acknowledged when enough of them have come past it. A peer that is new among
them is sent what comes from now on at once, and in between what there was before. So when the owner
dies, its successor, which takes over the arc, has everything that was acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from arms.errors import ArmsError
from arms.store import Mark, Store
from meteor.config import Config
from meteor.errors import InputError, MeteorError
from meteor.node.copying import START, Copier, Page, read_writes
from meteor.node.errands import read_spans
from meteor.node.links import Links
from meteor.node.overlay import Overlay
from meteor.node.writer import Writer
from meteor.ring.arcs import TOP, Spans, arc, subtract, union
from meteor.ring.questions import Peer
from meteor.transport.frames import Value

log = logging.getLogger("meteor.ring")

HEARTBEAT_SECONDS = 2.0
"""How often an owner tells the peers that hold its copies that they do."""

BACKED_SECONDS = 30.0
"""How long copies are kept after their owner was last heard: others have them by then."""

PAUSE_SECONDS = 0.1
"""The pause after a page that a peer did not take."""


@dataclass(slots=True, eq=False)
class Follower:
    """A peer that follows this one's arc, and how far it has come."""

    peer: Peer
    has: Mark
    """Everything written up to here, from the time it began to follow."""
    spans: Spans = ()
    """The part of the ring that it has, or is about to get, everything of."""
    owed: list[tuple[Spans, Mark, Mark]] = field(default_factory=list)
    """What there was before: spans, how far it has come with them, and where that ends."""
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

    async def confirmed(self) -> int:
        """Wait until all that is written is on enough disks; returns how many have it.

        Raises `MeteorError` when they don't have it in time.
        """
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
        """Send what was written lately, else some of what there was before; True: all is sent."""
        spans = self._overlay.spans
        if added := subtract(spans, follower.spans):
            follower.owed.append((added, START, follower.has))
        follower.spans = spans
        page = self._copier.page(spans, follower.has)
        await self._send(follower, page)
        follower.has = page.upto
        self._signal()
        if page.last and follower.owed:
            wanted, came, end = follower.owed.pop()
            older = self._copier.page(wanted, came)
            try:
                await self._send(follower, older)
            except BaseException:
                follower.owed.append((wanted, came, end))
                raise
            if not older.last and older.upto < end:
                follower.owed.append((wanted, older.upto, end))
        return page.last and not follower.owed

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
                "behind": len(page.messages) + len(page.stones),
                "catching_up": bool(follower.owed) or follower.spans != spans,
            }
            for follower, page in lacking.items()
        ]

    # -- taking over -------------------------------------------------------------------------------

    async def recover(self, spans: Spans) -> None:
        """Get what the next peers have of an arc whose owner is gone, before it becomes ours.

        A majority of the copies had what was acknowledged; this peer need not have been of it.
        """
        for peer in self._overlay.successors[: self._config.copies - 1]:
            try:
                count = await self._recover_from(peer, spans)
            except MeteorError as error:
                log.warning("%s could not say what copies it has: %s", peer.address, error)
            else:
                if count:
                    log.info(
                        "got messages from the copies at %s (messages: %d)", peer.address, count
                    )

    async def _recover_from(self, peer: Peer, spans: Spans) -> int:
        mark, last, count = START, False, 0
        while not last:
            match await self._request(peer, "has", [spans, mark]):
                case [
                    list() as ids,
                    list() as stones,
                    [int() as seq, int() as stone],
                    bool() as last,
                ]:
                    await self._writer.commit(read_writes([], stones))
                    mark = (seq, stone)
                case _:
                    raise InputError("what came is not a page")
            count += await self._fetch(peer, ids)
        return count

    async def _fetch(self, peer: Peer, ids: list[Value]) -> int:
        """Get the messages that are not here, as long as that gets on; returns how many came."""
        left, before = self._store.unknown(ids), len(ids) + 1
        count = 0
        while left and len(left) < before:  # the rest has expired, here or there
            messages = await self._request(peer, "fetch", left)
            await self._writer.commit(read_writes(messages, []))
            count += len(messages)
            left, before = self._store.unknown(left), len(left)
        return count

    async def _request(self, peer: Peer, method: str, body: Value) -> Value:
        seconds = self._config.request_seconds
        return await self._links.request(peer.address, method, body, seconds)

    # -- as a follower -----------------------------------------------------------------------------

    async def answer(self, method: str, body: Value) -> Value:
        """Take a page from an owner, or give one to a peer that takes over."""
        match method, body:
            case "has", [list() as spans, [int() as seq, int() as stone]] if (
                0 <= seq <= TOP and 0 <= stone <= TOP
            ):
                return self._copier.page(read_spans(spans), (seq, stone)).names()
            case "fetch", list() as ids:
                return self._copier.fetch(ids)
            case "replicate", [
                list() as messages,
                list() as stones,
                int() as low,
                int() as owner,
            ] if 0 <= low <= TOP and 0 <= owner <= TOP:
                self.back(owner, arc(low, owner))
                await self._writer.commit(read_writes(messages, stones))
                return True
            case _:
                raise InputError("what came is not a page")

    def back(self, owner: int, spans: Spans) -> None:
        """Keep what lies in spans that another peer owns, for a while from now."""
        self._backed[owner] = (spans, self._clock())

    @property
    def backed(self) -> Spans:
        """The parts of the ring whose copies this peer keeps for others."""
        oldest = self._clock() - BACKED_SECONDS * 1000
        self._backed = {k: entry for k, entry in self._backed.items() if entry[1] >= oldest}
        return union(span for spans, _ in self._backed.values() for span in spans)
