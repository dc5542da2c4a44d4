"""The clients of a peer, and the way of notifications to them.

A notification goes from the rendezvous to the peer that its watcher is connected to, and from there
to the watcher. Each of these ways has a bounded queue; when one is full the newest notification is
lost, counted, and the client is told how many it missed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence, Sized
from typing import Generic, TypeVar

import trio

from arms.limits import DATA_BYTES_MAX
from arms.message import Message
from arms.rendezvous import Notification, weight
from meteor.errors import ConnectionLost, InputError, MeteorError
from meteor.limits import DELIVERIES_BYTES_MAX, DELIVERIES_QUEUED_MAX, PAGE_BYTES, Bounds
from meteor.node.links import Links
from meteor.transport.channel import Channel
from meteor.transport.frames import Value

log = logging.getLogger("meteor.node")

FRAME_NOTIFICATIONS_MAX = 1024
"""Notifications in one frame, if they are no more than a page."""

TARGETS_PER_DELIVERY_MAX = 4096
"""Watchers named in one delivery; a message that matches more of them is delivered in parts."""

TARGET_BYTES = 80
"""What the name of a client and a watch takes, roughly."""

IDLE_SECONDS = 60.0
"""A way to another peer that was not used for so long is taken down."""

DELIVER_SECONDS = 5.0

DELIVERY_BYTES_MAX = 2 * DATA_BYTES_MAX
"""More than one delivery weighs: so much the last that finds room may go beyond the bound."""

Delivery = tuple[Message, list[tuple[str, str]]]
"""A message, and the (client, watch) pairs that it is for."""

Queued = TypeVar("Queued", bound=tuple[Message, Sized])


class Sessions:
    """Who is connected here, and who is to be told what."""

    def __init__(self, address: str, links: Links) -> None:
        self.lost = 0
        """Notifications that could not be delivered."""
        self._address, self._links = address, links
        self._clients: dict[str, Session] = {}
        self._ways: dict[str, _Waiting[Delivery]] = {}
        self._nursery: trio.Nursery | None = None

    def __len__(self) -> int:
        return len(self._clients)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the ways to other peers until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def bounds(self) -> Bounds:
        """Say how much waits on the fullest way, and for the slowest client."""
        ways = [(len(way), way.bytes) for way in self._ways.values()]
        ways += [(len(s.waiting), s.waiting.bytes) for s in self._clients.values()]
        return {
            "notifications that wait": (
                max((n for n, _ in ways), default=0),
                DELIVERIES_QUEUED_MAX,
            ),
            "bytes of notifications that wait": (
                max((size for _, size in ways), default=0),
                DELIVERIES_BYTES_MAX + DELIVERY_BYTES_MAX,
            ),
        }

    def notify(self, notifications: Sequence[Notification]) -> None:
        """Send notifications on their way; never waits."""
        ways: dict[str, dict[str, Delivery]] = {}
        for note in notifications:
            way = ways.setdefault(note.reply_to, {})
            _, targets = way.setdefault(note.message.id, (note.message, []))
            targets.append((note.to, note.watch))
        for address, deliveries in ways.items():
            for message, targets in deliveries.values():
                for part in _parts(targets):
                    if address == self._address:
                        self.deliver(message, part)
                    else:
                        self._forward(address, message, part)

    def deliver(self, message: Message, targets: Sequence[tuple[str, str]]) -> None:
        """Hand a message to clients that are connected here."""
        watches: dict[str, list[str]] = {}
        for client, watch in targets:
            watches.setdefault(client, []).append(watch)
        for client, ids in watches.items():
            session = self._clients.get(client)
            if session is None:
                self.lost += len(ids)
                log.debug("client %s is not here any more; its watch runs out", client)
            elif not session.offer(message, ids):
                self.lost += len(ids)

    def _forward(self, address: str, message: Message, targets: list[tuple[str, str]]) -> None:
        assert self._nursery is not None
        way = self._ways.get(address)
        if way is None:
            way = self._ways[address] = _Waiting()
            self._nursery.start_soon(self._serve_way, address, way)
        if not way.put((message, targets)):
            self.lost += len(targets)

    async def _serve_way(self, address: str, way: _Waiting[Delivery]) -> None:
        """Carry notifications to another peer until nothing comes for a while."""
        while True:
            with trio.move_on_after(IDLE_SECONDS) as idle:
                batch = await way.take()
            if idle.cancelled_caught:
                del self._ways[address]
                return
            body = [[message.to_wire(), targets] for message, targets in batch]
            try:
                await self._links.request(address, "deliver", body, DELIVER_SECONDS)
            except MeteorError as error:
                count = sum(len(targets) for _, targets in batch)
                self.lost += count
                log.info("%d notifications did not reach %s: %s", count, address, error)

    def answer(self, body: Value) -> Value:
        """Take deliveries from another peer."""
        match body:
            case list() as deliveries:
                for entry in deliveries:
                    match entry:
                        case [message, list() as targets]:
                            self.deliver(Message.from_wire(message), _read_targets(targets))
                        case _:
                            raise InputError("what came is not a delivery")
                return True
            case _:
                raise InputError("what came are not deliveries")

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
        self.waiting = _Waiting[tuple[Message, list[str]]]()
        self._missed = 0

    def offer(self, message: Message, watches: list[str]) -> bool:
        """Queue a notification; False when the client is too slow for it."""
        if self.waiting.put((message, watches)):
            return True
        self._missed += len(watches)
        return False

    async def run(self) -> None:
        """Send what is queued, as it comes."""
        while True:
            batch = await self.waiting.take()
            missed, self._missed = self._missed, 0
            body = [[[message.to_wire(), watches] for message, watches in batch], missed]
            try:
                await self._channel.push("notify", body)
            except ConnectionLost:
                return


def _parts(targets: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    for i in range(0, len(targets), TARGETS_PER_DELIVERY_MAX):
        yield targets[i : i + TARGETS_PER_DELIVERY_MAX]


class _Waiting(Generic[Queued]):
    """What waits to be sent one way: so many deliveries, and so many bytes."""

    def __init__(self) -> None:
        self._send, self._queue = trio.open_memory_channel[Queued](DELIVERIES_QUEUED_MAX)
        self.bytes = 0

    def put(self, entry: Queued) -> bool:
        """Queue a delivery; False when there is no room."""
        if self.bytes >= DELIVERIES_BYTES_MAX:
            return False
        try:
            self._send.send_nowait(entry)
        except trio.WouldBlock:
            return False
        self.bytes += _size(entry)
        return True

    def __len__(self) -> int:
        return self._queue.statistics().current_buffer_used

    async def take(self) -> list[Queued]:
        """Wait for a delivery; return what is queued by then, as much as one frame should hold."""
        batch = [await self._queue.receive()]
        size = _size(batch[0])
        while len(batch) < FRAME_NOTIFICATIONS_MAX and size < PAGE_BYTES:
            try:
                batch.append(self._queue.receive_nowait())
            except trio.WouldBlock:
                break
            size += _size(batch[-1])
        self.bytes -= size
        return batch


def _size(entry: tuple[Message, Sized]) -> int:
    message, targets = entry
    return weight(message) + TARGET_BYTES * len(targets)


def _read_targets(wire: list[Value]) -> list[tuple[str, str]]:
    targets: list[tuple[str, str]] = []
    for entry in wire:
        match entry:
            case [str() as client, str() as watch]:
                targets.append((client, watch))
            case _:
                raise InputError("what came is not a watcher")
    return targets
