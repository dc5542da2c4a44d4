"""The two networks, sockets and memory, behave the same; the one in memory obeys its seed too."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, check_two_way_stream, wait_all_tasks_blocked

from meteor.errors import AddressError, ConnectionLost
from meteor.transport.memory import BUFFER_BYTES_MAX, GRID_SECONDS, MemoryNetwork
from meteor.transport.network import Network, PromptStream, format_address, parse_address
from meteor.transport.tcp import TcpNetwork

LARGE = bytes(range(256)) * 40_000  # 10 MB: more than any socket's buffers hold


@dataclass
class Place:
    """A network to listen at one address of, and to dial it."""

    network: Network
    address: str
    nobody: str


@pytest.fixture(params=["tcp", "memory"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "memory":
        return Place(MemoryNetwork().host("here:1"), "there:7400", "there:1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    return Place(TcpNetwork(), "127.0.0.1:0", f"127.0.0.1:{free}")


Opened = tuple[trio.abc.Stream, trio.abc.Stream]


@pytest.fixture
async def opener(
    place: Place, nursery: trio.Nursery
) -> AsyncIterator[Callable[[], Awaitable[Opened]]]:
    """Opens streams: gives the end that dialled, and the end that accepted."""
    send, receive = trio.open_memory_channel[trio.abc.Stream](1)

    async def accepted(stream: trio.abc.Stream) -> None:
        await send.send(stream)
        await trio.sleep_forever()

    address = await nursery.start(place.network.listen, place.address, accepted)

    dialled: list[trio.abc.Stream] = []

    async def opened() -> Opened:
        dialled.append(await place.network.dial(address))
        return dialled[-1], await receive.receive()

    yield opened
    for stream in dialled:
        await trio.aclose_forcefully(stream)


async def read_all(stream: trio.abc.Stream) -> bytes:
    return b"".join([bytes(data) async for data in stream])


async def stay(stream: trio.abc.Stream) -> None:
    """Handle a stream by keeping it open."""
    await trio.sleep_forever()


# -- the same on both ----------------------------------------------------------------------------


async def test_streams_keep_trios_contract(opener: Callable[[], Awaitable[Opened]]) -> None:
    async def clogged() -> Opened:
        here, there = await opener()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.send_all, LARGE)
            nursery.start_soon(there.send_all, LARGE)
            await wait_all_tasks_blocked(0.005)
            nursery.cancel_scope.cancel()
        return here, there

    await check_two_way_stream(opener, clogged)


async def test_both_directions_at_once(opener: Callable[[], Awaitable[Opened]]) -> None:
    here, there = await opener()
    got: dict[str, bytes] = {}

    async def talk(name: str, stream: trio.abc.Stream, data: bytes) -> None:
        async def listen() -> None:
            while len(got.setdefault(name, b"")) < len(data):
                got[name] += await stream.receive_some()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, data)
            nursery.start_soon(listen)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk, "here", here, b"a" * 100_000)
        nursery.start_soon(talk, "there", there, b"b" * 100_000)
    assert got == {"here": b"b" * 100_000, "there": b"a" * 100_000}


async def test_who_sends_much_waits_for_the_reader_and_all_of_it_arrives(
    opener: Callable[[], Awaitable[Opened]], nursery: trio.Nursery
) -> None:
    here, there = await opener()
    sent = trio.Event()

    async def send() -> None:
        await here.send_all(LARGE)
        sent.set()
        await here.aclose()

    nursery.start_soon(send)
    await wait_all_tasks_blocked(0.005)
    assert not sent.is_set()
    assert await read_all(there) == LARGE
    assert sent.is_set()


async def test_what_is_sent_at_once_arrives_in_its_turn(
    opener: Callable[[], Awaitable[Opened]],
) -> None:
    here, there = await opener()
    assert isinstance(here, PromptStream)
    assert here.send_now(b"one ") == 4
    await here.send_all(b"two ")
    assert here.send_now(b"three") == 5
    await here.aclose()
    assert await read_all(there) == b"one two three"
    with pytest.raises(trio.ClosedResourceError):
        here.send_now(b"four")


async def test_what_there_is_no_room_for_is_not_sent_at_once(
    opener: Callable[[], Awaitable[Opened]],
) -> None:
    here, there = await opener()
    assert isinstance(here, PromptStream)
    data, sent = LARGE[:100_000], b""
    while taken := here.send_now(data):
        sent += data[:taken]
        assert len(sent) < len(LARGE), "there is a bound"
    got = b""
    while len(got) < len(sent):
        got += await there.receive_some()
    assert got == sent
    assert here.send_now(b"more") == 4
    await trio.aclose_forcefully(there)

    async def send_on() -> None:
        while True:  # the kernel may take some more before it hears of it
            here.send_now(b"nobody reads this")
            await trio.sleep(0.01)

    with pytest.raises(trio.BrokenResourceError), trio.fail_after(5):
        await send_on()


async def test_a_stream_is_closed_when_its_handler_returns(place: Place) -> None:
    async def say_hello(stream: trio.abc.Stream) -> None:
        await stream.send_all(b"hello")

    async with trio.open_nursery() as nursery:
        address = await nursery.start(place.network.listen, place.address, say_hello)
        async with await place.network.dial(address) as stream:
            assert await read_all(stream) == b"hello"
        nursery.cancel_scope.cancel()


async def test_streams_end_when_their_listener_does(place: Place) -> None:
    async with trio.open_nursery() as nursery:
        address = await nursery.start(place.network.listen, place.address, stay)
        stream = await place.network.dial(address)
        await wait_all_tasks_blocked(0.005)
        nursery.cancel_scope.cancel()
    assert await stream.receive_some() == b""
    await stream.aclose()
    with pytest.raises(ConnectionLost):
        await place.network.dial(address)


async def test_nobody_there(place: Place) -> None:
    with pytest.raises(ConnectionLost, match=f"nobody answers at {place.nobody}: .*refused"):
        await place.network.dial(place.nobody)


async def test_a_port_in_use(place: Place, nursery: trio.Nursery) -> None:
    address = await nursery.start(place.network.listen, place.address, stay)
    with pytest.raises(AddressError, match=f"can't listen at {address}: the port is in use"):
        await place.network.listen(address, stay)


async def test_a_port_is_free_again_after_its_listener(place: Place) -> None:
    address = place.address
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(place.network.listen, address, stay)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "address",
    [
        *("", "7400", "localhost", ":7400", "host:", "host:port", "host:-1", "host:65536"),
        *("host:٣", "host:" + "9" * 5000, "::1:7400", "[::1:7400", "[]:7400"),
    ],
)
async def test_bad_addresses(place: Place, address: str) -> None:
    with pytest.raises(AddressError, match=r"is no address; write .*:7400"):
        await place.network.dial(address)
    with pytest.raises(AddressError, match=r"is no address; write .*:7400"):
        await place.network.listen(address, stay)


# -- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("127.0.0.1:7400", "127.0.0.1", 7400), ("[::1]:0", "::1", 0), ("lab-3:65535", "lab-3", 65535)],
)
def test_addresses_are_read_and_written(address: str, host: str, port: int) -> None:
    assert parse_address(address) == (host, port)
    assert format_address(host, port) == address


@pytest.mark.parametrize("host", ["a" * 70, "a..b"])
async def test_a_host_that_no_name_server_would_take(host: str) -> None:
    with pytest.raises(AddressError, match="is no address"):
        await TcpNetwork().dial(f"{host}:7400")
    with pytest.raises(AddressError, match="is no address"):
        await TcpNetwork().listen(f"{host}:7400", stay)


async def test_an_address_that_is_not_this_hosts() -> None:
    with pytest.raises(AddressError, match=r"can't listen at 192\.0\.2\.1:7400: .*assign"):
        await TcpNetwork().listen("192.0.2.1:7400", stay)


# -- in memory: latencies ------------------------------------------------------------------------


async def arrivals(seed: int) -> list[float]:
    """Send ten bytes one by one, and return when each arrived."""
    network = MemoryNetwork(seed, latency_seconds=(0.002, 0.03))
    times: list[float] = []
    began = trio.current_time()

    async def note(stream: trio.abc.Stream) -> None:
        async for data in stream:
            times.extend([trio.current_time() - began] * len(data))
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        await nursery.start(network.listen_at, "b:1", note)
        async with await network.dial_from("a:1", "b:1") as stream:
            for i in range(10):
                await stream.send_all(bytes([i]))
                await trio.sleep(0.01)
        await trio.sleep_forever()
    return times


def run_arrivals(seed: int) -> list[float]:
    return trio.run(arrivals, seed, clock=MockClock(autojump_threshold=0))


def test_the_same_seed_gives_the_same_timings() -> None:
    assert run_arrivals(7) == run_arrivals(7)
    assert run_arrivals(7) != run_arrivals(8)


def test_what_is_sent_arrives_on_the_grid_and_in_order() -> None:
    times = run_arrivals(3)
    assert len(times) == 10
    assert times == sorted(times)
    assert all(at == round(at / GRID_SECONDS) * GRID_SECONDS for at in times), "exactly: they tie"
    assert len({round(later - at, 3) for at, later in pairwise(times)}) > 3


@pytest.mark.parametrize("range_", [(0.0, 0.0), (0.001, 0.001), (0.0001, 0.0095)])
def test_latencies_are_whole_milliseconds_within_their_range(range_: tuple[float, float]) -> None:
    network = MemoryNetwork(1, range_)
    drawn = [network.latency() for _ in range(200)]
    assert all(at == round(at / GRID_SECONDS) * GRID_SECONDS for at in drawn)
    assert min(drawn) >= range_[0]
    assert max(drawn) <= range_[1] + GRID_SECONDS


# -- in memory: cut links and crashes ------------------------------------------------------------


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(5, latency_seconds=(0.001, 0.01))


@pytest.fixture
async def ends(network: MemoryNetwork, nursery: trio.Nursery) -> Opened:
    """A stream from a:1 to b:1, both ends."""
    send, receive = trio.open_memory_channel[trio.abc.Stream](1)

    async def accepted(stream: trio.abc.Stream) -> None:
        await send.send(stream)
        await trio.sleep_forever()

    await nursery.start(network.listen_at, "b:1", accepted)
    return await network.dial_from("a:1", "b:1"), await receive.receive()


async def is_silent(stream: trio.abc.Stream) -> bool:
    with trio.move_on_after(60) as waited:
        await stream.receive_some()
    return waited.cancelled_caught


async def test_a_cut_link_is_silent_until_it_is_healed_and_loses_nothing(
    network: MemoryNetwork, ends: Opened, autojump_clock: MockClock
) -> None:
    here, there = ends
    await here.send_all(b"before ")
    network.cut("b:1", "a:1")
    await here.send_all(b"and after")
    await there.send_all(b"back")
    assert await is_silent(there)
    assert await is_silent(here)
    network.heal()
    await here.aclose()
    assert await read_all(there) == b"before and after"


async def test_whoever_waits_at_a_cut_link_wakes_when_it_is_healed(
    network: MemoryNetwork, ends: Opened, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    here, there = ends
    network.cut("a:1", "b:1")
    await there.send_all(b"news")
    heard: list[bytes | bytearray] = []

    async def hear() -> None:
        heard.append(await here.receive_some())

    async def dial() -> None:
        heard.append(b"dialled")
        await (await network.dial_from("a:1", "b:1")).aclose()
        heard.append(b"connected")

    nursery.start_soon(hear)
    nursery.start_soon(dial)
    await trio.sleep(60)
    assert heard == [b"dialled"]
    network.heal()
    await trio.sleep(1)
    assert sorted(heard) == [b"connected", b"dialled", b"news"]


async def test_an_end_is_not_heard_of_over_a_cut_link(
    network: MemoryNetwork, ends: Opened, autojump_clock: MockClock
) -> None:
    here, there = ends
    network.cut("a:1", "b:1")
    await there.aclose()
    assert await is_silent(here)
    await here.send_all(b"is anybody there?")
    network.heal()
    assert await here.receive_some() == b""
    with pytest.raises(trio.BrokenResourceError):
        await here.send_all(b"no")


async def test_a_crash_resets_streams_and_refuses_new_ones(
    network: MemoryNetwork, ends: Opened, autojump_clock: MockClock
) -> None:
    here, there = ends
    network.crash("b:1")
    for end in (here, there):
        with pytest.raises(trio.BrokenResourceError):
            await end.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await end.send_all(b"x")
    with pytest.raises(ConnectionLost, match="refused"):
        await network.dial_from("a:1", "b:1")


async def test_a_crash_breaks_a_wait_and_leaves_others_alone(
    network: MemoryNetwork, ends: Opened, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    here, _ = ends
    await nursery.start(network.listen_at, "c:1", trio.abc.Stream.aclose)
    other = await network.dial_from("a:1", "c:1")

    async def crash() -> None:
        await wait_all_tasks_blocked()
        network.crash("b:1")

    nursery.start_soon(crash)
    with pytest.raises(trio.BrokenResourceError):
        await here.receive_some()
    assert await other.receive_some() == b""


async def test_a_crash_beyond_a_cut_link_shows_when_it_is_healed(
    network: MemoryNetwork, ends: Opened, autojump_clock: MockClock
) -> None:
    here, _ = ends
    network.cut("a:1", "b:1")
    network.crash("b:1")
    assert await is_silent(here)
    network.heal()
    with pytest.raises(trio.BrokenResourceError):
        await here.receive_some()


async def test_an_address_can_be_used_again_after_a_crash(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as first:
        await first.start(network.listen_at, "b:1", trio.abc.Stream.aclose)
        network.crash("b:1")
        await nursery.start(network.listen_at, "b:1", trio.abc.Stream.aclose)
        first.cancel_scope.cancel()
    stream = await network.dial_from("a:1", "b:1")
    assert await stream.receive_some() == b""


async def test_a_sender_waits_beyond_the_buffer_and_no_sooner(
    ends: Opened, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    here, there = ends
    await here.send_all(bytes(BUFFER_BYTES_MAX))
    nursery.start_soon(here.send_all, b"one more")
    await trio.sleep(1)
    with pytest.raises(trio.BusyResourceError):
        await here.send_all(b"and another")
    assert len(await there.receive_some(8)) == 8
    await trio.sleep(1)
    await here.send_all(b"")
