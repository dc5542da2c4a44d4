"""Group commit: while one transaction is being written, the next one gathers.

Nobody waits to fill a group: an idle writer starts at once, and a busy one finds everything that
arrived meanwhile in its next group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from arms.errors import StoreError
from arms.store import Store
from arms.writes import Put, PutBatch, Write
from meteor.errors import Busy
from meteor.limits import BYTES_IN_HAND_MAX, POSTS_IN_HAND_MAX, Bounds

GROUPS_QUEUED_MAX = 2 * POSTS_IN_HAND_MAX
"""Callers that may wait for a commit: all that this peer has admitted from its clients, and as much
that others bring. The next one is refused."""

WRITES_BYTES_MAX = 4 * BYTES_IN_HAND_MAX
"""What all those want written, in bytes of data: a quarter for this peer's own clients."""

GROUPS_PER_COMMIT_MAX = 2048
"""One transaction's share, so that the first of a long queue is not kept waiting for the last."""


class Pace(Protocol):
    """How long a simulated disk takes. What is written is safe when `finish` returns."""

    async def begin(self) -> None:
        """Wait before a transaction is written."""
        ...

    async def finish(self) -> None:
        """Wait until the transaction that was written is safe."""
        ...


class Writer:
    """The one writer of a store; in a thread, or at the pace of a simulated disk."""

    def __init__(self, store: Store, clock: Callable[[], int], pace: Pace | None = None) -> None:
        self._store, self._clock, self._pace = store, clock, pace
        self._send, self._receive = trio.open_memory_channel[_Group](GROUPS_QUEUED_MAX)
        self._bytes = 0
        self._thread = trio.CapacityLimiter(1)

    async def commit(self, writes: Sequence[Write]) -> list[int]:
        """Return the results of the writes once they are on disk; `StoreError` if they are not.

        Raises `Busy`, and writes nothing, when too much waits already.
        """
        if not writes:
            return []
        group = _Group(writes)
        self._queue(group)
        await group.done.wait()
        if group.error is not None:
            raise group.error
        return group.results

    def _queue(self, group: _Group) -> None:
        """Queue a group, or say at once that there is too much: who waits here has no deadline."""
        try:
            if self._bytes + group.size > WRITES_BYTES_MAX:
                raise trio.WouldBlock
            self._send.send_nowait(group)
        except trio.WouldBlock:
            waiting = self._receive.statistics().current_buffer_used
            raise Busy(
                f"this peer is busy: {waiting:,} groups of messages with {self._bytes:,} bytes "
                "wait for its disk. Nothing of this was stored; try again later"
            ) from None
        self._bytes += group.size

    def bounds(self) -> Bounds:
        """Say how much waits."""
        waiting = self._receive.statistics().current_buffer_used
        return {
            "groups that wait for a commit": (waiting, GROUPS_QUEUED_MAX),
            "bytes that wait for a commit": (self._bytes, WRITES_BYTES_MAX),
        }

    async def run(self) -> None:
        """Write until cancelled; what was begun is finished first."""
        async for first in self._receive:
            groups = [first]
            while len(groups) < GROUPS_PER_COMMIT_MAX:
                try:
                    groups.append(self._receive.receive_nowait())
                except trio.WouldBlock:
                    break
            with trio.CancelScope(shield=True):  # a thread can't be stopped half-way
                await self._write(groups)

    async def _write(self, groups: list[_Group]) -> None:
        now_ms, writes = self._clock(), [group.writes for group in groups]
        try:
            if self._pace is None:
                results = await trio.to_thread.run_sync(
                    self._store.write, now_ms, writes, limiter=self._thread
                )
            else:
                await self._pace.begin()
                results = self._store.write(now_ms, writes)
                await self._pace.finish()
            self._store.committed()
            for group, result in zip(groups, results, strict=True):
                group.results = result
        except StoreError as error:
            for group in groups:
                group.error = error
        for group in groups:
            self._bytes -= group.size
            group.done.set()
        # Whoever waited has a turn before each step: they are short, but add up.
        await trio.lowlevel.checkpoint()
        while self._store.tidy():
            await trio.lowlevel.checkpoint()


class _Group:
    __slots__ = ("done", "error", "results", "size", "writes")

    def __init__(self, writes: Sequence[Write]) -> None:
        self.writes = writes
        self.size = sum(map(_data_bytes, writes))
        self.done = trio.Event()
        self.results: list[int] = []
        self.error: StoreError | None = None


def _data_bytes(write: Write) -> int:
    match write:
        case Put(message):
            return len(message.data)
        case PutBatch(batch):
            return sum(map(len, batch.data))
        case _:
            return 0
