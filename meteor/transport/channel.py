"""Many requests in flight on one stream.

A channel begins with a handshake: each side says hello, and the side that accepted may refuse in
words. Then the side that dialled asks, and the side that accepted answers, in any order, and may
push. Nobody both asks and answers on one channel: the side that dialled always reads on, so the
other can make it wait when it has too much to do, and two peers can't lock each other up.

A frame goes out at once when nothing is on its way before it. What comes while that is so, or right
after it, goes out together in one write; nobody waits to fill a batch.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from enum import IntEnum
from types import CoroutineType
from typing import Any

import trio

from arms.errors import ArmsError, StoreError
from meteor.background import background_nursery
from meteor.errors import (
    Busy,
    ConnectionLost,
    InputError,
    MeteorError,
    NoAnswer,
    ProtocolError,
    Refused,
    RemoteError,
)
from meteor.limits import (
    HELLO_BYTES_MAX,
    HELLO_SECONDS_MAX,
    REQUESTS_IN_FLIGHT_MAX,
    SEND_BYTES_MAX,
)
from meteor.transport.frames import FrameDecoder, Value, encode
from meteor.transport.network import PromptStream
from squid.errors import SquidError

log = logging.getLogger("meteor.transport")


class Kind(IntEnum):
    """The first entry of every frame; the comment says what follows it."""

    HELLO = 0  # map
    REQUEST = 1  # number, method, body
    REPLY = 2  # number, body
    ERROR = 3  # number, kind of error, words
    PUSH = 4  # method, body


ERROR_KINDS: dict[str, type[MeteorError]] = {
    "input": InputError,
    "busy": Busy,
    "refused": Refused,
    "remote": RemoteError,
}

BUSY = "this peer has too many of your requests to work on; try again later"

RECEIVE_BYTES = 256 * 1024

TOGETHER_SECONDS = 0.0001
"""Frames that follow each other faster go out together: a write costs as much as some frames."""

Hello = dict[str, Any]
Answer = Value | Coroutine[Any, Any, Value]
"""An answer, or a coroutine that gives it: only that takes a task of its own."""

Answerer = Callable[[str, Value], Answer]
PushHandler = Callable[[str, Value], None]
Admit = Callable[[Hello], Hello]


class Channel:
    """One side of a stream that has shaken hands."""

    def __init__(self, stream: trio.abc.Stream, decoder: FrameDecoder, early: list[Value]) -> None:
        self.hello: Hello = {}
        self.closed = trio.Event()
        self.heard = trio.current_time()
        """When something came from the other side last."""
        self._stream = stream
        self._prompt = stream if isinstance(stream, PromptStream) else None
        self._last_sent = -math.inf
        self._decoder = decoder
        self._early = early
        self._outgoing: deque[bytes] = deque()
        self._outgoing_bytes = 0
        self._something_to_send = trio.Event()
        self._room_to_send = trio.Event()
        self._waiting: dict[int, _Waiter] = {}
        self._next_number = 0
        self._in_flight = 0
        self._why_closed = "the connection was closed"

    # -- asking ----------------------------------------------------------------------------------

    async def request(self, method: str, body: Value, seconds: float) -> Value:
        """Ask, and return the answer.

        Raises `NoAnswer`, `ConnectionLost`, or what the other side raised.
        """
        if self.closed.is_set():
            raise ConnectionLost(self._why_closed)
        self._next_number += 1
        number, waiter = self._next_number, _Waiter()
        self._waiting[number] = waiter
        deadline = trio.current_time() + seconds
        try:
            frame = encode([Kind.REQUEST, number, method, body])
            is_free = self.is_free
            if is_free:  # it is on its way before anything else is done
                self._send_now(frame)
            with trio.move_on_at(deadline):
                if not is_free:
                    await self._send(frame)
                await waiter.event.wait()
        finally:
            del self._waiting[number]
        if not waiter.event.is_set():
            raise NoAnswer(f"no answer to {method!r} within {seconds:.3g} s")
        if waiter.error is not None:
            raise waiter.error
        return waiter.body

    async def push(self, method: str, body: Value) -> None:
        """Send something that needs no answer."""
        await self.send([Kind.PUSH, method, body])

    def push_now(self, method: str, body: Value) -> None:
        """Send likewise, without a pause; only while the channel is free."""
        self._send_now(encode([Kind.PUSH, method, body]))

    async def send(self, frame: Value) -> None:
        """Send a frame, or queue it; waits while too much is queued already."""
        await self._send(encode(frame))

    @property
    def is_free(self) -> bool:
        """Whether nothing is on its way, so that a frame goes out at once."""
        return (
            self._prompt is not None
            and not self._outgoing_bytes
            and trio.current_time() - self._last_sent >= TOGETHER_SECONDS
        )

    async def _send(self, data: bytes) -> None:
        while self._outgoing_bytes > SEND_BYTES_MAX and not self.closed.is_set():
            await self._room_to_send.wait()
        self._put(data)

    def _put(self, data: bytes) -> None:
        if self.closed.is_set():
            raise ConnectionLost(self._why_closed)
        if self.is_free:
            self._send_now(data)
        else:
            self._outgoing.append(data)
            self._outgoing_bytes += len(data)
            self._something_to_send.set()

    def _send_now(self, data: bytes) -> None:
        """Send a frame while nothing is on its way; what there is no room for is queued."""
        if self._prompt is None or self.closed.is_set():
            raise ConnectionLost(self._why_closed)
        self._last_sent = trio.current_time()
        try:
            sent = self._prompt.send_now(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._why_closed = "the connection was lost"
            self._close()  # the reader sees the end of the stream too, and ends the run
            raise ConnectionLost(self._why_closed) from None
        if sent < len(data):
            self._outgoing.append(data[sent:])
            self._outgoing_bytes += len(data) - sent
            self._something_to_send.set()

    # -- running ---------------------------------------------------------------------------------

    async def run(self, answer: Answerer | None = None, on_push: PushHandler | None = None) -> None:
        """Read, write and answer until the stream ends; what the other side does never raises."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                await self._read(nursery, answer, on_push)
                nursery.cancel_scope.cancel()
        finally:
            self._close()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await trio.aclose_forcefully(self._stream)

    async def _read(
        self, nursery: trio.Nursery, answer: Answerer | None, on_push: PushHandler | None
    ) -> None:
        frames = self._early
        self._early = []
        try:
            while True:
                for frame in frames:
                    await self._handle(frame, nursery, answer, on_push)
                data = await self._stream.receive_some(RECEIVE_BYTES)
                if not data:
                    return
                self.heard = trio.current_time()
                frames = self._decoder.feed(data)
        except ProtocolError as error:
            self._why_closed = f"the other side broke the protocol: {error}"
            log.warning("closing a connection: %s", error)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._why_closed = "the connection was lost"
        except ConnectionLost:
            log.debug("the other side was gone before it heard that this one is busy")

    async def _handle(
        self,
        frame: Value,
        nursery: trio.Nursery,
        answer: Answerer | None,
        on_push: PushHandler | None,
    ) -> None:
        match frame:
            case [Kind.REPLY, int() as number, body]:
                if waiter := self._waiting.get(number):
                    waiter.body = body
                    waiter.event.set()
            case [Kind.ERROR, int() as number, str() as kind, str() as words]:
                if waiter := self._waiting.get(number):
                    waiter.error = ERROR_KINDS.get(kind, RemoteError)(words)
                    waiter.event.set()
            case [Kind.REQUEST, int() as number, str() as method, body] if answer is not None:
                await self._asked(nursery, answer, number, method, body)
            case [Kind.PUSH, str() as method, body] if on_push is not None:
                on_push(method, body)
            case _:
                raise ProtocolError("a frame of an unknown kind")

    async def _asked(
        self, nursery: trio.Nursery, answer: Answerer, number: int, method: str, body: Value
    ) -> None:
        """Answer a request, in a task if that takes its time.

        What is sent from here may wait: who does not listen to our answers is not read from either.
        """
        if self._in_flight >= REQUESTS_IN_FLIGHT_MAX:
            await self.send([Kind.ERROR, number, "busy", BUSY])
            return
        try:
            result = answer(method, body)
            if isinstance(result, CoroutineType):
                self._in_flight += 1
                nursery.start_soon(self._answer, result, number, method)
                return
            frame = encode([Kind.REPLY, number, result])
        except Exception as error:  # noqa: BLE001 - one request's bug must not end a peer
            frame = _error_frame(error, number, method)
        await self._send(frame)

    async def _answer(self, result: Coroutine[Any, Any, Value], number: int, method: str) -> None:
        try:
            try:
                frame = encode([Kind.REPLY, number, await result])
            except Exception as error:  # noqa: BLE001 - likewise
                frame = _error_frame(error, number, method)
            await self._send(frame)
        except ConnectionLost:
            log.debug("an answer to %r came too late: the asker is gone", method)
        finally:
            self._in_flight -= 1

    async def _write(self) -> None:
        try:
            while True:
                while not self._outgoing:
                    self._something_to_send = trio.Event()
                    await self._something_to_send.wait()
                data = self._outgoing[0] if len(self._outgoing) == 1 else b"".join(self._outgoing)
                self._outgoing.clear()
                await self._stream.send_all(data)
                self._outgoing_bytes -= len(data)
                self._room_to_send.set()
                self._room_to_send = trio.Event()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._close()  # the reader sees the end of the stream too, and ends the run

    def _close(self) -> None:
        self.closed.set()
        self._room_to_send.set()
        for waiter in self._waiting.values():
            if not waiter.event.is_set():
                waiter.error = ConnectionLost(self._why_closed)
                waiter.event.set()


