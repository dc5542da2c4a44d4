"""Too much at once: a peer says `busy` in words, clients come back, and nothing grows."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from arms.message import Action, Header, Message
from arms.profile import Profile
from meteor.client import Post, connect
from meteor.errors import Busy
from meteor.limits import PROTOCOL
from meteor.node.admission import Admission
from meteor.node.writer import Writer
from meteor.transport.frames import encode
from meteor.transport.memory import MemoryNetwork
from tests.meteor.rings import ring_of


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
