"""Nothing acknowledged is lost: copies on the next peers, and take-over by them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from meteor.client import Post, Ring, connect
from meteor.errors import MeteorError
from meteor.transport.memory import MemoryNetwork
from tests.meteor.rings import TestRing, ring_of


@pytest.fixture
def memory() -> MemoryNetwork:
    return MemoryNetwork(seed=11, latency_seconds=(0.001, 0.02))


async def test_a_post_is_acknowledged_by_as_many_copies_as_configured(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    for ack, copies in (("owner", 1), ("quorum", 2), ("all", 3)):
        memory = MemoryNetwork(seed=3, latency_seconds=(0.001, 0.02))
        async with (
            ring_of(5, tmp_path / ack, memory, ack=ack) as ring,
            connect(ring.address, network=ring.network()) as client,
        ):
            assert (await client.store("type=a, degree=1")).copies >= copies


async def test_what_was_acknowledged_survives_the_crash_of_its_owner(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(8, tmp_path, memory) as ring,
        connect(ring.addresses["p0"], network=ring.network(), seconds=30) as client,
    ):
        expected = await posted(client, 100)
        for name in ("p1", "p4", "p6"):
            await ring.stop(name)
            await ring.settle()
            assert await found(client) == expected


async def test_who_takes_over_first_gets_what_the_other_copies_have(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """The majority that acknowledged a post need not include the peer that takes over."""
    async with ring_of(6, tmp_path, memory, request_seconds=8.0, post_seconds=60.0) as ring:
        order = sorted(ring.nodes, key=lambda name: ring.nodes[name].me.id)
        async with connect(*ring.addresses.values(), network=ring.network(), seconds=60) as client:
            await posted(client, 20)
            owner = max(order, key=lambda name: ring.nodes[name].report()["data"])
            heir = order[(order.index(owner) + 1) % len(order)]
            await client.delete("degree<10")
            memory.cut(ring.addresses[owner], ring.addresses[heir])
            for i in range(20, 60):
                await client.store(f"type=t{i % 9}, degree={i}", str(i), ttl=100_000)
            await client.delete("degree=10..15")
            await ring.stop(owner)  # what was on its way to the heir is lost with it
            await ring.settle()
            assert await found(client) == set(range(16, 60))


async def test_neighbours_that_die_at_once_lose_nothing_that_all_copies_have(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(8, tmp_path, memory, ack="all") as ring,
        connect(ring.addresses["p0"], network=ring.network(), seconds=30) as client,
    ):
        expected = await posted(client, 100)
        order = sorted(ring.nodes, key=lambda name: ring.nodes[name].me.id)
        doomed = [name for name in order if name != "p0"][2:4]
        for name in doomed:
            ring.scopes[name].cancel()
        for name in doomed:
            await ring.ended[name].wait()
        await ring.settle()
        assert await found(client) == expected


async def test_lost_copies_are_made_again(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """One after the other all but two of the first peers die; new ones have come meanwhile."""
    async with (
        ring_of(5, tmp_path, memory) as ring,
        connect(*ring.addresses.values(), network=ring.network(), seconds=30) as client,
    ):
        expected = await posted(client, 80)
        for i in range(5, 9):
            await ring.start(f"p{i}")
            await ring.settle()
            await copied(ring)
            await ring.stop(f"p{i - 5}")
            await ring.settle()
            await copied(ring)
            assert await found(client) == expected


async def test_what_is_deleted_does_not_come_back_with_a_peer_that_was_away(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(5, tmp_path, memory) as ring,
        connect(ring.addresses["p0"], network=ring.network(), seconds=30) as client,
    ):
        await posted(client, 60)
        for name in ("p2", "p3"):
            await ring.stop(name)
            await ring.settle()
            await copied(ring)
        assert (await client.delete("degree<30")).matches == 30
        for name in ("p2", "p3"):
            await ring.start(name)
            await ring.settle()
            await copied(ring)
        assert await found(client) == set(range(30, 60))


async def test_watches_survive_the_crash_of_the_peer_they_lie_at(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(6, tmp_path, memory) as ring,
        connect(*ring.addresses.values(), network=ring.network(), seconds=30) as client,
        client.watch("type=a, location=b, degree=5") as matches,
    ):
        (owner,) = [name for name, node in ring.nodes.items() if node.report()["interests"]]
        await ring.stop(owner)
        await ring.settle()
        await client.store("type=a, location=b, degree=5", b"heard")
        with trio.fail_after(30):
            assert (await anext(matches)).data == b"heard"


@pytest.mark.parametrize("seed", range(6))
async def test_posts_and_deletes_while_peers_crash_and_return(
    tmp_path: Path, autojump_clock: MockClock, seed: int
) -> None:
    """The client's own log judges: what was acknowledged is there, what was deleted is not."""
    random = Random(f"churn {seed}")
    memory = MemoryNetwork(seed=seed, latency_seconds=(0.001, 0.03))
    async with ring_of(8, tmp_path, memory, seed=seed) as ring:
        addresses = [ring.addresses["p0"], ring.addresses["p1"]]
        kept: set[int] = set()
        unsure: set[int] = set()
        async with (
            connect(*addresses, network=ring.network(), seconds=20) as client,
            trio.open_nursery() as nursery,
        ):

            async def work() -> None:
                for i in range(150):
                    try:
                        await client.store(f"type=t{i % 9}, degree={i}", str(i), ttl=100_000)
                        kept.add(i)
                        if random.random() < 0.3:
                            victim = random.choice(sorted(kept))
                            kept.discard(victim)
                            unsure.add(victim)
                            receipt = await client.delete(f"type=t{victim % 9}, degree={victim}")
                            if receipt.complete:
                                unsure.discard(victim)
                    except MeteorError:
                        unsure.add(i)

            async def churn() -> None:
                for _ in range(6):
                    name = random.choice([f"p{i}" for i in range(2, 8)])
                    if name in ring.nodes:
                        await ring.stop(name)
                    else:
                        await ring.start(name)
                    await ring.settle()
                    await copied(ring)

            nursery.start_soon(work)
            nursery.start_soon(churn)
        async with connect(*addresses, network=ring.network(), seconds=20) as client:
            there = await found(client)
        assert kept <= there
        assert there <= kept | unsure


