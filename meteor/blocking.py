"""The client without async, for scripts and notebooks.

    with meteor.blocking.connect("127.0.0.1:7400") as ring:
        ring.store("type=temperature, degree=91, unit=Fahrenheit", b"...", ttl=600)
        with ring.watch("type=temperature, degree=80..120, unit=Fa*", timeout=5) as matches:
            for match in matches:
                print(match.profile, match.data)

Names, arguments and errors are those of `meteor.connect`. One background thread runs that client
for each connection; any threads may use it. In a notebook, keep the ring and `close()` it at the
end; a program that ends without that is not kept from ending.
"""

from __future__ import annotations

import atexit
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial, wraps
from math import inf
from threading import Thread
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

import trio

from meteor import client
from meteor.client.results import Item, Receipt
from meteor.client.retrieval import Retrieval as AsyncRetrieval
from meteor.client.ring import DEADLINE_SECONDS
from meteor.client.watch import Match
from meteor.client.watch import Watch as AsyncWatch
from meteor.client.watch import WatchMany as AsyncWatchMany
from meteor.errors import ConnectionLost
from meteor.limits import GOODBYE_SECONDS, KEEP_SECONDS

P = ParamSpec("P")
T = TypeVar("T")


def connect(
    *addresses: str, name: str = "", credential: str = "", seconds: float = DEADLINE_SECONDS
) -> Ring:
    """Connect to a ring through any of its peers; use it in a `with`, or `close()` it.

    `name` tells others who sent a message; `credential` protects what is posted from being deleted
    or consumed by others. `seconds` bounds every operation.
    """
    return Ring(client.connect(*addresses, name=name, credential=credential, seconds=seconds))


