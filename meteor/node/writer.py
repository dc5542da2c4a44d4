"""Group commit: while one transaction is being written, the next one gathers.

Nobody waits to fill a group: an idle writer starts at once, and a busy one finds everything that
arrived meanwhile in its next group.

A thread stands by for as long as the writer runs. Whoever commits hands its work over directly, and
is woken directly when it is done: each task between them, and each thread that is asked for anew,
costs as much as the writing of some messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
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


Results = list[list[int]]
"""What came of each write of each group."""


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
        self._waiting: deque[_Group] = deque()
        self._bytes = 0
        self._begin: Callable[[], None] = lambda: None  # what an idle writer does when work comes
        self._changed = trio.Event()

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
        waiting = len(self._waiting)
        if waiting >= GROUPS_QUEUED_MAX or self._bytes + group.size > WRITES_BYTES_MAX:
            raise Busy(
                f"this peer is busy: {waiting:,} groups of messages with {self._bytes:,} bytes "
                "wait for its disk. Nothing of this was stored; try again later"
            )
        self._waiting.append(group)
        self._bytes += group.size
        self._begin()

    def bounds(self) -> Bounds:
        """Say how much waits."""
        return {
            "groups that wait for a commit": (len(self._waiting), GROUPS_QUEUED_MAX),
            "bytes that wait for a commit": (self._bytes, WRITES_BYTES_MAX),
        }

    async def run(self) -> None:
        """Write until cancelled; what was begun is finished first."""
        if self._pace is None:
            await self._run_thread()
        else:
            await self._run_paced()

    def _take(self) -> list[_Group]:
        groups: list[_Group] = []
        while self._waiting and len(groups) < GROUPS_PER_COMMIT_MAX:
            groups.append(self._waiting.popleft())
        return groups

    def _finish(self, groups: list[_Group], results: Results | StoreError) -> None:
        """Let readers find what was written, and tell who waits for it."""
        if isinstance(results, StoreError):
            for group in groups:
                group.error = results
        else:
            self._store.committed()
            for group, result in zip(groups, results, strict=True):
                group.results = result
        for group in groups:
            self._bytes -= group.size
            group.done.set()

    async def _tidy(self) -> None:
        # Whoever waited has a turn before each step: they are short, but add up.
        await trio.lowlevel.checkpoint()
        while self._store.tidy():
            await trio.lowlevel.checkpoint()

    # -- at a pace ---------------------------------------------------------------------------------

    async def _run_paced(self) -> None:
        self._begin = self._change
        while True:
            while not self._waiting:
                await self._changed.wait()
            with trio.CancelScope(shield=True):
                await self._write(self._take())

    async def _write(self, groups: list[_Group]) -> None:
        assert self._pace is not None
        await self._pace.begin()
        results = self._written(groups)
        await self._pace.finish()
        self._finish(groups, results)
        await self._tidy()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _written(self, groups: list[_Group]) -> Results | StoreError:
        try:
            return self._store.write(self._clock(), [group.writes for group in groups])
        except StoreError as error:
            return error

    # -- in a thread -------------------------------------------------------------------------------

    async def _run_thread(self) -> None:
        """Hand groups to a thread, one after the other, and tidy up after it."""
        jobs: SimpleQueue[list[_Group] | None] = SimpleQueue()
        token = trio.lowlevel.current_trio_token()
        idle, problem = True, None

        def work() -> None:
            while (groups := jobs.get()) is not None:
                token.run_sync_soon(done, groups, self._written(groups))

        def begin() -> None:
            nonlocal idle
            if idle and self._waiting:
                idle = False
                jobs.put(self._take())

        def done(groups: list[_Group], results: Results | StoreError) -> None:
            nonlocal idle, problem
            try:
                self._finish(groups, results)
            except Exception as error:  # noqa: BLE001 - a bug, which is to end the writer's task
                problem = error
            idle = True
            begin()
            self._change()

        async with trio.open_nursery() as nursery:
            # With a limiter of its own: it stays, and must not take the place of others.
            thread = partial(trio.to_thread.run_sync, work, limiter=trio.CapacityLimiter(1))
            nursery.start_soon(thread)
            try:
                self._begin = begin
                begin()
                while problem is None:
                    await self._changed.wait()
                    await self._tidy()
                raise problem
            finally:
                jobs.put(None)  # a thread can't be stopped half-way


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
