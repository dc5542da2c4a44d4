"""Channels: handshakes, many requests at once, and what happens when either side misbehaves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arms.errors import MessageError, ProfileError
from meteor.errors import (
    Busy,
    ConnectionLost,
    InputError,
    NoAnswer,
    NoRing,
    ProtocolError,
    Refused,
    RemoteError,
)
from meteor.limits import (
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    HELLO_SECONDS_MAX,
    REQUESTS_IN_FLIGHT_MAX,
    SEND_BYTES_MAX,
)
from meteor.transport import channel as channel_module
from meteor.transport.channel import (
    Admit,
    Answer,
    Answerer,
    Channel,
    Hello,
    Kind,
    PushHandler,
    accepted,
    dialled,
)
from meteor.transport.frames import FrameDecoder, Value, encode
from meteor.transport.memory import MemoryNetwork
from meteor.transport.network import PromptStream
from squid.errors import SpaceError

PEER, ASKER = "peer:7400", "asker:1"


def welcome(hello: Hello) -> Hello:
    return {"role": "peer", "met": hello.get("role")}


async def echo(method: str, body: Value) -> Value:
    return [method, body]


class Line:
    """A peer that accepts, and the network to it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.network = MemoryNetwork(1, latency_seconds=(0.001, 0.02))
        self.nursery = nursery
        self.served: list[Channel | None] = []
        self.ran = trio.Event()
        """One channel of the peer has come to its end."""

    async def listen(self, answer: Answerer | None = echo, admit: Admit = welcome) -> None:
        async def serve(stream: trio.abc.Stream) -> None:
            channel = await accepted(stream, admit)
            self.served.append(channel)
            if channel is not None:
                await channel.run(answer)
            self.ran.set()

        await self.nursery.start(self.network.listen_at, PEER, serve)

    async def stranger(self) -> Stranger:
        """Dial, and say nothing yet."""
        return Stranger(await self.network.dial_from(ASKER, PEER))

    @asynccontextmanager
    async def dial(self, on_push: PushHandler | None = None) -> AsyncIterator[Channel]:
        stream = await self.network.dial_from(ASKER, PEER)
        async with dialled(stream, {"role": "asker"}, on_push) as channel:
            yield channel

    async def accept(self) -> Stranger:
        """Listen, and give the accepted stream of the next that dials, without a word."""
        send, receive = trio.open_memory_channel[trio.abc.Stream](0)

        async def serve(stream: trio.abc.Stream) -> None:
            await send.send(stream)
            await trio.sleep_forever()

        await self.nursery.start(self.network.listen_at, PEER, serve)
        return Stranger(None, receive)


class Stranger:
    """One end of a stream, by hand."""

    def __init__(
        self,
        stream: trio.abc.Stream | None,
        coming: trio.MemoryReceiveChannel[trio.abc.Stream] | None = None,
    ) -> None:
        self._stream, self._coming = stream, coming
        self._decoder = FrameDecoder()
        self._frames: list[Value] = []

    async def stream(self) -> trio.abc.Stream:
        if self._stream is None:
            assert self._coming is not None
            self._stream = await self._coming.receive()
        return self._stream

    async def send(self, *frames: Value) -> None:
        await (await self.stream()).send_all(b"".join(map(encode, frames)))

    async def send_bytes(self, data: bytes) -> None:
        await (await self.stream()).send_all(data)

    async def frame(self) -> Value:
        """Return the next frame, or None at the end."""
        stream = await self.stream()
        while not self._frames:
            data = await stream.receive_some()
            if not data:
                return None
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    async def greet(self) -> None:
        await self.send([Kind.HELLO, {"role": "peer"}])
        assert (await self.frame())[0] == Kind.HELLO

    async def close(self) -> None:
        await (await self.stream()).aclose()


@pytest.fixture
def line(nursery: trio.Nursery) -> Line:
    return Line(nursery)


# -- the handshake -------------------------------------------------------------------------------


async def test_both_sides_learn_who_the_other_is(autojump_clock: MockClock, line: Line) -> None:
    await line.listen()
    async with line.dial() as channel:
        assert channel.hello == {"role": "peer", "met": "asker"}
        assert await channel.request("say", "hello", 5) == ["say", "hello"]
        (served,) = line.served
        assert served is not None
        assert served.hello == {"role": "asker"}
    await line.ran.wait()


async def test_a_refusal_arrives_in_the_very_words(autojump_clock: MockClock, line: Line) -> None:
    words = "your space is 'lab', this ring's is 'house': start the peer with the ring's space file"

    def refuse(hello: Hello) -> Hello:
        raise Refused(words)

    await line.listen(admit=refuse)
    with pytest.raises(Refused) as refused:
        async with line.dial():
            pytest.fail("it was let in")
    assert str(refused.value) == words
    assert line.served == [None]


