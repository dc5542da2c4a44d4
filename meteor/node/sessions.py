"""The clients of a peer, and the way of notifications to them.

A notification goes from the rendezvous to the peer that its watcher is connected to, and from there
to the watcher. Each of these ways has a bounded queue. Who posts is held up while a queue is more
than half full, for a moment; when it is full the newest notification is lost, counted, and the
client is told how many it missed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import trio

from arms.rendezvous import Notification
from meteor.errors import ConnectionLost, InputError, MeteorError
from meteor.limits import (
    DELIVERIES_BYTES_MAX,
    DELIVERIES_QUEUED_MAX,
    PAGE_BYTES,
    SLOW_WATCHER_SECONDS,
    Bounds,
)
from meteor.node.links import Links
from meteor.notifications import Group, Told, columns, read, told
from meteor.transport.channel import Channel
from meteor.transport.frames import Value

log = logging.getLogger("meteor.node")

FRAME_NOTIFICATIONS_MAX = 1024
"""Notifications in one frame, if they are no more than a page."""

TARGETS_PER_DELIVERY_MAX = 4096
"""Watchers named in one delivery; a message that matches more of them is delivered in parts."""

TARGET_BYTES = 80
"""What the name of a client and a watch takes, roughly."""

ENVELOPE_BYTES = 160
"""What a message takes besides its data and profile, roughly."""

IDLE_SECONDS = 60.0
"""A way to another peer that was not used for so long is taken down."""

DELIVER_SECONDS = 5.0

Target = tuple[str, str]
"""A client and one of its watches."""


class Sessions:
    """Who is connected here, and who is to be told what."""

    def __init__(self, address: str, links: Links) -> None:
        self.lost = 0
        """Notifications that could not be delivered."""
        self._address, self._links = address, links
        self._clients: dict[str, Session] = {}
        self._offered: dict[Session, None] = {}  # those for which something was queued just now
        self._behind: dict[Session, None] = {}  # those that lag, in the order in which they began
        self._ways: dict[str, _Waiting] = {}
        self._nursery: trio.Nursery | None = None

    def __len__(self) -> int:
        return len(self._clients)

    def bounds(self) -> Bounds:
        """Say how much waits on the fullest way, or for the slowest client."""
        sizes = [way.size for way in self._ways.values()]
        sizes += [session.waiting.size for session in self._clients.values()]
        return {
            "notifications that wait": (
                max((count for count, _ in sizes), default=0),
                DELIVERIES_QUEUED_MAX,
            ),
            "bytes of notifications that wait": (
                max((size for _, size in sizes), default=0),
                DELIVERIES_BYTES_MAX + 2 * PAGE_BYTES,  # the last slice that finds room
            ),
        }

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the ways to other peers until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def notify(self, notifications: Sequence[Notification]) -> None:
        """Send notifications on their way; never waits."""
        targets: dict[str, tuple[Told, dict[str, list[Target]]]] = {}
        for note in notifications:
            _, ways = targets.setdefault(note.message.id, (told(note.message), {}))
            ways.setdefault(note.reply_to, []).append((note.to, note.watch))
        self.tell(targets.values())

    def tell(self, news: Iterable[tuple[Told, Mapping[str, Sequence[Target]]]]) -> None:
        """Send messages on their way, each to its watchers by the peer that can reach them.

        All are queued before any is sent: so what one client gets of them shares a frame.
        """
        for items, ways in news:
            for address, targets in ways.items():
                if address == self._address:
                    self._deliver(items, targets)
                    continue
                for part in _parts(targets):
                    way = self._way(address)
                    self.lost += (len(items) - way.put(items, part)) * len(part)
                    way.wake()
        self._send()

    def _deliver(self, items: Told, targets: Sequence[Target]) -> None:
        """Queue messages for clients that are connected here."""
        watches: dict[str, list[str]] = {}
        for client, watch in targets:
            watches.setdefault(client, []).append(watch)
        for client, ids in watches.items():
            session = self._clients.get(client)
            if session is None:
                self.lost += len(ids) * len(items)
                log.debug("client %s is not here any more; its watch runs out", client)
            else:
                self.lost += session.offer(items, ids)
                self._offered[session] = None

    def _send(self) -> None:
        for session in self._offered:
            self.lost += session.send()
            if session.lagging:
                self._behind[session] = None
        self._offered.clear()

    @property
    def is_lagging(self) -> bool:
        """Whether there may be somebody to wait for."""
        return bool(self._behind)

    async def catch_up(self) -> None:
        """Wait a moment for watchers here that lag behind, so that who posts keeps their pace."""
        deadline = trio.current_time() + SLOW_WATCHER_SECONDS
        for session in list(self._behind):
            if session.lagging and trio.current_time() < deadline:
                await session.catch_up(deadline)
            if not session.lagging:
                self._behind.pop(session, None)

    def _way(self, address: str) -> _Waiting:
        assert self._nursery is not None
        way = self._ways.get(address)
        if way is None:
            way = self._ways[address] = _Waiting()
            self._nursery.start_soon(self._serve_way, address, way)
        return way

    async def _serve_way(self, address: str, way: _Waiting) -> None:
        """Carry notifications to another peer until nothing comes for a while."""
        while True:
            with trio.move_on_after(IDLE_SECONDS) as idle:
                await way.some()
            if idle.cancelled_caught:
                del self._ways[address]
                return
            batch = way.take()
            try:
                await self._links.request(address, "deliver", columns(batch), DELIVER_SECONDS)
            except MeteorError as error:
                count = sum(len(items) * len(targets) for items, targets in batch)
                self.lost += count
                log.info("%d notifications did not reach %s: %s", count, address, error)

    def answer(self, body: Value) -> Value:
        """Take deliveries from another peer."""
        for items, targets in read(body):
            self._deliver(items, _read_targets(targets))
        self._send()
        return True

    async def serve(self, client: str, session: Session) -> None:
        """Keep a client's session until cancelled; a newer one of the same client replaces it."""
        self._clients[client] = session
        try:
            await session.run()
        finally:
            if self._clients.get(client) is session:
                del self._clients[client]


