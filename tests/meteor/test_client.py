"""The client library, used as programs use it, on real rings over TCP."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from arms.store import Store
from meteor.client import Post, connect
from meteor.errors import InputError
from tests.meteor.rings import ring_of


async def test_figure_2(tmp_path: Path) -> None:
    """C1 learns that somebody is interested, posts, and C2 is notified and retrieves."""
    async with (
        ring_of(3, tmp_path) as ring,
        connect(ring.addresses["p0"], name="C1") as c1,
        connect(ring.addresses["p2"], name="C2") as c2,
    ):
        async with c1.notify_interest("type=p1, location=p2") as interests:
            async with c2.watch("type=p1, location=*") as matches:
                with trio.fail_after(10):
                    interest = await anext(interests)  # (a)
                assert interest.profile == "type=p1, location=*"
                assert interest.sender == c2.client
                receipt = await c1.store("type=p1, location=p2", b"data")  # (b)
                assert receipt.matches == 1
                with trio.fail_after(10):
                    assert (await anext(matches)).sender == c1.client
                (item,) = await c2.retrieve("type=p1, location=*").all()  # (c)
                assert item.data == b"data"
            assert (await c1.delete("type=p1, location=p2")).matches == 1  # (d)
        assert await c2.retrieve("type=p1").all() == []


async def test_an_interest_that_is_there_already_is_notified_too(tmp_path: Path) -> None:
    async with ring_of(2, tmp_path) as ring, connect(ring.address) as client:
        async with (
            client.watch("type=temperature, degree=80..120"),
            client.notify_interest("type=temperature, degree=0..100") as interests,
        ):
            with trio.fail_after(10):
                assert (await anext(interests)).profile == "type=temperature, degree=80..120"
        async with (
            client.watch("type=humidity"),
            client.notify_interest("type=temperature, degree=0..100") as interests,
        ):
            assert interests.receipt is not None
            assert interests.receipt.matches == 0


async def test_replay_leaves_no_gap_and_gives_nothing_twice(tmp_path: Path) -> None:
    async with ring_of(3, tmp_path) as ring, connect(ring.address) as client:
        await client.post_many(Post(f"type=a, degree={i}", str(i)) for i in range(50))
        async with trio.open_nursery() as nursery:

            async def keep_posting() -> None:
                for i in range(50, 150):
                    await client.store(f"type=a, degree={i}", str(i))

            nursery.start_soon(keep_posting)
            async with client.watch("type=a", replay=True) as matches:
                heard: list[int] = []
                with trio.fail_after(30):
                    while len(heard) < 150:
                        heard.append(int((await anext(matches)).text))
                assert sorted(heard) == list(range(150))


async def test_of_many_takers_each_item_goes_to_exactly_one(tmp_path: Path) -> None:
    async with ring_of(3, tmp_path) as ring:
        taken: list[str] = []

        async def take(address: str) -> None:
            async with connect(address, seconds=30) as taker:
                while True:
                    consumed = await taker.consume("type=job")
                    if not consumed.items:
                        assert consumed.complete
                        return
                    taken.extend(item.text for item in consumed.items)

        async with connect(ring.address) as client:
            await client.post_many(Post(f"type=job, degree={i}", str(i)) for i in range(40))
            async with trio.open_nursery() as nursery:
                for address in [*ring.addresses.values()] * 3:
                    nursery.start_soon(take, address)
            assert sorted(taken, key=int) == [str(i) for i in range(40)]
            assert (await client.aggregate("type=job")).value == 0


async def test_a_credential_guards_what_was_posted_with_it(tmp_path: Path) -> None:
    async with (
        ring_of(2, tmp_path) as ring,
        connect(ring.address, credential="mine") as owner,
        connect(ring.address) as other,
    ):
        await owner.store("type=a", b"guarded")
        assert (await other.delete("type=a")).matches == 0
        assert (await other.consume("type=a")).items == ()
        assert len(await other.retrieve("type=a").all()) == 1
        assert (await owner.delete("type=a")).matches == 1


async def test_aggregates_are_computed_at_the_ring(tmp_path: Path) -> None:
    async with ring_of(4, tmp_path) as ring, connect(ring.address) as client:
        degrees = [3, 14, 15, 92, 6.5]
        await client.post_many(Post(f"type=t{i}, degree={d}") for i, d in enumerate(degrees))
        await client.store("type=t9, note=none")
        assert (await client.aggregate("type=*")).value == 6
        assert (await client.aggregate("type=*", "min", "degree")).value == 3
        assert (await client.aggregate("type=*", "max", "degree")).value == 92
        assert (await client.aggregate("type=*", "sum", "degree")).value == 130.5
        assert (await client.aggregate("type=*", "avg", "degree")).value == 26.1
        assert (await client.aggregate("type=none", "avg", "degree")).value is None


async def test_a_large_retrieval_comes_in_pages(tmp_path: Path) -> None:
    async with ring_of(3, tmp_path) as ring, connect(ring.address, seconds=60) as client:
        await client.post_many(
            Post(f"type=t{i % 5}, degree={i % 100}", bytes(20_000)) for i in range(400)
        )
        sizes: list[int] = []
        retrieval = client.retrieve("type=*")
        ids = set()
        async for item in retrieval:
            ids.add(item.id)
            sizes.append(len(retrieval._page))
        assert retrieval.complete
        assert len(ids) == 400
        assert max(sizes) * 20_000 < 4 * 1024 * 1024
        assert len(await client.retrieve("type=*", limit=7).all()) == 7


async def test_ttl_is_honest(tmp_path: Path) -> None:
    async with ring_of(2, tmp_path) as ring, connect(ring.address) as client:
        async with client.watch("type=a") as matches:
            receipt = await client.store("type=a", b"transient", ttl=0)
            assert (receipt.copies, receipt.matches) == (0, 1)
            with trio.fail_after(10):
                assert (await anext(matches)).data == b"transient"
        assert await client.retrieve("type=a").all() == []


async def test_many_posts_in_flight(tmp_path: Path) -> None:
    async with ring_of(3, tmp_path) as ring, connect(ring.address) as client:
        async with trio.open_nursery() as nursery:
            for i in range(200):
                nursery.start_soon(client.store, f"type=t{i}, degree={i % 90}", str(i))
        assert (await client.aggregate("type=*")).value == 200


async def test_statistics_trace_and_space(tmp_path: Path) -> None:
    async with ring_of(3, tmp_path) as ring, connect(ring.address) as client:
        async with client.watch("type=a"):
            statistics = await client.statistics()
        assert statistics["peer"]["address"] == ring.address
        assert statistics["watches"] == 1
        (trace,), complete = await client.trace("type=*")
        assert complete
        assert trace.peer.address == ring.address
        assert len(trace.hops) == 2
        assert 'name = "test"' in await client.space()
        with pytest.raises(InputError, match="limit"):
            client.retrieve("type=a", limit=0)


async def test_a_client_that_connects_has_nothing_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large store that takes a second, in which the peer does nothing else."""
    async with ring_of(2, tmp_path) as ring:

        def counted(*_: object) -> None:
            raise AssertionError("everything was counted")

        monkeypatch.setattr(Store, "counts", counted)
        async with connect(ring.address) as client:
            assert (await client.store("type=a")).complete
            assert set(client._connection._addresses) == set(ring.addresses.values())