class _Waiter:
    """Where one answer is waited for."""

    __slots__ = ("body", "error", "event")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.body: Value = None
        self.error: MeteorError | None = None


def _error_frame(error: Exception, number: int, method: str) -> bytes:
    """Return the frame that tells what came of a request instead of an answer."""
    if isinstance(error, (MeteorError, ArmsError, SquidError)):
        try:
            return encode([Kind.ERROR, number, _kind(error), str(error)])
        except Exception as unsayable:  # noqa: BLE001 - a bug too
            error = unsayable
    log.error("a bug met while answering %r", method, exc_info=error)
    words = f"an internal error while answering {method!r}"
    return encode([Kind.ERROR, number, "remote", words])


def _kind(error: Exception) -> str:
    if isinstance(error, StoreError):
        return "remote"  # our disk, not what was asked
    if isinstance(error, (ArmsError, SquidError)):
        return "input"
    for kind, error_type in ERROR_KINDS.items():
        if isinstance(error, error_type) and kind != "remote":
            return kind
    return "remote"


# -- the handshake -------------------------------------------------------------------------------


@asynccontextmanager
async def dialled(
    stream: trio.abc.Stream, hello: Hello, on_push: PushHandler | None = None
) -> AsyncIterator[Channel]:
    """Shake hands as the side that dialled; gives a running channel."""
    try:
        channel = await _greet(stream, hello)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    async with background_nursery() as nursery:
        nursery.start_soon(channel.run, None, on_push)
        yield channel


