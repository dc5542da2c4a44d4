"""Whole rings of the real code in memory, on virtual time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from meteor.client import Post, connect
from meteor.node.leaps import two_peers
from meteor.transport.memory import MemoryNetwork
from tests.meteor.rings import ring_of


@pytest.fixture
def memory() -> MemoryNetwork:
    return MemoryNetwork(seed=7, latency_seconds=(0.001, 0.02))


async def test_a_post_is_found_from_every_peer(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(8, tmp_path, memory) as ring:
        async with connect(ring.addresses["p0"], network=ring.network()) as client:
            receipt = await client.store("type=temperature, degree=91", b"hot")
            assert receipt.complete
            assert receipt.copies >= 2
        for address in ring.addresses.values():
            async with connect(address, network=ring.network()) as client:
                (item,) = await client.retrieve("type=temp*, degree>90").all()
                assert item.data == b"hot"


async def test_every_peer_of_a_wildcard_is_reached_once(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(16, tmp_path, memory) as ring,
        connect(ring.address, network=ring.network()) as client,
    ):
        report = await client.report()
        assert report.complete
        assert [peer["address"] for peer in report.peers] == [
            node.me.address for node in sorted(ring.nodes.values(), key=lambda n: n.me.id)
        ]


async def test_data_move_with_their_arc_when_peers_join_and_leave(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(1, tmp_path, memory) as ring,
        connect(ring.address, network=ring.network()) as client,
    ):
        posts = [Post(f"type=t{i}, degree={i}", str(i)) for i in range(100)]
        assert all(receipt.complete for receipt in await client.post_many(posts))
        for i in range(1, 8):
            await ring.start(f"p{i}")
            await ring.settle()
        assert await _found(client) == set(range(100))
        counts = [peer["data"] for peer in (await client.report()).peers]
        assert sum(counts) == 100
        for i in range(1, 8):
            await ring.leave(f"p{i}")
            await ring.settle()
            assert await _found(client) == set(range(100))


async def test_a_joining_peer_splits_the_busiest_at_its_median(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(1, tmp_path, memory) as ring,
        connect(ring.address, network=ring.network()) as client,
    ):
        await client.post_many(Post(f"type=t{i % 7}, degree={i}") for i in range(128))
        for i, most in ((1, 80), (2, 64), (3, 40)):
            await ring.start(f"p{i}")
            await ring.settle()
            assert max(peer["data"] for peer in (await client.report()).peers) <= most


async def test_posts_during_a_join_are_neither_lost_nor_doubled(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(2, tmp_path, memory) as ring,
        connect(ring.address, network=ring.network()) as client,
    ):
        async with trio.open_nursery() as nursery:
            for i in range(2, 6):
                nursery.start_soon(ring.start, f"p{i}")
            for i in range(200):
                assert (await client.store(f"type=t{i}, degree={i}", str(i))).complete
        await ring.settle()
        assert await _found(client) == set(range(200))
        assert sum(peer["data"] for peer in (await client.report()).peers) == 200


async def test_a_client_moves_to_another_peer_and_keeps_its_watches(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(5, tmp_path, memory) as ring:
        watcher_peer = "p2"
        async with (
            connect(ring.addresses[watcher_peer], network=ring.network("watcher:1")) as watcher,
            connect(ring.addresses["p0"], network=ring.network("poster:1")) as poster,
            watcher.watch("degree>=0", replay=True) as matches,
        ):
            await poster.store("type=a, degree=1", b"1")
            assert (await anext(matches)).data == b"1"
            await ring.stop(watcher_peer)
            await ring.settle()
            await poster.store("type=b, degree=2", b"2")
            with trio.fail_after(30):
                assert (await anext(matches)).data == b"2"
            assert (await watcher.statistics())["reconnects"] == 1


async def test_the_ring_heals_after_crashes(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(12, tmp_path, memory) as ring,
        connect(ring.addresses["p0"], network=ring.network()) as client,
    ):
        for name in ("p3", "p7", "p8"):
            await ring.stop(name)
        await ring.settle()
        report = await client.report()
        assert report.complete
        assert len(report.peers) == 9


async def test_queries_right_after_a_crash_make_no_live_peer_look_dead(
    tmp_path: Path,
    memory: MemoryNetwork,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        ring_of(5, tmp_path, memory) as ring,
        connect(ring.addresses["p0"], network=ring.network(), seconds=3) as client,
    ):
        dead = ring.addresses["p3"]
        await ring.stop("p3")
        for _ in range(5):
            await client.report()
        await ring.settle()
    said = [record.getMessage() for record in caplog.records if "does not answer" in record.msg]
    assert said
    assert all(dead in line for line in said)


async def test_a_peer_that_returns_has_its_place_and_its_data(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(4, tmp_path, memory) as ring,
        connect(ring.addresses["p0"], network=ring.network()) as client,
    ):
        await client.post_many(Post(f"type=t{i}, degree={i}", str(i)) for i in range(60))
        place = ring.nodes["p2"].me.id
        await ring.stop("p2")
        await ring.settle()
        node = await ring.start("p2")
        assert node.me.id == place
        await ring.settle()
        assert await _found(client) == set(range(60))


async def test_what_is_deleted_after_a_peer_left_stays_deleted_when_it_returns(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(3, tmp_path, memory) as ring,
        connect(ring.addresses["p0"], network=ring.network()) as client,
    ):
        await client.post_many(Post(f"type=t{i}, degree={i}", str(i)) for i in range(60))
        for name in ("p1", "p2"):
            await ring.leave(name)
            await ring.settle()
        assert (await client.delete("type=*")).matches == 60
        for name in ("p1", "p2"):
            await ring.start(name)
            await ring.settle()
        assert await _found(client) == set()


async def test_an_answer_says_when_it_is_not_complete(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(6, tmp_path, memory) as ring,
        connect(ring.addresses["p0"], network=ring.network(), seconds=1.0) as client,
    ):
        for name in ring.addresses:
            if name != "p0":
                memory.cut(ring.addresses["p0"], ring.addresses[name])
        retrieval = client.retrieve("degree=*")
        assert await retrieval.all() == []
        assert not retrieval.complete


async def _found(client: object) -> set[int]:
    retrieval = client.retrieve("type=*")  # type: ignore[attr-defined]
    items = await retrieval.all()
    assert retrieval.complete
    assert len(items) == len({item.id for item in items})
    return {int(item.data) for item in items}


async def test_leaps_count_peers_and_samples_find_each_peer_alike(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(6, tmp_path, memory) as ring:
        await trio.sleep(6)
        order = [n.me for n in sorted(ring.nodes.values(), key=lambda n: n.me.id)]
        for node in ring.nodes.values():
            at = order.index(node.me)
            ahead = [order[(at + step) % 6] for step in (1, 2, 4)]
            assert node._leaps.answer() == [[peer.id, peer.address] for peer in ahead]
        node, random = ring.nodes["p3"], Random(7)
        found: Counter[str] = Counter()
        for _ in range(120):
            two = await two_peers(node._links, node.config, ring.addresses["p5"], random)
            at = [peer.address for peer in order].index(two[0])
            assert two[1] == order[(at + 1) % 6].address
            found[two[0]] += 1
        assert len(found) == 6  # 8 ways to 6 peers: two of them have two
        assert max(found.values()) < 2.6 * 120 / 6
