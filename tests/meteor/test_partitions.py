"""A network that falls into two parts: both go on, say so, and become one ring again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from meteor.client import Ring, connect
from meteor.errors import InputError, RemoteError
from meteor.node.replicas import Replicas
from meteor.transport.memory import MemoryNetwork
from tests.meteor.rings import TestRing, ring_of
from tests.meteor.test_copies import copied, found, posted


@pytest.fixture
def memory() -> MemoryNetwork:
    return MemoryNetwork(seed=5, latency_seconds=(0.001, 0.02))


class Cut:
    """A ring of eight in two parts, with a client in each."""

    def __init__(self, ring: TestRing, memory: MemoryNetwork, few: int) -> None:
        names = list(ring.nodes)
        self.ring, self.memory = ring, memory
        self.one, self.other = names[few:], names[:few]

    def connect(self, names: list[str]):  # type: ignore[no-untyped-def]
        addresses = [self.ring.addresses[name] for name in names]
        return connect(*addresses, network=self.ring.network(f"{names[0]}-client:1"), seconds=30)

    def fall_apart(self) -> None:
        sides = [
            [*(self.ring.addresses[name] for name in side), f"{side[0]}-client:1"]
            for side in (self.one, self.other)
        ]
        for a in sides[0]:
            for b in sides[1]:
                self.memory.cut(a, b)

    async def go_on(self) -> None:
        """Wait until both sides are a ring of their own."""
        with trio.fail_after(120):
            while any(not self._whole(side) for side in (self.one, self.other)):  # noqa: ASYNC110
                await trio.sleep(0.1)

    def _whole(self, names: list[str]) -> bool:
        return sum(self.ring.nodes[name].report()["share"] for name in names) == pytest.approx(1.0)

    async def heal(self) -> None:
        self.memory.heal()
        await self.ring.settle(240)
        await copied(self.ring)


async def store(client: Ring, numbers: range) -> None:
    for i in numbers:
        await client.store(f"type=t{i % 9}, degree={i}", str(i), ttl=100_000)


@pytest.mark.parametrize("few", [1, 3, 4])
async def test_what_either_side_accepted_is_there_when_the_rings_are_one_again(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock, few: int
) -> None:
    async with ring_of(8, tmp_path, memory) as ring:
        cut = Cut(ring, memory, few)
        async with cut.connect(cut.one) as here, cut.connect(cut.other) as there:
            await posted(here, 40)
            await copied(ring)
            cut.fall_apart()
            await cut.go_on()
            await store(here, range(40, 60))
            await store(there, range(60, 80))
            await here.delete("degree<10")
            await there.delete("degree=10..19")
            await cut.heal()
            assert await found(here) == set(range(20, 80))
            assert await found(there) == set(range(20, 80))
            assert (await here.report()).complete


async def test_both_sides_say_what_they_can_not_know(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(8, tmp_path, memory) as ring:
        cut = Cut(ring, memory, 4)
        async with cut.connect(cut.one) as here, cut.connect(cut.other) as there:
            await posted(here, 40)
            whole = here.retrieve("degree=*")
            await whole.all()
            assert whole.lost == ()
            cut.fall_apart()
            await cut.go_on()
            # Of every place one side is sure, and the other is not.
            for i in range(20):
                profile = f"type=t{i}, location=l{i}, degree={i}"
                one, other = await here.store(profile), await there.store(profile)
                assert one.complete
                assert other.complete
                assert bool(one.lost) != bool(other.lost)
            for client, side in ((here, cut.other), (there, cut.one)):
                retrieval = client.retrieve("degree=*")
                await retrieval.all()
                assert retrieval.complete
                assert set(retrieval.lost) <= {ring.addresses[name] for name in side}
                assert retrieval.lost
            await cut.heal()
            retrieval = here.retrieve("degree=*")
            await retrieval.all()
            assert retrieval.lost == ()


async def test_a_peer_that_returns_ends_the_doubt(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(6, tmp_path, memory) as ring,
        connect(ring.addresses["p0"], network=ring.network(), seconds=30) as client,
    ):
        await posted(client, 20)
        gone = ring.addresses["p3"]
        await ring.stop("p3")
        await ring.settle()
        assert (await client.aggregate("degree=*")).lost == (gone,)
        await ring.start("p3")
        await ring.settle()
        assert (await client.aggregate("degree=*")).lost == ()


async def test_a_host_that_was_replaced_is_waited_for_until_the_copies_agree(
    tmp_path: Path,
    memory: MemoryNetwork,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has a copy may know of a post that the new owner of the arc does not have yet."""
    async with (
        ring_of(6, tmp_path, memory) as ring,
        connect(ring.addresses["p0"], network=ring.network(), seconds=30) as client,
    ):
        await posted(client, 20)
        gone = ring.addresses["p3"]
        await ring.stop("p3")
        await ring.settle()
        with monkeypatch.context() as patch:
            patch.setattr(Replicas, "settled", property(lambda replicas: False))
            shutil.rmtree(ring.folder / "p3")
            await ring.start("p3")
            await trio.sleep(60)
            assert (await client.aggregate("degree=*")).lost == (gone,)
        await trio.sleep(30)
        assert (await client.aggregate("degree=*")).lost == ()
        assert await found(client) == set(range(20))