class Session:
    """One client's connection, and what waits to be sent to it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.waiting = _Waiting()
        self._missed = 0
        self._patience = True  # it has not been waited for in vain since it last kept up
        self._progress = trio.Event()

    def offer(self, items: Told, watches: list[str]) -> int:
        """Queue messages; returns how many notifications are lost as the client is too slow."""
        lost = (len(items) - self.waiting.put(items, watches)) * len(watches)
        self._missed += lost
        return lost

    def send(self) -> int:
        """Send what waits, at once if nothing is on its way before it; returns how many are lost.

        They are when the client is gone.
        """
        if self.waiting and self._channel.is_free:
            batch = self.waiting.take()
            try:
                self._channel.push_now("notify", self._frame(batch))
            except ConnectionLost:
                self.waiting.close()
                return sum(len(items) * len(watches) for items, watches in batch)
        if self.waiting:
            self.waiting.wake()
        return 0

    def _frame(self, batch: Sequence[Group]) -> Value:
        missed, self._missed = self._missed, 0
        return [*columns(batch), missed]

    @property
    def lagging(self) -> bool:
        """Whether it is worth waiting for this client."""
        return self._patience and self.waiting.is_half_full

    async def catch_up(self, deadline: float) -> None:
        """Wait until the client has caught up; when it does not, it is not waited for again."""
        with trio.move_on_at(deadline) as waited:
            while self.waiting.is_half_full:
                await self._progress.wait()
        self._patience = not waited.cancelled_caught

    async def run(self) -> None:
        """Send what is queued, as it comes."""
        try:
            while True:
                await self.waiting.some()
                await self._channel.push("notify", self._frame(self.waiting.take()))
                await trio.lowlevel.checkpoint()  # a full queue is many frames
                if not self.waiting.is_half_full:
                    self._patience = True
                    self._wake()
        except ConnectionLost:
            return
        finally:
            self.waiting.close()
            self._wake()

    def _wake(self) -> None:
        self._progress.set()
        self._progress = trio.Event()


class _Waiting:
    """What waits to be sent one way: so many messages, and so many bytes."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Group, int]] = deque()
        self._count = self._bytes = 0
        self._something = trio.Event()

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def size(self) -> tuple[int, int]:
        """How many messages wait, and their bytes."""
        return self._count, self._bytes

    @property
    def is_half_full(self) -> bool:
        """Whether who sends should slow down."""
        return self._count > DELIVERIES_QUEUED_MAX // 2 or self._bytes > DELIVERIES_BYTES_MAX // 2

    def put(self, items: Told, targets: Sequence[object]) -> int:
        """Queue messages for the same targets; returns how many had room."""
        room = max(0, DELIVERIES_QUEUED_MAX - self._count)
        if len(items) > room:
            items = items.part(0, room)
        taken = 0
        for some, size in _slices(items, TARGET_BYTES * len(targets)):
            if self._bytes >= DELIVERIES_BYTES_MAX:
                break
            self._queue.append(((some, targets), size))
            self._bytes += size
            taken += len(some)
        self._count += taken
        return taken

    def wake(self) -> None:
        """Have who waits for something look."""
        self._something.set()

    async def some(self) -> None:
        """Wait until there is something."""
        while not self._queue:
            self._something = trio.Event()
            await self._something.wait()

    def take(self) -> list[Group]:
        """Return what is queued, as much as one frame should hold; one slice at least."""
        groups: list[Group] = []
        count = total = 0
        while self._queue:
            group, size = self._queue[0]
            if groups and (
                count + len(group[0]) > FRAME_NOTIFICATIONS_MAX or total + size > PAGE_BYTES
            ):
                break
            self._queue.popleft()
            groups.append(group)
            count += len(group[0])
            total += size
        self._count -= count
        self._bytes -= total
        return groups

    def close(self) -> None:
        """Drop everything: there is nobody to send it to."""
        self._queue.clear()
        self._count = self._bytes = 0


def _slices(items: Told, more: int) -> Iterator[tuple[Told, int]]:
    """Cut messages into slices that fit a frame, with their sizes; `more` is added for each."""
    lengths = [*map(len, items.profiles)], [*map(len, items.data)]
    each = ENVELOPE_BYTES + more
    total = sum(map(sum, lengths)) + each * len(items)
    if total <= PAGE_BYTES and 0 < len(items) <= FRAME_NOTIFICATIONS_MAX:
        yield items, total
        return
    begin = size = 0
    for end, (profile, data) in enumerate(zip(*lengths, strict=True)):
        length = profile + data + each
        if end > begin and (size + length > PAGE_BYTES or end - begin == FRAME_NOTIFICATIONS_MAX):
            yield items.part(begin, end), size
            begin, size = end, 0
        size += length
    if items:
        yield items.part(begin, len(items)), size


def _parts(targets: Sequence[Target]) -> Iterator[Sequence[Target]]:
    for i in range(0, len(targets), TARGETS_PER_DELIVERY_MAX):
        yield targets[i : i + TARGETS_PER_DELIVERY_MAX]


def _read_targets(wire: Iterable[Value]) -> list[Target]:
    targets: list[Target] = []
    for entry in wire:
        match entry:
            case [str() as client, str() as watch]:
                targets.append((client, watch))
            case _:
                raise InputError("what came is not a watcher")
    return targets
