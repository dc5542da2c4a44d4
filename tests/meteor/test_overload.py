"""Too much at once: a peer says `busy` in words, clients come back, and nothing grows."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from arms.message import Action, Header, Message
from arms.profile import Profile
from arms.store import Store
from arms.writes import Put
from meteor.client import Post, Receipt, connect
from meteor.errors import Busy
from meteor.limits import PROTOCOL
from meteor.node import replicas, writer
from meteor.node.admission import Admission
from meteor.node.replicas import Replicas
from meteor.node.writer import Writer
from meteor.ring.arcs import size
from meteor.transport.frames import encode
from meteor.transport.memory import MemoryNetwork
from tests.meteor.rings import SPACE, ring_of


def test_what_is_in_hand_is_counted_and_given_back() -> None:
    admission = Admission(posts_max=3, bytes_max=100)
    with admission.in_hand(2, 60):
        with pytest.raises(Busy, match="2 messages of 60 bytes"), admission.in_hand(2, 1):
            pass
        with pytest.raises(Busy), admission.in_hand(1, 41):
            pass
        with admission.in_hand(1, 40):
            assert (admission.posts, admission.bytes) == (3, 100)
    with pytest.raises(ZeroDivisionError), admission.in_hand(3, 100):
        _ = 1 / 0
    assert (admission.posts, admission.bytes, admission.refused) == (0, 0, 2)


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Writer._write

    async def slowly(self: Writer, groups: list[object]) -> None:
        await trio.sleep(0.5)
        await real(self, groups)  # type: ignore[arg-type]

    monkeypatch.setattr(Writer, "_write", slowly)


@pytest.mark.usefixtures("slow_disk")
async def test_all_clients_get_an_answer_and_what_is_in_hand_stays_bounded(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with ring_of(1, tmp_path, MemoryNetwork(1)) as ring:
        (node,) = ring.nodes.values()
        admission = node.service.admission
        admission.posts_max = 20
        most = 0
        stored: set[str] = set()
        busy: set[str] = set()

        async def client(number: int) -> None:
            nonlocal most
            network = ring.network(f"client-{number}:1")
            async with connect(ring.address, network=network, seconds=3) as mine:
                for turn in range(4):
                    text = f"{number}-{turn}"
                    try:
                        await mine.store(f"type=load, degree={number}", text)
                        stored.add(text)
                    except Busy:
                        busy.add(text)
                    most = max(most, admission.posts)

        with trio.fail_after(300):
            async with trio.open_nursery() as nursery:
                for number in range(100):
                    nursery.start_soon(client, number)
        assert most <= 20
        assert admission.refused
        assert len(stored) + len(busy) == 400
        assert admission.posts == 0
        async with connect(ring.address, network=ring.network(), seconds=30) as mine:
            there = {item.text for item in await mine.retrieve("type=load").all()}
        assert there == stored, "acknowledged is stored, and refused is not"


@pytest.mark.usefixtures("slow_disk")
async def test_post_many_says_that_a_refused_post_is_not_stored(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with ring_of(1, tmp_path, MemoryNetwork(1)) as ring:
        (node,) = ring.nodes.values()
        node.service.admission.posts_max = 10
        async with connect(ring.address, network=ring.network(), seconds=1) as mine:
            receipts = await mine.post_many([Post(f"type=t, degree={i}") for i in range(11)])
        assert all(r.error and "busy" in r.error for r in receipts)
        assert all(r.error and "may or may not" not in r.error for r in receipts)


async def test_what_waits_for_a_reader_that_does_not_read_is_bounded_and_counted(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A client that shook hands, has a watch, and then reads nothing more."""
    memory = MemoryNetwork(seed=1)
    async with ring_of(1, tmp_path, memory) as ring:
        (node,) = ring.nodes.values()
        hello = {"protocol": PROTOCOL, "role": "client", "version": "0", "client": "sleeper"}
        stream = await ring.network("sleeper:1").dial(ring.address)
        await stream.send_all(encode([0, hello]))
        header = Header(Profile.parse("type=big"), "watch", sender="sleeper")
        watch = Message(header, Action.NOTIFY_DATA).to_wire()
        await stream.send_all(encode([1, 1, "post", [[[watch, 3000]], 5]]))
        async with connect(ring.address, network=ring.network(), seconds=60) as client:
            for _ in range(80):
                assert (await client.store("type=big", b"x" * 1_000_000, ttl=3000)).matches == 1
            assert node.report()["notifications_lost"] > 0
            assert (await client.aggregate("type=big")).value == 80
        await trio.aclose_forcefully(stream)


