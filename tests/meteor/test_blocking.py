"""The client without async: from a script, from several threads, from a notebook."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from rings import TestRing, ring_of

import meteor
from meteor import Post, blocking
from meteor.client import Ring as AsyncRing
from meteor.errors import ConnectionLost, InputError, MeteorError, NoRing

T = TypeVar("T")


@pytest.fixture
async def peers(tmp_path: Path) -> AsyncIterator[TestRing]:
    with trio.fail_after(30):
        async with ring_of(2, tmp_path) as ring:
            yield ring


async def script(function: Callable[[], T]) -> T:
    """Run what a script would do, in a thread of its own."""
    return await trio.to_thread.run_sync(function)


def test_every_public_method_of_a_ring_has_its_twin() -> None:
    for name, method in vars(AsyncRing).items():
        if name.startswith("_"):
            continue
        twin = getattr(blocking.Ring, name, None)
        assert twin is not None, f"meteor.blocking.Ring has no {name}"
        assert twin.__doc__
        wanted = dict(inspect.signature(method).parameters)
        there = dict(inspect.signature(twin).parameters)
        if name in ("watch", "watch_many", "notify_interest"):
            assert there.pop("timeout").default is None
        assert there == wanted, name
    wanted = dict(inspect.signature(meteor.connect).parameters)
    there = dict(inspect.signature(blocking.connect).parameters)
    assert wanted.keys() - there.keys() == {"network", "random"}
    assert all(wanted[name] == parameter for name, parameter in there.items())


async def test_a_script_posts_finds_and_looks_at_the_ring(peers: TestRing) -> None:
    def run() -> None:
        with blocking.connect(peers.address, name="script") as ring:
            assert ring.client.startswith("script-")
            assert ring.store("type=temperature, degree=91", "hot").complete
            assert ring.post("type=temperature, degree=71", "store", b"mild", ttl=60).complete
            receipts = ring.post_many(Post(f"type=load, degree={i}") for i in range(20))
            assert all(receipt.complete for receipt in receipts)

            found = ring.retrieve("type=temperature")
            assert sorted(item.text for item in found) == ["hot", "mild"]
            assert found.complete
            assert found.matches == 2
            assert len(ring.retrieve("type=load", limit=3).all()) == 3
            assert ring.aggregate("type=load", "max", "degree").value == 19
            (taken,) = ring.consume("degree>90").items
            assert taken.text == "hot"
            assert ring.delete("type=load").matches == 20

            assert len(ring.report().peers) == 2
            assert ring.statistics()["client"] == ring.client
            assert 'name = "test"' in ring.space()
            assert ring.trace("type=*")[1]

    await script(run)


async def test_a_watch_gives_what_is_stored_and_what_comes(peers: TestRing) -> None:
    def run() -> None:
        with blocking.connect(peers.address) as ring:
            ring.store("type=temperature, degree=91", "before")
            with ring.watch("type=temperature", replay=True) as matches:
                assert next(matches).text == "before"
                ring.store("type=temperature, degree=92", "after")
                assert next(matches).text == "after"
                assert matches.lost == 0
                assert matches.receipt is not None
                assert ring.statistics()["watches"] == 1
            assert ring.statistics()["watches"] == 0

    await script(run)


async def test_a_watch_stops_when_nothing_came_in_time_and_may_go_on(peers: TestRing) -> None:
    def run() -> None:
        with (
            blocking.connect(peers.address) as ring,
            ring.watch("type=temperature", timeout=0.01) as matches,
        ):
            assert list(matches) == []
            ring.store("type=temperature, degree=92", "after")
            texts: list[str] = []
            while not texts:
                texts += [match.text for match in matches]
            assert texts == ["after"]

    await script(run)


async def test_many_watches_say_which_of_them_were_met(peers: TestRing) -> None:
    def run() -> None:
        with (
            blocking.connect(peers.address) as ring,
            ring.watch_many(["type=a", "degree>5"], timeout=10) as matches,
        ):
            ring.store("type=a, degree=7", "both")
            item, profiles = next(matches)
            assert (item.text, sorted(profiles)) == ("both", ["degree>5", "type=a"])
            assert matches.lost == 0

    await script(run)


async def test_a_sensor_hears_of_interest_in_its_data(peers: TestRing) -> None:
    def run() -> None:
        with (
            blocking.connect(peers.address) as ring,
            ring.notify_interest("type=temperature, degree=*") as interests,
            ring.watch("degree>80"),
        ):
            assert next(interests).profile == "degree>80"

    await script(run)


async def test_several_threads_use_one_connection(peers: TestRing) -> None:
    def run() -> None:
        with blocking.connect(peers.address) as ring, ThreadPoolExecutor(4) as pool:
            with ring.watch("type=load") as matches:
                list(pool.map(lambda i: ring.store(f"type=load, degree={i}"), range(40)))
                values = {next(matches).value("degree") for _ in range(40)}
            assert values == set(range(40))

    await script(run)


async def test_errors_are_those_of_the_client(peers: TestRing) -> None:
    def run() -> None:
        with blocking.connect(peers.address) as ring:
            with pytest.raises(InputError, match="column 6"):
                ring.store("type=(")
            with pytest.raises(InputError), ring.watch("type=("):
                pass
            with pytest.raises(MeteorError, match="no action"):
                ring.post("type=a", "stroe")
            with pytest.raises(MeteorError, match=r"'\|' leaves open"):
                ring.store("type=a | type=b")
            assert ring.store("type=a").complete
        with pytest.raises(NoRing):
            blocking.connect("127.0.0.1:1")
        with pytest.raises(NoRing, match="needs the address"):
            blocking.connect()

    await script(run)


async def test_closing_ends_watches_and_calls_of_other_threads(peers: TestRing) -> None:
    watching = threading.Event()
    ended: Future[list[str]] = Future()

    def watch(ring: blocking.Ring) -> None:
        with ring.watch("type=temperature") as matches:
            watching.set()
            ended.set_result([match.text for match in matches])

    def run() -> None:
        ring = blocking.connect(peers.address)
        thread = threading.Thread(target=watch, args=(ring,))
        thread.start()
        assert watching.wait(10)
        ring.close()
        thread.join(10)
        assert ended.result(0) == []
        assert "meteor.blocking" not in [thread.name for thread in threading.enumerate()]
        with pytest.raises(ConnectionLost, match="closed"):
            ring.store("type=a")
        with pytest.raises(ConnectionLost, match="closed"), ring.watch("type=a"):
            pass
        ring.close()

    await script(run)


async def test_a_notebook_uses_it_while_its_own_loop_runs(peers: TestRing) -> None:
    async def cell() -> None:
        with blocking.connect(peers.address) as ring:
            ring.store("type=cell", "1")
            assert [item.text for item in ring.retrieve("type=cell")] == ["1"]

    await script(lambda: asyncio.run(cell()))


async def test_within_trio_it_says_that_it_blocks(peers: TestRing) -> None:
    ring = await script(lambda: blocking.connect(peers.address))
    with pytest.raises(RuntimeError, match="blocking function"):
        ring.store("type=a")
    await script(ring.close)


@asynccontextmanager
async def program(source: str, address: str) -> AsyncIterator[subprocess.Popen[str]]:
    """Run a program that prints "ready"; where it hangs it is killed."""
    head = "import sys\nfrom meteor import blocking\n"
    command = [sys.executable, "-W", "error", "-c", head + inspect.cleandoc(source), address]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with await script(lambda: subprocess.Popen(command, **pipes)) as process:
        try:
            assert await script(process.stdout.readline) == "ready\n"
            yield process
        finally:
            process.kill()


async def ending(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, errors = await script(lambda: process.communicate(timeout=10))
    return process.returncode, out, errors


async def test_ctrl_c_ends_the_wait_for_an_item_and_nothing_else(peers: TestRing) -> None:
    source = """
        with blocking.connect(sys.argv[1]) as ring, ring.watch("type=a") as matches:
            try:
                print("ready", flush=True)
                next(matches)
            except KeyboardInterrupt:
                ring.store("type=a", "still there")
                print(next(matches).text)
        """
    async with program(source, peers.address) as process:
        process.send_signal(signal.SIGINT)
        assert await ending(process) == (0, "still there\n", "")


async def test_ctrl_c_ends_a_connection_that_does_not_come_about() -> None:
    source = """
        print("ready", flush=True)
        try:
            blocking.connect(sys.argv[1])
        except KeyboardInterrupt:
            print("ended")
        """
    with trio.fail_after(30):
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        async with program(source, address) as process, listener, await listener.accept():
            process.send_signal(signal.SIGINT)
            assert await ending(process) == (0, "ended\n", "")


async def test_a_program_that_does_not_close_ends_all_the_same(peers: TestRing) -> None:
    source = """
        ring = blocking.connect(sys.argv[1])
        watch = ring.watch("type=a")
        matches = watch.__enter__()
        print("ready", flush=True)
        """
    async with program(source, peers.address) as process:
        assert await ending(process) == (0, "", "")
    async with meteor.connect(peers.address) as ring:
        report = await ring.report()
    assert sum(peer["interests"] for peer in report.peers) == 0