async def test_a_silent_stranger_is_closed_after_a_while(
    autojump_clock: MockClock, line: Line
) -> None:
    await line.listen()
    began = trio.current_time()
    stranger = await line.stranger()
    assert await stranger.frame() is None
    assert HELLO_SECONDS_MAX <= trio.current_time() - began < HELLO_SECONDS_MAX + 1
    assert line.served == [None]


async def test_a_stranger_that_dribbles_gets_no_more_time(
    autojump_clock: MockClock, line: Line, nursery: trio.Nursery
) -> None:
    await line.listen()
    began = trio.current_time()
    stranger = await line.stranger()

    async def dribble() -> None:
        for byte in encode([Kind.HELLO, {"role": "asker"}])[:5]:
            await stranger.send_bytes(bytes([byte]))
            await trio.sleep(0.9)

    nursery.start_soon(dribble)
    assert await stranger.frame() is None
    assert trio.current_time() - began < HELLO_SECONDS_MAX + 1


@pytest.mark.parametrize(
    ("garbage", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: peer\r\n\r\n", "not Meteor's protocol"),
        (bytes(range(256)), "not Meteor's protocol|not msgpack|not Meteor's"),
        (encode([Kind.REQUEST, 1, "post", None]), "the greeting is not Meteor's"),
        (encode([Kind.HELLO, "hello"]), "the greeting is not Meteor's"),
        (encode("hello"), "the greeting is not Meteor's"),
        (encode([Kind.HELLO, {"role": "x" * HELLO_BYTES_MAX}]), "the limit is 65,536"),
    ],
)
async def test_a_stranger_that_speaks_garbage_is_told_so_and_closed(
    autojump_clock: MockClock, line: Line, garbage: bytes, words: str
) -> None:
    await line.listen()
    stranger = await line.stranger()
    await stranger.send_bytes(garbage)
    kind, number, error, said = await stranger.frame()
    assert (kind, number, error) == (Kind.ERROR, 0, "refused")
    assert any(part in said for part in words.split("|"))
    assert await stranger.frame() is None
    async with line.dial() as channel:  # others are still served
        assert await channel.request("say", 1, 5) == ["say", 1]


async def test_a_stranger_that_goes_away_at_once(autojump_clock: MockClock, line: Line) -> None:
    await line.listen()
    await (await line.stranger()).close()
    await line.ran.wait()
    assert line.served == [None]


async def test_dialling_something_that_is_not_meteor(
    autojump_clock: MockClock, line: Line, nursery: trio.Nursery
) -> None:
    other = await line.accept()
    nursery.start_soon(other.send_bytes, b"SSH-2.0-OpenSSH_9.2\r\n")
    with pytest.raises(ProtocolError, match="not Meteor's protocol"):
        async with line.dial():
            pytest.fail("no greeting came")


async def test_dialling_something_that_says_nothing(
    autojump_clock: MockClock, line: Line, nursery: trio.Nursery
) -> None:
    nursery.start_soon((await line.accept()).stream)
    with pytest.raises(NoAnswer, match="no greeting within 5 s"):
        async with line.dial():
            pytest.fail("no greeting came")


async def test_dialling_something_that_hangs_up(
    autojump_clock: MockClock, line: Line, nursery: trio.Nursery
) -> None:
    nursery.start_soon((await line.accept()).close)
    with pytest.raises(ConnectionLost, match="the greeting"):
        async with line.dial():
            pytest.fail("no greeting came")


async def test_what_follows_the_greeting_at_once_is_not_lost_however_large(
    autojump_clock: MockClock, line: Line, nursery: trio.Nursery
) -> None:
    large = bytes(2 * HELLO_BYTES_MAX)
    other = await line.accept()
    nursery.start_soon(
        other.send, [Kind.HELLO, {}], [Kind.PUSH, "small", 1], [Kind.PUSH, "large", large]
    )
    pushed: list[tuple[str, Value]] = []
    async with line.dial(lambda method, body: pushed.append((method, body))):
        await trio.sleep(1)
    assert pushed == [("small", 1), ("large", large)]


# -- requests ------------------------------------------------------------------------------------