def _twin(
    method: Callable[Concatenate[client.Ring, P], Awaitable[T]],
) -> Callable[Concatenate[Ring, P], T]:
    """Return the blocking twin of a method."""

    @wraps(method)
    def blocking(self: Ring, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(partial(method, self._ring, *args, **kwargs))

    return blocking


class Ring:
    """A ring, as a program without async uses it. Made by `connect`."""

    def __init__(self, connecting: AbstractAsyncContextManager[client.Ring]) -> None:
        self._thread = _ClientThread(connecting)
        self._ring = self._thread.ring
        self.client = self._ring.client
        """Who this client is to others: the sender of its messages."""

    def __enter__(self) -> Ring:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what goes on here, the iterations of watches too, and the background thread."""
        self._thread.close()

    post = _twin(client.Ring.post)
    store = _twin(client.Ring.store)
    post_many = _twin(client.Ring.post_many)
    delete = _twin(client.Ring.delete)
    unwatch = _twin(client.Ring.unwatch)
    aggregate = _twin(client.Ring.aggregate)
    consume = _twin(client.Ring.consume)
    statistics = _twin(client.Ring.statistics)
    report = _twin(client.Ring.report)
    trace = _twin(client.Ring.trace)
    space = _twin(client.Ring.space)
    move = _twin(client.Ring.move)
    leave = _twin(client.Ring.leave)
    forget = _twin(client.Ring.forget)

    def retrieve(self, profile: str, *, limit: int | None = None) -> Retrieval:
        """Look for data: `for item in ring.retrieve(...)`, or `.all()` for a list.

        `limit=1` is any one match. Matches come page by page, so there may be any number of them.
        """
        return Retrieval(self._thread, self._ring.retrieve(profile, limit=limit))

    @contextmanager
    def watch(
        self,
        profile: str,
        *,
        replay: bool = False,
        reliable: str | None = None,
        keep: float = KEEP_SECONDS,
        timeout: float | None = None,
    ) -> Iterator[Watch]:
        """Be notified of data: `with ring.watch(...) as matches: for match in matches`.

        With `replay` what is stored already comes first, then what comes; nothing is left out in
        between and nothing comes twice. `reliable` names an inbox at the ring, where notifications
        wait for `keep` seconds until the next is asked for. With `timeout` the iteration stops when
        nothing came for so many seconds; the watch stays, and may be iterated over again.
        """
        watching = self._ring.watch(profile, replay=replay, reliable=reliable, keep=keep)
        with self._thread.keeping(watching) as watch:
            yield Watch(self._thread, watch, timeout)

    @contextmanager
    def watch_many(
        self, profiles: Iterable[str], *, timeout: float | None = None
    ) -> Iterator[WatchMany]:
        """Be notified of data by many profiles; each match has the item and which of them it met.

        `timeout` as for `watch`.
        """
        with self._thread.keeping(self._ring.watch_many(profiles)) as watch:
            yield WatchMany(self._thread, watch, timeout)

    @contextmanager
    def notify_interest(self, profile: str, *, timeout: float | None = None) -> Iterator[Watch]:
        """Be notified of interests in data that one could post; `timeout` as for `watch`."""
        with self._thread.keeping(self._ring.notify_interest(profile)) as watch:
            yield Watch(self._thread, watch, timeout)


class Retrieval:
    """An iterator of items.

    At its end `complete` says whether every responsible peer has answered.
    """

    def __init__(self, thread: _ClientThread, retrieval: AsyncRetrieval) -> None:
        self._thread, self._retrieval = thread, retrieval

    def __iter__(self) -> Retrieval:
        return self

    def __next__(self) -> Item:
        item = self._thread.call(lambda: anext(self._retrieval, None))
        if item is None:
            raise StopIteration
        return item

    def all(self) -> list[Item]:
        """Return everything as a list."""
        return self._thread.call(self._retrieval.all)

    @property
    def complete(self) -> bool:
        """Every responsible peer has answered."""
        return self._retrieval.complete

    @property
    def lost(self) -> tuple[str, ...]:
        """Peers out of reach that may know of more."""
        return self._retrieval.lost

    @property
    def peers(self) -> int:
        """The peers that answered."""
        return self._retrieval.peers

    @property
    def matches(self) -> int:
        """The matches so far."""
        return self._retrieval.matches


class Watch:
    """An iterator of items, for one thread at a time.

    It stops when the connection is closed, or when nothing came for the seconds of its timeout.
    """

    def __init__(self, thread: _ClientThread, watch: AsyncWatch, timeout: float | None) -> None:
        self._thread, self._watch = thread, watch
        self._seconds = inf if timeout is None else timeout

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Item:
        item = self._thread.call(self._next)
        if item is None:
            raise StopIteration
        return item

    async def _next(self) -> Item | None:
        return await _next_within(self._seconds, self._watch)

    @property
    def id(self) -> str:
        """The id of the watch at the ring."""
        return self._watch.id

    @property
    def lost(self) -> int:
        """The items that did not get here."""
        return self._watch.lost

    @property
    def receipt(self) -> Receipt | None:
        """What the ring said when the watch was posted."""
        return self._watch.receipt


class WatchMany:
    """An iterator of matches, for one thread at a time; it stops as `Watch` does."""

    def __init__(self, thread: _ClientThread, watch: AsyncWatchMany, timeout: float | None) -> None:
        self._thread, self._watch = thread, watch
        self._seconds = inf if timeout is None else timeout

    def __iter__(self) -> WatchMany:
        return self

    def __next__(self) -> Match:
        match = self._thread.call(partial(_next_within, self._seconds, self._watch))
        if match is None:
            raise StopIteration
        return match

    @property
    def lost(self) -> int:
        """The matches that did not get here."""
        return self._watch.lost


async def _next_within(seconds: float, entries: AsyncIterator[T]) -> T | None:
    """Return the next entry; None at the end, or when nothing comes in so many seconds."""
    with trio.move_on_after(seconds):
        return await anext(entries, None)
    return None


class _ClientThread:
    """A thread that runs the client, and calls into it from others.

    It is a daemon, so a program that ends without closing is not kept from ending. Daemons do not
    run when the interpreter takes things down, so nothing may be called from then on.
    """

    def __init__(self, connecting: AbstractAsyncContextManager[client.Ring]) -> None:
        self._connecting = connecting
        self._interrupted, self._closing = trio.CancelScope(), trio.Event()
        self._over: Exception | None = None
        """Why there is nothing to call any more."""
        self._token: Future[trio.lowlevel.TrioToken] = Future()
        self._connected: Future[tuple[client.Ring, trio.Nursery]] = Future()
        self._thread = Thread(target=self._run, name="meteor.blocking", daemon=True)
        self._thread.start()
        try:
            self.ring, self._nursery = self._connected.result()
        except BaseException:  # Ctrl-C as well
            self._soon(self._interrupted.cancel)
            self._thread.join()
            raise
        atexit.register(self._close_at_exit)

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the client's thread and return or raise what it does.

        When the caller is interrupted meanwhile (Ctrl-C) the function is cancelled.
        """
        if self._over is not None:
            raise self._over
        scope = trio.CancelScope()

        async def within_scope() -> T:
            with scope:
                return await function()
            raise ConnectionLost("interrupted")  # the caller is gone and does not see this

        try:
            return trio.from_thread.run(within_scope, trio_token=self._token.result())
        except (trio.RunFinishedError, trio.Cancelled):
            self._thread.join()
            raise self._over or ConnectionLost("this connection is over") from None
        except RuntimeError:  # of a nursery that takes nothing more, if we are closing
            if self._over is None:
                raise
            raise self._over from None
        except BaseException:
            self._soon(scope.cancel)
            raise

    @contextmanager
    def keeping(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Keep an async context open in a task of its own while the body runs."""
        leaving, left = trio.Event(), trio.Event()
        collected = False

        async def keep(task_status: trio.TaskStatus[T]) -> None:
            async with manager as value:
                task_status.started(value)
                await leaving.wait()
            left.set()

        value: T = self.call(partial(self._nursery.start, keep))
        try:
            yield value
        except GeneratorExit:
            collected = True  # by the garbage collector, in any thread: it must not wait
            raise
        finally:
            self._soon(leaving.set)
            if not collected:
                with suppress(ConnectionLost):  # closed before it was left: it has ended already
                    self.call(left.wait)

    def close(self, seconds: float | None = None) -> None:
        """End the client and its thread; wait for that as long as it takes, or so many seconds."""
        atexit.unregister(self._close_at_exit)
        self._over = self._over or ConnectionLost("this connection is closed")
        self._soon(self._closing.set)
        self._thread.join(seconds)

    def _close_at_exit(self) -> None:
        self.close(GOODBYE_SECONDS)

    def _soon(self, function: Callable[[], object]) -> None:
        with suppress(trio.RunFinishedError):
            self._token.result().run_sync_soon(function)

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except Exception as error:  # noqa: BLE001 - raised where the client is used
            self._over = self._over or error
            if not self._connected.done():
                self._connected.set_exception(error)

    async def _serve(self) -> None:
        self._token.set_result(trio.lowlevel.current_trio_token())
        with self._interrupted:
            async with self._connecting as ring, trio.open_nursery() as nursery:
                self._connected.set_result((ring, nursery))
                await self._closing.wait()
                nursery.cancel_scope.cancel()