async def posted(client: Ring, count: int) -> set[int]:
    posts = [Post(f"type=t{i % 9}, degree={i}", str(i), ttl=100_000) for i in range(count)]
    assert all(receipt.complete for receipt in await client.post_many(posts))
    return set(range(count))


async def found(client: Ring) -> set[int]:
    retrieval = client.retrieve("degree=*")
    items = await retrieval.all()
    assert retrieval.complete
    assert len(items) == len({item.id for item in items})
    return {int(item.text) for item in items}


async def copied(ring: TestRing) -> None:
    """Wait until every copy has caught up."""
    with trio.fail_after(60):
        while any(  # noqa: ASYNC110 - what ends it is spread over the peers
            report["voters_change"]
            or any(copy["behind"] or copy["catching_up"] for copy in report["copies_at"])
            for report in [node.report() for node in ring.nodes.values()]
        ):
            await trio.sleep(0.05)


async def test_two_that_began_alone_become_one_ring_with_all_data(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(1, tmp_path, memory) as ring:
        memory.cut("p0:7400", "p1:7400")
        await ring.start("p1")  # nobody answers: it begins a ring of its own
        for name in ("p0", "p1"):
            async with connect(ring.addresses[name], network=ring.network()) as client:
                for i in range(20):
                    await client.store(f"type=t{i}, degree={i}", name, ttl=100_000)
        memory.heal()
        await ring.settle()
        await trio.sleep(60)
        for name in ("p0", "p1"):
            async with connect(ring.addresses[name], network=ring.network()) as client:
                assert (await client.aggregate("type=*")).value == 40
                assert (await client.report()).complete