async def test_many_requests_in_flight_are_answered_in_any_order(
    autojump_clock: MockClock, line: Line
) -> None:
    order: list[int] = []

    async def slow_first(method: str, body: Value) -> Value:
        await trio.sleep(1 - body / 100)
        return body * 2

    await line.listen(slow_first)
    async with line.dial() as channel, trio.open_nursery() as nursery:

        async def ask(number: int) -> None:
            assert await channel.request("double", number, 5) == number * 2
            order.append(number)

        for number in range(90):
            nursery.start_soon(ask, number)
    assert sorted(order) == list(range(90))
    assert order.index(80) < order.index(10)


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        (InputError("a deadline of -1 s"), InputError, "a deadline of -1 s"),
        (Busy("later"), Busy, "later"),
        (RemoteError("the disk is full"), RemoteError, "the disk is full"),
        (NoRing("alone"), RemoteError, "alone"),
        (NoAnswer("x is slow"), RemoteError, "x is slow"),
        (Refused("not for you"), Refused, "not for you"),
        (ProfileError("a value is missing", "type=", 6), InputError, "column 6"),
        (MessageError("no TTL"), InputError, "no TTL"),
        (SpaceError(["no dimensions", "no name"]), InputError, "no dimensions\nno name"),
    ],
)
async def test_an_error_arrives_as_what_it_was(
    autojump_clock: MockClock, line: Line, raised: Exception, kind: type[Exception], words: str
) -> None:
    async def fail(method: str, body: Value) -> Value:
        raise raised

    await line.listen(fail)
    async with line.dial() as channel:
        with pytest.raises(kind) as error:
            await channel.request("post", None, 5)
        assert type(error.value) is kind
        assert words in str(error.value)