async def test_what_waits_for_a_disk_is_bounded_and_the_next_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(writer, "GROUPS_QUEUED_MAX", 5)
    monkeypatch.setattr(writer, "WRITES_BYTES_MAX", 1000)
    plugged = trio.Event()

    class Disk:
        async def begin(self) -> None:
            await plugged.wait()

        async def finish(self) -> None:
            await trio.lowlevel.checkpoint()

    def put(number: int, size: int) -> Put:
        header = Header(Profile.parse("type=t"), f"m{number}", expires_ms=10**12)
        return Put(Message(header, Action.STORE, b"x" * size))

    store = Store(tmp_path / "profiles.db", SPACE)
    disk = Writer(store, lambda: 0, Disk())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.run)
        nursery.start_soon(disk.commit, [put(0, 100)])
        await trio.sleep(1)  # it is being written
        with pytest.raises(Busy, match=r"0 groups of messages with 100 bytes wait for its disk"):
            await disk.commit([put(1, 901)])
        for number in range(2, 7):
            nursery.start_soon(disk.commit, [put(number, 100)])
        await trio.sleep(1)
        with pytest.raises(Busy, match=r"5 groups of messages with 600 bytes"):
            await disk.commit([put(7, 0)])
        assert all(length <= most for length, most in disk.bounds().values())
        plugged.set()
        await trio.sleep(1)
        await disk.commit([put(8, 1000)])
        nursery.cancel_scope.cancel()
    kept = [number for number in range(9) if store.find(0, f"m{number}")]
    assert kept == [0, 2, 3, 4, 5, 6, 8], "what was refused was not written, all else was"
    assert disk.bounds()["bytes that wait for a commit"][0] == 0
    store.close()


async def test_followers_that_do_not_answer_cost_refusals_in_words_and_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """One silent follower of two is not missed; two are; when they answer again all is made up."""
    silent: set[Replicas] = set()
    answering = Replicas.answer

    async def answer(self: Replicas, method: str, body: object) -> object:
        while self in silent:  # noqa: ASYNC110 - a peer that is stuck, and looks at nothing
            await trio.sleep(1)
        return await answering(self, method, body)

    monkeypatch.setattr(Replicas, "answer", answer)
    async with ring_of(5, tmp_path, MemoryNetwork(1), request_seconds=1.0) as ring:
        owner = max(ring.nodes.values(), key=lambda node: size(node.overlay.spans))
        by_place = {node.me.id: node for node in ring.nodes.values()}
        followers = [by_place[peer.id] for peer in owner.overlay.successors[:2]]
        async with connect(ring.address, network=ring.network(), seconds=10) as mine:

            async def post() -> list[Receipt]:
                posts = [Post(f"type=t, degree={i % 150}", b"x" * 1000) for i in range(300)]
                receipts = await mine.post_many(posts)
                for node in ring.nodes.values():
                    assert all(length <= most for length, most in node.bounds().values())
                return receipts

            silent.add(followers[0].replicas)
            assert all(r.complete and r.copies >= 2 for r in await post())
            silent.add(followers[1].replicas)
            receipts = await post()
            refused = [r.error for r in receipts if r.error]
            assert refused
            assert all("of the 2 copies needed (ack = quorum)" in words for words in refused)
            silent.clear()
            await trio.sleep(5)
            assert all(r.complete and r.copies >= 2 for r in await post())
            await trio.sleep(5)
            for node in ring.nodes.values():
                assert not any(copy["behind"] for copy in node.report()["copies_at"])


def test_owners_that_are_named_do_not_make_a_peer_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "BACKED_OWNERS_MAX", 3)
    mine = Replicas.__new__(Replicas)
    mine._backed, mine._clock = {}, lambda: 0
    for owner in (1, 2, 3, 1, 4):
        mine.back(owner, ((owner, owner),))
    assert mine.backed == ((1, 1), (3, 4)), "the one that was heard longest ago is gone"