async def _greet(stream: trio.abc.Stream, hello: Hello) -> Channel:
    try:
        with trio.fail_after(HELLO_SECONDS_MAX):
            await stream.send_all(encode([Kind.HELLO, hello]))
            channel, frame = await _first_frame(stream)
    except trio.TooSlowError:
        raise NoAnswer(f"no greeting within {HELLO_SECONDS_MAX:.0f} s") from None
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        raise ConnectionLost("the connection was lost during the greeting") from error
    match frame:
        case [Kind.HELLO, dict() as theirs]:
            channel.hello = theirs
            return channel
        case [Kind.ERROR, _, str(), str() as words]:
            raise Refused(words)
        case _:
            raise ProtocolError("the greeting is not Meteor's")


async def accepted(stream: trio.abc.Stream, admit: Admit) -> Channel | None:
    """Shake hands as the side that accepted; None when there was nobody worth talking to.

    `admit` gets the other's hello and returns ours, or raises `Refused`: its words go back.
    """
    try:
        with trio.fail_after(HELLO_SECONDS_MAX):
            channel, frame = await _first_frame(stream)
            match frame:
                case [Kind.HELLO, dict() as theirs]:
                    channel.hello = theirs
                case _:
                    raise ProtocolError("the greeting is not Meteor's")
            await stream.send_all(encode([Kind.HELLO, admit(theirs)]))
            return channel
    except (Refused, ProtocolError) as error:
        log.warning("refused a connection: %s", error)
        with trio.move_on_after(1):
            await _last_words(stream, str(error))
    except (trio.TooSlowError, ConnectionLost, trio.BrokenResourceError, trio.ClosedResourceError):
        log.debug("a connection ended before its greeting")
    await trio.aclose_forcefully(stream)
    return None


async def _last_words(stream: trio.abc.Stream, words: str) -> None:
    try:
        await stream.send_all(encode([Kind.ERROR, 0, "refused", words]))
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        log.debug("the refused side was gone before it heard why")


async def _first_frame(stream: trio.abc.Stream) -> tuple[Channel, Value]:
    """Read up to the first frame; what came after it waits in the channel."""
    decoder = FrameDecoder(HELLO_BYTES_MAX)
    while True:
        data = await stream.receive_some(HELLO_BYTES_MAX)
        if not data:
            raise ConnectionLost("the connection was closed during the greeting")
        if values := decoder.feed(data):
            return Channel(stream, decoder, values[1:]), values[0]
