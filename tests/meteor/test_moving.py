"""A ring moves to another space while it runs, and nobody loses anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from meteor.client import Ring, connect
from meteor.errors import MeteorError
from meteor.node.moving import Phase
from meteor.ring.arcs import contains
from meteor.transport.memory import MemoryNetwork
from squid import Keyword, learn_space, number
from tests.meteor.rings import SPACE, TestRing, ring_of

NEXT = learn_space(
    SPACE,
    [
        {"type": [Keyword(f"t{i % 9}")], "location": [Keyword("hall")], "degree": [number(i)]}
        for i in range(60)
    ],
)


@pytest.fixture
def memory() -> MemoryNetwork:
    return MemoryNetwork(seed=7, latency_seconds=(0.001, 0.02))


async def moved(ring: TestRing, version: int = 2, seconds: float = 40) -> None:
    def behind() -> dict[str, object]:
        nodes = [node for node in ring.nodes.values() if current(node).space.version != version]
        return {node.me.address: node.move.report() for node in nodes}

    with trio.move_on_after(seconds):
        while behind():  # noqa: ASYNC110 - what moves them is spread over the peers
            await trio.sleep(0.1)
    assert behind() == {}


def current(node):
    while not node.serves_clients:
        node = node.heir
    return node


async def test_everything_is_there_after_a_move(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(4, tmp_path, memory) as ring,
        connect(ring.address, network=ring.network()) as client,
    ):
        for i in range(40):
            assert (await client.store(f"type=t{i % 9}, degree={i}", str(i))).complete
        await client.delete("degree=3")
        await client.move(NEXT.to_toml())
        await moved(ring)
        found = client.retrieve("type=*")
        items = await found.all()
        assert found.complete
        assert sorted(int(item.data) for item in items) == [i for i in range(40) if i != 3]
        assert await client.space() == NEXT.to_toml()
        assert (await client.aggregate("type=*", "count")).value == 39


@dataclass
class Log:
    """What clients were told, and what must follow from it."""

    posted: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    """Whose delete was begun; they may or may not be there until it is done."""
    gone: set[str] = field(default_factory=set)
    taken: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    refused: int = 0


async def poster(client: Ring, log: Log, name: str, stop: trio.Event) -> None:
    """Post, and delete some of it a while later."""
    number = 0
    while not stop.is_set():
        number += 1
        what = f"{name}-{number}"
        try:
            receipt = await client.store(
                f"type=t{number % 9}, location=hall, degree={number % 60}, name={what}", what
            )
            if receipt.complete:
                log.posted.add(what)
            if number % 7 == 0:
                victim = f"{name}-{number - 5}"
                log.deleted.add(victim)
                if (await client.delete(f"name={victim}, type=*")).complete:
                    log.gone.add(victim)
        except MeteorError:
            log.refused += 1
        await trio.sleep(0.1)


async def taker(client: Ring, log: Log, stop: trio.Event) -> None:
    """Take jobs, one at a time."""
    while not stop.is_set():
        try:
            taken = await client.consume("type=job")
            log.taken += [item.data.decode() for item in taken.items]
        except MeteorError:
            log.refused += 1
        await trio.sleep(0.05)


async def reader(client: Ring, log: Log, stop: trio.Event) -> None:
    """Retrieve, and see that every complete answer has all that it must have."""
    while not stop.is_set():
        must, gone = set(log.posted), set(log.gone)
        retrieval = client.retrieve("location=hall")
        try:
            names = [item.data.decode() for item in await retrieval.all()]
        except MeteorError:
            log.refused += 1
            continue
        assert len(names) == len(set(names))
        if retrieval.complete:
            missing = must - log.deleted - set(names)
            assert not missing, (retrieval.lost, (await client.space())[:30], len(must))
        assert not gone & set(names)
        await trio.sleep(0.1)


async def watcher(client: Ring, log: Log, *, task_status: trio.TaskStatus[None]) -> None:
    async with client.watch("location=hall") as watch:
        task_status.started()
        async for item in watch:
            log.told.append(item.data.decode())


@asynccontextmanager
async def busy_ring(folder: Path, memory: MemoryNetwork) -> AsyncIterator[tuple[TestRing, Log]]:
    """A ring with clients that post, delete, take, retrieve and watch; asked at the end."""
    async with AsyncExitStack() as stack:
        ring = await stack.enter_async_context(ring_of(4, folder, memory))
        clients = [
            await stack.enter_async_context(
                connect(*ring.addresses.values(), network=ring.network(f"c{i}:1"))
            )
            for i in range(3)
        ]
        log, stop = Log(), trio.Event()
        jobs = {f"job-{i}" for i in range(80)}
        for job in jobs:
            assert (await clients[0].store("type=job", job)).complete
        assert (await clients[0].store("type=t1, location=hall", "early")).complete
        log.posted.add("early")
        async with trio.open_nursery() as watching:
            await watching.start(watcher, clients[2], log)
            async with trio.open_nursery() as nursery:
                for i, client in enumerate(clients):
                    nursery.start_soon(poster, client, log, f"p{i}", stop)
                    nursery.start_soon(taker, client, log, stop)
                nursery.start_soon(reader, clients[1], log, stop)
                await trio.sleep(1)
                assert await clients[2].move(NEXT.to_toml())
                yield ring, log
                await moved(ring)
                await trio.sleep(2)
                stop.set()
            await judge(clients[0], log, jobs)
            watching.cancel_scope.cancel()


async def judge(client: Ring, log: Log, jobs: set[str]) -> None:
    left = {item.data.decode() for item in await client.retrieve("type=job").all()}
    assert len(log.taken) == len(set(log.taken))
    assert not set(log.taken) & left
    if not log.refused:  # a take that failed may have taken something
        assert set(log.taken) | left == jobs
    found = client.retrieve("location=hall")
    names = {item.data.decode() for item in await found.all()}
    assert found.complete
    assert log.posted - log.deleted <= names
    assert not log.gone & names
    await trio.sleep(1)
    assert len(log.told) == len(set(log.told))
    assert "early" not in log.told  # it was there before the watch
    assert len(log.posted) > 50


@pytest.mark.slow
async def test_clients_do_not_notice_a_move(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with busy_ring(tmp_path, memory) as (_, log):
        pass
    assert not log.refused
    assert log.posted - {"early"} <= set(log.told)


@pytest.mark.slow
@pytest.mark.parametrize("phase", [Phase.COPYING, Phase.FROZEN, Phase.CHECKED])
async def test_a_crash_during_a_move_loses_nothing(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock, phase: Phase
) -> None:
    async with busy_ring(tmp_path, memory) as (ring, _):
        (conductor,) = (n for n, node in ring.nodes.items() if contains(node.overlay.spans, 0))
        while ring.nodes[conductor].move.phase < phase:  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.01)
        await ring.stop(conductor)
        await trio.sleep(4)
        await ring.start(conductor)


@pytest.mark.slow
async def test_a_peer_that_was_frozen_and_away_follows_and_takes_nothing_new_out(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(4, tmp_path, memory) as ring:
        conductor = next(n for n, node in ring.nodes.items() if contains(node.overlay.spans, 0))
        away = next(name for name in ring.nodes if name != conductor)
        async with connect(ring.addresses[conductor], network=ring.network()) as client:
            for i in range(30):
                assert (await client.store(f"type=t{i % 9}, degree={i}", str(i))).complete
            assert await client.move(NEXT.to_toml())
            while ring.nodes[away].move.phase < Phase.FROZEN:  # noqa: ASYNC110 - it tells nobody
                await trio.sleep(0.01)
            await trio.sleep(0.6)  # the conductor has seen it
            await ring.stop(away)
            await moved(ring)
            for i in range(30):  # at the same places, so that some are where it comes back to
                assert (await client.store(f"type=t{i % 9}, degree={i}", str(30 + i))).complete
            await ring.start(away)
            await moved(ring)
            await trio.sleep(5)
            found = client.retrieve("type=*")
            assert sorted(int(item.data) for item in await found.all()) == list(range(60))
            assert found.complete
