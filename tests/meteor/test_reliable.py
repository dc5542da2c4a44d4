"""Reliable watches: what matches waits in an inbox until it is acknowledged, whoever dies."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from arms.inbox import inbox_profile, inbox_region
from arms.profile import Profile
from meteor.client import Ring, connect
from meteor.client.watch import Watch
from meteor.errors import InputError, MeteorError
from meteor.transport.memory import MemoryNetwork
from tests.meteor.rings import SPACE, TestRing, ring_of

PROFILE = "type=alarm, degree>50"


@pytest.fixture
def memory() -> MemoryNetwork:
    return MemoryNetwork(seed=5, latency_seconds=(0.001, 0.02))


def client(ring: TestRing, *names: str):  # type: ignore[no-untyped-def]
    addresses = [ring.addresses[name] for name in names] or list(ring.addresses.values())
    return connect(*addresses, network=ring.network(), seconds=30)


async def alarm(poster: Ring, number: int, **how: float) -> None:
    await poster.store(
        f"type=alarm, location=l{number % 7}, degree={60 + number}", str(number), **how
    )


async def taken(matches: Watch, count: int) -> list[int]:
    with trio.fail_after(60):
        return [int((await anext(matches)).text) for _ in range(count)]


async def silent(matches: Watch) -> bool:
    with trio.move_on_after(10):
        await anext(matches)
        return False
    return True


async def waiting(reader: Ring, inbox: str = "desk") -> int:
    return len(await reader.retrieve(inbox_profile(inbox).text).all())


def owner_of(ring: TestRing, inbox: str = "desk") -> str:
    place = inbox_region(SPACE, inbox).lowest
    assert place is not None
    (name,) = [
        name
        for name, node in ring.nodes.items()
        if any(low <= place <= high for low, high in node.overlay.spans)
    ]
    return name


async def test_a_reader_gets_each_once_and_acknowledging_removes_it(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(5, tmp_path, memory) as ring,
        client(ring) as reader,
        client(ring) as poster,
        reader.watch(PROFILE, reliable="desk") as matches,
    ):
        for i in range(5):
            await alarm(poster, i)
        await poster.store("type=alarm, degree=5", b"cold")
        assert await waiting(poster) == 5
        assert sorted(await taken(matches, 5)) == list(range(5))
        assert await silent(matches)
        assert await waiting(poster) == 0


async def test_what_was_not_acknowledged_comes_again_to_a_program_started_again(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(5, tmp_path, memory) as ring, client(ring, "p0") as poster:
        with suppress(MeteorError):
            async with (
                client(ring, "p1") as reader,
                reader.watch(PROFILE, reliable="desk") as matches,
            ):
                for i in range(3):
                    await alarm(poster, i)
                first = await taken(matches, 2)
                raise MeteorError("the program stumbles over the second")
        await trio.sleep(90)  # longer than an ordinary watch lives
        await alarm(poster, 3)
        async with client(ring, "p3") as reader, reader.watch(PROFILE, reliable="desk") as matches:
            again = await taken(matches, 3)
        assert first[0] not in again
        assert sorted({*first, *again}) == [0, 1, 2, 3]
        assert await waiting(poster) == 0, "a clean exit acknowledges the last one too"


async def test_a_reader_whose_peer_dies_goes_on_through_another(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(6, tmp_path, memory) as ring:
        served = next(name for name in ring.nodes if name != owner_of(ring))
        others = [name for name in ring.nodes if name != served]
        async with (
            client(ring, *others) as poster,
            client(ring, served, *others) as reader,
            reader.watch(PROFILE, reliable="desk") as matches,
        ):
            await alarm(poster, 0)
            assert await taken(matches, 1) == [0]
            await ring.stop(served)
            for i in range(1, 4):
                await alarm(poster, i)
            assert sorted(await taken(matches, 3)) == [1, 2, 3]
            assert await silent(matches)


@pytest.mark.parametrize("whose", ["data", "inbox"])
async def test_a_crashed_owner_costs_nothing_that_was_acknowledged(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock, whose: str
) -> None:
    async with ring_of(6, tmp_path, memory) as ring, client(ring) as poster:
        async with client(ring) as reader, reader.watch(PROFILE, reliable="desk"):
            pass
        await poster.store("type=alarm, location=a, degree=70", b"1")
        at = SPACE.point_region(
            Profile.parse("type=alarm, location=a, degree=70").data_by_attribute()
        )
        assert at.lowest is not None
        doomed = owner_of(ring)
        if whose == "data":
            (doomed,) = [
                name
                for name, node in ring.nodes.items()
                if any(low <= at.lowest <= high for low, high in node.overlay.spans)
            ]
        await ring.stop(doomed)
        await ring.settle()
        await poster.store("type=alarm, location=a, degree=70", b"2")
        async with client(ring) as reader, reader.watch(PROFILE, reliable="desk") as matches:
            assert sorted(await taken(matches, 2)) == [1, 2]


async def test_an_inbox_moves_with_its_arc_when_peers_join_and_leave(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(3, tmp_path, memory) as ring:
        async with client(ring) as reader, reader.watch(PROFILE, reliable="desk"):
            pass
        async with client(ring) as poster:
            for i in range(10):
                await alarm(poster, i)
        place = inbox_region(SPACE, "desk").lowest
        await ring.start("new", id=place)
        await ring.settle()
        assert owner_of(ring) == "new"
        async with client(ring, "p0") as poster:
            await alarm(poster, 10)
        await ring.leave("new")
        await ring.settle()
        async with client(ring) as reader, reader.watch(PROFILE, reliable="desk") as matches:
            assert sorted(await taken(matches, 11)) == list(range(11))


async def test_transient_posts_are_kept_for_who_is_away(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(3, tmp_path, memory) as ring, client(ring) as poster:
        async with client(ring) as reader, reader.watch(PROFILE, reliable="desk"):
            pass
        await alarm(poster, 1, ttl=0)
        async with client(ring) as reader, reader.watch(PROFILE, reliable="desk") as matches:
            assert await taken(matches, 1) == [1]


async def test_the_same_post_sent_twice_is_one_note(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(4, tmp_path, memory) as ring, client(ring) as poster:
        message = poster._message("type=alarm, degree=70", data=b"1")
        async with client(ring) as reader, reader.watch(PROFILE, reliable="desk") as matches:
            for _ in range(2):
                await poster._post([message], [600])
            assert await waiting(poster) == 1
            assert await taken(matches, 1) == [1]
            assert await silent(matches)
            assert await waiting(poster) == 0
            await poster._post([message], [600])
            assert await waiting(poster) == 0, "what was acknowledged does not come back"


async def test_watches_share_an_inbox_and_unwatch_empties_what_is_its_own(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(4, tmp_path, memory) as ring, client(ring) as reader:
        async with (
            reader.watch("type=alarm", reliable="desk") as alarms,
            reader.watch("type=door", reliable="desk") as doors,
        ):
            await reader.store("type=door", b"1")
            await reader.store("type=alarm", b"2")
            assert await taken(alarms, 1) == [2]
            assert await taken(doors, 1) == [1]
        await reader.store("type=door", b"3")
        await reader.store("type=alarm", b"4")
        assert await waiting(reader) == 2
        assert (await reader.unwatch("type=door", reliable="desk")).matches == 1
        await reader.store("type=door", b"5")
        (left,) = await reader.retrieve('meteor.inbox="desk"').all()
        async with reader.watch("type=alarm", reliable="desk") as alarms:
            assert await taken(alarms, 1) == [4]
        assert left.profile == "meteor.inbox=desk"


async def test_a_full_inbox_holds_nobody_up_and_says_so(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(3, tmp_path, memory) as ring, client(ring) as poster:
        for node in ring.nodes.values():
            node.store.inbox_notes_max = 5
        for _ in range(2):  # the mark of a second time is not taken for that of the first
            async with client(ring) as reader, reader.watch(PROFILE, reliable="desk"):
                pass
            for i in range(12):
                await alarm(poster, i)
            assert await waiting(poster) == 6
            async with client(ring) as reader, reader.watch(PROFILE, reliable="desk") as matches:
                got = await taken(matches, 12)
                assert await silent(matches)
                assert matches.lost == 1
            assert sorted(got) == list(range(12))
            assert await waiting(poster) == 0
            await poster.delete("type=alarm")


async def test_a_replay_and_notes_give_each_once(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(3, tmp_path, memory) as ring, client(ring) as poster:
        await alarm(poster, 0)
        async with client(ring) as reader, reader.watch(PROFILE, reliable="desk"):
            pass
        await alarm(poster, 1)
        async with (
            client(ring) as reader,
            reader.watch(PROFILE, reliable="desk", replay=True) as matches,
        ):
            assert sorted(await taken(matches, 2)) == [0, 1]
            assert await silent(matches)
        assert await waiting(poster) == 0


async def test_what_is_reserved_is_refused_in_words(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(1, tmp_path, memory) as ring, client(ring) as someone:
        for profile in ("meteor.inbox=desk", "meteor.inbox=desk, type=a"):
            with pytest.raises(InputError, match="reserved"):
                await someone.store(profile)
        for name in ("", "x" * 129):
            with pytest.raises(InputError, match="1 to 128 characters"):
                async with someone.watch("type=a", reliable=name):
                    pass
        with pytest.raises(InputError, match="can't be watched reliably"):
            async with someone.watch("meteor.inbox=desk", reliable="other"):
                pass
        async with someone.watch("type=a", reliable="desk"):
            with pytest.raises(InputError, match="has this watch already"):
                async with someone.watch("type=a", reliable="desk"):
                    pass
