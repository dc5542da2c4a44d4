"""The network in memory: TCP's twin for simulated rings, on trio's clock and one seed.

Whatever is sent arrives after a latency drawn from the seed, on a grid of milliseconds so that
events tie as they do in life. A stream is ordered and loses nothing, as TCP's are; a cut link stays
silent, in one direction or both, as a network does, until it is healed: not even an end is heard
of.

A `Meddler` may do worse than TCP: lose, repeat and reorder the frames of a stream. Within one
connection that does not happen; but connections break, and what was asked is asked again over
another, with the same effect on whoever must bear it.
"""

from __future__ import annotations

import math
import operator
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Protocol

import trio

from meteor.errors import AddressError, ConnectionLost
from meteor.transport.network import Handler, PromptStream, parse_address

BUFFER_BYTES_MAX = 1024 * 1024
"""What one direction of a stream holds before its sender waits, like a socket's buffers."""

GRID_SECONDS = 0.001


class Meddler(Protocol):
    """Sees, and may change, what is on its way."""

    def passing(self, source: str, target: str, data: bytes, first: bool) -> Sequence[bytes] | None:
        """Return what arrives instead of some bytes, each piece in its own time; None: as sent.

        `first` are the first bytes of a direction: the greeting.
        """
        ...


class MemoryNetwork:
    """Streams between addresses of one process."""

    meddler: Meddler | None = None

    def __init__(self, seed: int = 0, latency_seconds: tuple[float, float] = (0.0, 0.0)) -> None:
        self._random = Random(f"network {seed}")
        self.latency_seconds = latency_seconds
        """The least and the most that what is sent takes to arrive."""
        self._listeners: dict[str, Callable[[MemoryStream], None]] = {}
        self._open: dict[MemoryStream, None] = {}  # in the order of their opening, unlike a set
        self._cut: set[tuple[str, str]] = set()  # from, to
        self._healed = trio.Event()

    def host(self, address: str) -> HostNetwork:
        """Return the network as one host sees it: what it dials comes from that address."""
        return HostNetwork(self, address)

    def cut(self, a: str, b: str) -> None:
        """Silence the link between two addresses."""
        self._cut |= {(a, b), (b, a)}

    def cut_one_way(self, source: str, target: str) -> None:
        """Silence the link in one direction."""
        self._cut.add((source, target))

    def heal(self, a: str = "", b: str = "") -> None:
        """Restore every link that was cut, or the one between two addresses."""
        self.sever(self._cut - {(a, b), (b, a)} if a else ())

    def sever(self, links: Iterable[tuple[str, str]]) -> None:
        """Silence these links, each from one address to another, and restore all others."""
        self._cut = set(links)
        self._healed.set()
        self._healed = trio.Event()
        for stream in self._open:
            stream.wake()

    def crash(self, address: str) -> None:
        """Reset every stream of an address and refuse new ones, as the death of its process does.

        The tasks that ran there are the caller's to cancel.
        """
        self._listeners.pop(address, None)
        for stream in [stream for stream in self._open if stream.here == address]:
            stream.reset()

    def reset(self, a: str, b: str) -> None:
        """Break every stream between two addresses, at both ends."""
        for stream in [s for s in self._open if (s.here, s.there) == (a, b)]:
            stream.reset()

    def is_cut(self, source: str, target: str) -> bool:
        """Say whether nothing comes from one address to another."""
        return (source, target) in self._cut

    def latency(self) -> float:
        """Draw a latency, on the grid."""
        drawn = self._random.uniform(*self.latency_seconds)
        return math.ceil(drawn / GRID_SECONDS) * GRID_SECONDS

    def arrival(self) -> float:
        """Draw when something that is sent now arrives: a latency later, on the grid again."""
        return round((trio.current_time() + self.latency()) / GRID_SECONDS) * GRID_SECONDS

    def opened(self, stream: MemoryStream) -> None:
        """Keep an end of a stream in mind."""
        self._open[stream] = None

    def ended(self, stream: MemoryStream) -> None:
        """Forget an end of a stream."""
        self._open.pop(stream, None)

    async def dial_from(self, source: str, address: str) -> trio.abc.Stream:
        """Open a stream between two addresses."""
        parse_address(address)
        await trio.sleep_until(self.arrival())
        while self.is_cut(source, address) or self.is_cut(address, source):
            await self._healed.wait()
        accept = self._listeners.get(address)
        if accept is None:
            raise ConnectionLost(f"nobody answers at {address}: Connection refused")
        here, there = MemoryStream(self, source, address), MemoryStream(self, address, source)
        here.other, there.other = there, here
        accept(there)
        return here

    async def listen_at(
        self,
        address: str,
        handler: Handler,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept streams until cancelled; each is closed when its handler returns."""
        parse_address(address)
        if address in self._listeners:
            raise AddressError(
                f"can't listen at {address}: the port is in use, perhaps by another peer; "
                "choose another port"
            )

        async def serve(stream: MemoryStream) -> None:
            try:
                await handler(stream)
            finally:
                stream.close()

        async with trio.open_nursery() as nursery:

            def accept(stream: MemoryStream) -> None:
                nursery.start_soon(serve, stream)

            self._listeners[address] = accept
            task_status.started(address)
            try:
                await trio.sleep_forever()
            finally:
                if self._listeners.get(address) is accept:  # else it crashed, and another is here
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


class MemoryStream(PromptStream):
    """One end of a stream in memory."""

    def __init__(self, network: MemoryNetwork, here: str, there: str) -> None:
        self.here, self.there = here, there
        self.other: MemoryStream = self
        self._network = network
        self._arriving: deque[tuple[float, int, memoryview]] = deque()  # no bytes: the end
        self._pieces = 0  # that were ever on their way here
        self._buffered = 0
        self._changed = trio.Event()
        self._closed = self._reset = False
        self._sending, self._receiving = _OneTask(), _OneTask()
        network.opened(self)

    def send_now(self, data: bytes) -> int:
        """Send bytes, all or none, if the other end has read enough."""
        with self._sending:
            self._must_be_open()
            if not data or self.other._buffered > BUFFER_BYTES_MAX:
                return 0
            self.other._arrive(data)
            return len(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; waits while the other end has too much to read."""
        with self._sending:
            await trio.lowlevel.checkpoint()
            self._must_be_open()
            if data:
                self.other._arrive(bytes(data))
                await self._wait_for_room()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the other end has read enough."""
        with self._sending:
            await trio.lowlevel.checkpoint()
            self._must_be_open()
            await self._wait_for_room()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes, or none at the end of the stream."""
        if max_bytes is not None and operator.index(max_bytes) < 1:
            raise ValueError("max_bytes must be at least 1")
        with self._receiving:
            await trio.lowlevel.checkpoint()
            while True:
                if self._closed:
                    raise trio.ClosedResourceError
                if self._reset or (self.other._reset and not self._is_cut):
                    raise trio.BrokenResourceError("the stream was reset")
                when = self._arriving[0][0] if self._arriving and not self._is_cut else math.inf
                if when <= trio.current_time():
                    return self._take(max_bytes)
                with trio.move_on_at(when):
                    await self._changed.wait()

    async def aclose(self) -> None:
        """Close this end; the other reads what was sent, then the end."""
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Close this end, without waiting."""
        if not self._closed:
            self._closed = True
            self._network.ended(self)
            self.other._arrive(b"")
            self.wake()

    def reset(self) -> None:
        """Break both ends at once; over a cut link, the other when it is healed."""
        self._reset = True
        self._network.ended(self)
        self.wake()
        self.other.wake()

    def wake(self) -> None:
        """Have whoever waits here look again."""
        self._changed.set()
        self._changed = trio.Event()

    @property
    def _is_cut(self) -> bool:
        return self._network.is_cut(self.there, self.here)

    def _must_be_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        gone = self.other._closed or self.other._reset
        if self._reset or (gone and not self._is_cut):
            raise trio.BrokenResourceError("the stream was reset")

    async def _wait_for_room(self) -> None:
        while self.other._buffered > BUFFER_BYTES_MAX:
            await self._changed.wait()
            self._must_be_open()

    def _arrive(self, data: bytes) -> None:
        meddler, first = self._network.meddler, not self._pieces
        pieces = meddler.passing(self.there, self.here, data, first) if meddler and data else None
        if pieces is None:
            earliest = self._arriving[-1][0] if self._arriving else 0.0
            self._put(max(self._network.arrival(), earliest), data)
        for piece in pieces or ():  # whole frames, so they may overtake each other
            self._put(self._network.arrival(), piece)
        self.wake()

    def _put(self, when: float, data: bytes) -> None:
        self._pieces += 1
        if self._arriving and self._arriving[-1][0] > when:
            begun = self._arriving[0][1] < 0  # a frame that was read in part stays the first
            head = self._arriving.popleft() if begun else None
            ordered = list(self._arriving)
            insort(ordered, (when, self._pieces, memoryview(data)), key=lambda piece: piece[:2])
            self._arriving = deque(ordered if head is None else [head, *ordered])
        else:
            self._arriving.append((when, self._pieces, memoryview(data)))
        self._buffered += len(data)

    def _take(self, max_bytes: int | None) -> bytes:
        when, number, data = self._arriving.popleft()
        taken = data[:max_bytes]
        if len(taken) < len(data) or not data:  # the end stays, to be read again
            self._arriving.appendleft((when, -abs(number), data[len(taken) :]))
        self._buffered -= len(taken)
        self.other.wake()
        return bytes(taken)


class _OneTask:
    """What a socket's stream does too: two tasks that send at once, or receive, are a bug."""

    def __init__(self) -> None:
        self._busy = False

    def __enter__(self) -> None:
        if self._busy:
            raise trio.BusyResourceError("another task is using this stream")
        self._busy = True

    def __exit__(self, *_: object) -> None:
        self._busy = False
