"""The network in memory: TCP's twin for simulated rings, on trio's clock and one seed.

Every byte that is sent arrives after a latency drawn from the seed, on a grid of milliseconds so
that events tie as they do in life. A stream is ordered and loses nothing, as TCP's are; a cut link
stays silent in both directions, as a network does, until it is healed.
"""

from __future__ import annotations

import math
from collections import deque
from random import Random

import trio

from meteor.errors import AddressError, ConnectionLost
from meteor.transport.network import Handler, parse_address

BUFFER_BYTES_MAX = 1024 * 1024
"""What one direction of a stream holds before its sender waits, like a socket's buffers."""

GRID_SECONDS = 0.001


class MemoryNetwork:
    """Streams between addresses of one process."""

    def __init__(self, seed: int = 0, latency_seconds: tuple[float, float] = (0.0, 0.0)) -> None:
        self._random = Random(f"network {seed}")
        self._latency_seconds = latency_seconds
        self._listeners: dict[str, trio.MemorySendChannel[trio.abc.Stream]] = {}
        self._streams: dict[str, list[MemoryStream]] = {}
        self._cut: set[frozenset[str]] = set()

    def host(self, address: str) -> HostNetwork:
        """Return the network as one host sees it: what it dials comes from that address."""
        return HostNetwork(self, address)

    def cut(self, a: str, b: str) -> None:
        """Silence the link between two addresses."""
        self._cut.add(frozenset((a, b)))

    def heal(self) -> None:
        """Restore every link that was cut."""
        self._cut.clear()

    def crash(self, address: str) -> None:
        """Reset every stream of an address, as the death of its process does."""
        for stream in self._streams.pop(address, []):
            stream.reset()

    def is_cut(self, a: str, b: str) -> bool:
        """Say whether the link between two addresses is silent."""
        return frozenset((a, b)) in self._cut

    def latency(self) -> float:
        """Draw a latency, on the grid."""
        drawn = self._random.uniform(*self._latency_seconds)
        return math.ceil(drawn / GRID_SECONDS) * GRID_SECONDS

    async def dial_from(self, source: str, address: str) -> trio.abc.Stream:
        """Open a stream between two addresses."""
        parse_address(address)
        await trio.sleep(self.latency())
        while self.is_cut(source, address):
            await trio.sleep(GRID_SECONDS * 100)
        listener = self._listeners.get(address)
        if listener is None:
            raise ConnectionLost(f"nobody answers at {address}: Connection refused")
        here, there = _pair(self, source, address)
        self._streams.setdefault(source, []).append(here)
        self._streams.setdefault(address, []).append(there)
        try:
            await listener.send(there)
        except trio.BrokenResourceError as error:
            raise ConnectionLost(f"nobody answers at {address}: Connection reset") from error
        return here

    async def listen_at(
        self,
        address: str,
        handler: Handler,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept streams until cancelled."""
        parse_address(address)
        if address in self._listeners:
            raise AddressError(f"can't listen at {address}: the port is in use")
        send, receive = trio.open_memory_channel[trio.abc.Stream](64)
        self._listeners[address] = send
        try:
            async with trio.open_nursery() as nursery, receive:
                task_status.started(address)
                async for stream in receive:
                    nursery.start_soon(handler, stream)
        finally:
            del self._listeners[address]


class HostNetwork:
    """A `MemoryNetwork` as one host sees it."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self._network = network
        self._address = address

    async def dial(self, address: str) -> trio.abc.Stream:
        """Open a stream to an address."""
        return await self._network.dial_from(self._address, address)

    async def listen(
        self,
        address: str,
        handler: Handler,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept streams until cancelled."""
        await self._network.listen_at(address, handler, task_status=task_status)


class MemoryStream(trio.abc.Stream):
    """One end of a stream in memory."""

    def __init__(self, network: MemoryNetwork, here: str, there: str) -> None:
        self._network = network
        self._here, self._there = here, there
        self._arriving: deque[tuple[float, bytes]] = deque()  # (when it is here, bytes)
        self._buffered = 0
        self._changed = trio.Event()
        self._closed = self._ended = self._broken = False
        self.other: MemoryStream = self

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; waits while the other end has too much to read."""
        await trio.lowlevel.checkpoint()
        other = self.other
        while other._buffered > BUFFER_BYTES_MAX and not (other._closed or self._broken):
            await other._changed.wait()
        if self._closed:
            raise trio.ClosedResourceError
        if self._broken or other._closed:
            raise trio.BrokenResourceError("the stream was reset")
        earliest = other._arriving[-1][0] if other._arriving else 0.0
        when = max(trio.current_time() + self._network.latency(), earliest)
        other._arriving.append((when, bytes(data)))
        other._buffered += len(data)
        other._wake()

    async def wait_send_all_might_not_block(self) -> None:
        """Return at once: `send_all` itself waits."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes, or none at the end of the stream."""
        await trio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise trio.ClosedResourceError
            if self._broken:
                raise trio.BrokenResourceError("the stream was reset")
            if self._arriving:
                when, data = self._arriving[0]
                if when > trio.current_time():
                    await trio.sleep_until(when)
                elif self._network.is_cut(self._here, self._there):
                    await trio.sleep(GRID_SECONDS * 10)
                else:
                    return self._take(data, max_bytes)
            elif self._ended:
                return b""
            else:
                await self._changed.wait()

    def _take(self, data: bytes, max_bytes: int | None) -> bytes:
        when, _ = self._arriving.popleft()
        if max_bytes is not None and len(data) > max_bytes:
            self._arriving.appendleft((when, data[max_bytes:]))
            data = data[:max_bytes]
        self._buffered -= len(data)
        self._wake()
        return data

    async def aclose(self) -> None:
        """Close this end; the other reads what was sent, then the end."""
        self._closed = True
        self.other._ended = True
        self._wake()
        self.other._wake()
        await trio.lowlevel.checkpoint()

    def reset(self) -> None:
        """Break both ends at once."""
        for end in (self, self.other):
            end._broken = True
            end._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _pair(network: MemoryNetwork, source: str, target: str) -> tuple[MemoryStream, MemoryStream]:
    here, there = MemoryStream(network, source, target), MemoryStream(network, target, source)
    here.other, there.other = there, here
    return here, there