async def test_what_is_answered_at_once_needs_no_task(
    autojump_clock: MockClock, line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    went_on = trio.Event()

    async def later(body: Value) -> Value:
        await went_on.wait()
        return body

    def answer(method: str, body: Value) -> Answer:
        match method:
            case "now":
                went_on.set()
                return body
            case "later":
                return later(body)
            case "refuse":
                raise Busy("not now")
            case _:
                return object()

    await line.listen(answer)
    async with line.dial() as channel, trio.open_nursery() as nursery:
        nursery.start_soon(channel.request, "later", 1, 5)
        await trio.sleep(1)
        assert await channel.request("now", 2, 5) == 2, "what waits holds nothing up"
        with pytest.raises(Busy, match="not now"):
            await channel.request("refuse", None, 5)
        with pytest.raises(RemoteError, match="an internal error while answering 'odd'"):
            await channel.request("odd", None, 5)
        assert await channel.request("later", 3, 5) == 3
    assert "a bug met while answering 'odd'" in caplog.text


@pytest.mark.parametrize("unsayable", [object(), 1 << 64, "\ud800"])
async def test_a_bug_in_a_handler_is_logged_and_told_and_ends_nothing(
    autojump_clock: MockClock, line: Line, caplog: pytest.LogCaptureFixture, unsayable: Any
) -> None:
    async def buggy(method: str, body: Value) -> Value:
        match method:
            case "divide":
                return 1 / 0
            case "unsayable":
                return unsayable
            case "unsayable error":
                raise InputError(f"it was {unsayable}" if isinstance(unsayable, str) else "\ud800")
            case _:
                return body

    await line.listen(buggy)
    async with line.dial() as channel:
        for method in ("divide", "unsayable", "unsayable error"):
            with pytest.raises(RemoteError, match=f"an internal error while answering '{method}'"):
                await channel.request(method, None, 5)
        assert await channel.request("work", 5, 5) == 5
    bugs = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(bugs) == 3
    assert all(record.exc_info for record in bugs)


async def test_an_answer_that_is_too_large_is_told_and_the_channel_goes_on(
    autojump_clock: MockClock, line: Line
) -> None:
    async def large(method: str, body: Value) -> Value:
        return bytes(body)

    await line.listen(large)
    async with line.dial() as channel:
        with pytest.raises(InputError, match="the limit is 8,388,608"):
            await channel.request("page", FRAME_BYTES_MAX, 5)
        assert len(await channel.request("page", FRAME_BYTES_MAX - 100, 5)) > 1


async def test_a_request_that_is_too_large_is_not_sent(
    autojump_clock: MockClock, line: Line
) -> None:
    await line.listen()
    async with line.dial() as channel:
        with pytest.raises(InputError, match="the limit is 8,388,608"):
            await channel.request("post", bytes(FRAME_BYTES_MAX), 5)
        assert await channel.request("post", b"", 5) == ["post", b""]


async def test_no_answer_in_time_and_the_late_one_is_dropped(
    autojump_clock: MockClock, line: Line
) -> None:
    answered: list[Value] = []

    async def slow(method: str, body: Value) -> Value:
        await trio.sleep(body)
        answered.append(body)
        return body

    await line.listen(slow)
    async with line.dial() as channel:
        with pytest.raises(NoAnswer, match="no answer to 'wait' within 1 s"):
            await channel.request("wait", 2, 1)
        assert await channel.request("wait", 3, 10) == 3
        assert answered == [2, 3]


async def test_what_the_body_raises_leaves_the_channel_as_it_is(
    autojump_clock: MockClock, line: Line
) -> None:
    await line.listen()
    with pytest.raises(NoAnswer):
        async with line.dial() as channel:
            await channel.request("slow", None, 0)


async def test_busy_beyond_so_many_requests_at_once(autojump_clock: MockClock, line: Line) -> None:
    go = trio.Event()

    async def wait(method: str, body: Value) -> Value:
        await go.wait()
        return body

    await line.listen(wait)
    done: list[Value] = []
    async with line.dial() as channel, trio.open_nursery() as nursery:

        async def ask(number: int) -> None:
            done.append(await channel.request("wait", number, 60))

        for number in range(REQUESTS_IN_FLIGHT_MAX):
            nursery.start_soon(ask, number)
        await trio.sleep(1)
        with pytest.raises(Busy, match="too many"):
            await channel.request("wait", -1, 60)
        go.set()
        await trio.sleep(1)
        assert await channel.request("wait", -2, 60) == -2
    assert sorted(done) == list(range(REQUESTS_IN_FLIGHT_MAX))


# -- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "crash"])
async def test_everybody_who_waits_hears_that_the_other_side_is_gone(
    autojump_clock: MockClock, line: Line, how: str
) -> None:
    other = await line.accept()
    lost: list[int] = []
    line.nursery.start_soon(other.greet)
    async with line.dial() as channel, trio.open_nursery() as nursery:

        async def ask(number: int) -> None:
            with pytest.raises(ConnectionLost):
                await channel.request("wait", number, 60)
            lost.append(number)

        for number in range(20):
            nursery.start_soon(ask, number)
        await trio.sleep(1)
        if how == "close":
            await other.close()
        else:
            line.network.crash(PEER)
        await channel.closed.wait()
        with pytest.raises(ConnectionLost):
            await channel.request("wait", 20, 60)
    assert sorted(lost) == list(range(20))


async def test_the_work_for_an_asker_that_is_gone_is_ended(
    autojump_clock: MockClock, line: Line
) -> None:
    ended: list[str] = []

    async def work(method: str, body: Value) -> Value:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(method)

    await line.listen(work)
    with pytest.raises(NoAnswer):
        async with line.dial() as channel:
            await channel.request("work", None, 1)
    await line.ran.wait()
    assert ended == ["work"]


@pytest.mark.parametrize(
    "frame",
    [[Kind.HELLO, {}], [9, 1], [Kind.PUSH, "notify", 1], [Kind.REQUEST, "one", "post", 1], 5, []],
)
async def test_a_peer_closes_on_who_breaks_the_protocol(
    autojump_clock: MockClock, line: Line, frame: Value, caplog: pytest.LogCaptureFixture
) -> None:
    await line.listen()
    stranger = await line.stranger()
    await stranger.greet()
    await stranger.send(frame)
    assert await stranger.frame() is None
    assert "a frame of an unknown kind" in caplog.text


async def test_an_asker_closes_on_a_peer_that_breaks_the_protocol(
    autojump_clock: MockClock, line: Line
) -> None:
    other = await line.accept()
    line.nursery.start_soon(other.greet)
    async with line.dial() as channel, trio.open_nursery() as nursery:
        nursery.start_soon(other.send_bytes, b"\xff" * 10)
        with pytest.raises(ConnectionLost, match="broke the protocol: a frame that claims"):
            await channel.request("post", None, 60)


async def test_an_answer_that_nobody_waits_for_is_ignored(
    autojump_clock: MockClock, line: Line
) -> None:
    other = await line.accept()
    line.nursery.start_soon(other.greet)
    async with line.dial() as channel:
        await other.send([Kind.REPLY, 77, 1], [Kind.ERROR, 78, "input", "what?"])
        await trio.sleep(1)
        assert not channel.closed.is_set()


# -- sending -------------------------------------------------------------------------------------


class Noted(trio.abc.Stream):
    """A stream that notes what is sent, one entry for each `send_all`."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.sent: list[bytes] = []
        self._stream = stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


async def test_what_is_ready_is_sent_in_one_go(autojump_clock: MockClock, line: Line) -> None:
    await line.listen()
    noted = Noted(await line.network.dial_from(ASKER, PEER))
    async with dialled(noted, {}) as channel:
        noted.sent.clear()
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(channel.request, "post", number, 5)
        assert len(noted.sent) == 1
        assert len(FrameDecoder().feed(noted.sent[0])) == 50
        await channel.request("post", 50, 5)
        assert len(noted.sent) == 2, "and a single one does not wait for others"


class Stingy(Noted, PromptStream):
    """A stream that takes so many bytes at once, and notes them too."""

    room = 1 << 20

    def send_now(self, data: bytes) -> int:
        assert isinstance(self._stream, PromptStream)
        self.sent.append(data[: self.room])
        self._stream.send_now(self.sent[-1])
        return len(self.sent[-1])


async def test_a_frame_is_sent_at_once_and_what_follows_it_goes_together(
    autojump_clock: MockClock, line: Line
) -> None:
    await line.listen()
    stream = Stingy(await line.network.dial_from(ASKER, PEER))
    async with dialled(stream, {}) as channel:
        stream.sent.clear()
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(channel.request, "post", number, 5)
        assert [len(FrameDecoder().feed(sent)) for sent in stream.sent] == [1, 49]


@pytest.mark.parametrize("room", [0, 1, 5, 20])
async def test_what_does_not_fit_at_once_follows_before_anything_else(
    autojump_clock: MockClock, line: Line, room: int
) -> None:
    await line.listen()
    stream = Stingy(await line.network.dial_from(ASKER, PEER))
    stream.room = room
    async with dialled(stream, {}) as channel:
        for number in range(10):
            assert await channel.request("post", number, 5) == ["post", number]
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(channel.request, "post", number, 5)


async def test_pushes_arrive_in_order(autojump_clock: MockClock, line: Line) -> None:
    await line.listen()
    pushed: list[Value] = []
    async with line.dial(lambda method, body: pushed.append((method, body))) as channel:
        (served,) = line.served
        assert served is not None
        for number in range(20):
            await served.push("notify", number)
        await channel.request("after", None, 5)
    assert pushed == [("notify", number) for number in range(20)]


async def test_senders_wait_while_too_much_is_queued_and_all_of_them_go_on(
    autojump_clock: MockClock, line: Line, nursery: trio.Nursery
) -> None:
    await line.listen()
    stranger = await line.stranger()
    await stranger.greet()
    (channel,) = line.served
    assert channel is not None
    large = bytes(FRAME_BYTES_MAX // 2)
    pushed: list[int] = []

    async def push(number: int) -> None:
        await channel.push("large", large)
        pushed.append(number)

    for number in range(12):
        nursery.start_soon(push, number)
    await wait_all_tasks_blocked()
    assert len(pushed) * len(large) <= SEND_BYTES_MAX + len(large), "the last one may go beyond"
    for _ in range(12):
        assert (await stranger.frame())[1] == "large"
    await wait_all_tasks_blocked()
    assert sorted(pushed) == list(range(12))


async def test_senders_that_wait_hear_that_the_other_side_is_gone(
    autojump_clock: MockClock, line: Line, nursery: trio.Nursery
) -> None:
    await line.listen()
    stranger = await line.stranger()
    await stranger.greet()
    (channel,) = line.served
    assert channel is not None
    lost: list[int] = []

    async def push(number: int) -> None:
        try:
            await channel.push("large", bytes(FRAME_BYTES_MAX // 2))
        except ConnectionLost:
            lost.append(number)

    for number in range(12):
        nursery.start_soon(push, number)
    await wait_all_tasks_blocked()
    await stranger.close()
    await line.ran.wait()
    await wait_all_tasks_blocked()
    assert len(lost) >= 5


async def test_who_asks_and_never_reads_is_not_read_from(
    autojump_clock: MockClock, line: Line, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a peer holds for one that does not listen is bounded; later nothing is missing."""
    monkeypatch.setattr(channel_module, "REQUESTS_IN_FLIGHT_MAX", 8)
    monkeypatch.setattr(channel_module, "SEND_BYTES_MAX", 100_000)
    asked = 0

    async def large(method: str, body: Value) -> Value:
        nonlocal asked
        asked += 1
        return bytes(1_000_000)

    await line.listen(large)
    stranger = await line.stranger()
    await stranger.greet()
    count, sent = 300, trio.Event()

    async def ask() -> None:
        for number in range(count):
            await stranger.send([Kind.REQUEST, number, "page", bytes(50_000)])
        sent.set()

    nursery.start_soon(ask)
    await trio.sleep(60)
    assert not sent.is_set()
    assert asked <= 8 + 4, "in flight, queued, being written, in the stream's buffer"
    answers = [await stranger.frame() for _ in range(count)]
    assert sorted(answer[1] for answer in answers) == list(range(count))
    assert {answer[0] for answer in answers} == {Kind.REPLY, Kind.ERROR}