async def test_a_peer_that_leaves_in_good_order_leaves_no_doubt(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(6, tmp_path, memory) as ring,
        connect(ring.addresses["p0"], network=ring.network(), seconds=30) as client,
    ):
        await posted(client, 20)
        await ring.leave("p3")
        await ring.settle()
        assert (await client.aggregate("degree=*")).lost == ()


async def test_an_item_is_never_given_to_two_takers_on_two_sides(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(8, tmp_path, memory) as ring:
        cut = Cut(ring, memory, 4)
        async with cut.connect(cut.one) as here, cut.connect(cut.other) as there:
            await posted(here, 60)
            await copied(ring)
            cut.fall_apart()
            await cut.go_on()
            taken: list[str] = []
            for client in (here, there, here, there):
                taken += await take_what_one_can(client)
            assert len(taken) == len(set(taken))
            assert 0 < len(taken) < 120
            await cut.heal()
            # What neither side could give away alone is still there, once.
            taken += await take_what_one_can(here)
            assert sorted(taken, key=int) == [str(i) for i in range(60)]


async def take_what_one_can(client: Ring) -> list[str]:
    taken: list[str] = []
    for _ in range(70):
        try:
            consumed = await client.consume("degree=*", limit=5)
        except RemoteError as error:
            if "peers that have a say in who gets it can be reached" not in str(error):
                raise
            break
        taken += [item.text for item in consumed.items]
        if not consumed.items:
            break
    return taken


async def test_items_can_be_taken_after_all_who_first_voted_on_them_have_gone(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """One after the other; so those who come in their place are asked instead."""
    async with (
        ring_of(4, tmp_path, memory) as ring,
        connect(*ring.addresses.values(), network=ring.network(), seconds=30) as client,
    ):
        await posted(client, 30)
        for i in range(4, 8):
            await ring.start(f"p{i}")
            await ring.settle()
            await copied(ring)
            await ring.stop(f"p{i - 4}")
            await ring.settle()
            await copied(ring)
        taken = await take_what_one_can(client)
        assert sorted(taken, key=int) == [str(i) for i in range(30)]


async def test_a_lost_peer_that_is_forgotten_leaves_no_doubt_anywhere(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(6, tmp_path, memory) as ring,
        connect("p0:7400", network=ring.network(), seconds=30) as client,
    ):
        await store(client, range(20))
        gone = ring.addresses["p3"]
        with pytest.raises(InputError, match=f"{gone} is in the ring"):
            await client.forget(gone)
        await ring.stop("p3")
        await ring.settle()
        assert (await client.aggregate("type=*")).lost == (gone,)
        assert await client.forget("p9:7400") == 0
        assert await client.forget(gone) > 0
        assert (await client.aggregate("type=*")).lost == ()
        assert not any(node.overlay.lost.peers for node in ring.nodes.values())
        assert await client.forget(gone) == 0
