"""Posts that are repeated, perhaps where nobody knows of the first: they are taken once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from arms.message import Action, Header, Message
from arms.profile import Profile
from meteor.client import Ring
from meteor.client.connection import Connection
from meteor.errors import (
    Busy,
    ConnectionLost,
    InputError,
    MeteorError,
    NoAnswer,
    Refused,
    RemoteError,
)
from meteor.limits import RETURN_SECONDS
from meteor.node.errands import Answer, Errand, Take, errand_for
from meteor.node.posts import Posts
from meteor.node.voting import LOOK_AROUND_SECONDS
from meteor.ring.arcs import intersect
from meteor.ring.questions import Peer
from meteor.transport.frames import Value
from meteor.transport.memory import MemoryNetwork
from tests.meteor.rings import SPACE, TestRing, ring_of, virtual_clock_ms
from tests.meteor.test_partitions import Cut

DOUBLED = "its post was repeated, so it may be elsewhere too"


LONG_ENOUGH = RETURN_SECONDS + 2 * LOOK_AROUND_SECONDS + 10
"""After so many seconds a peer knows whether the ring is whole, and has been for a while."""


@pytest.fixture
def memory() -> MemoryNetwork:
    return MemoryNetwork(seed=5, latency_seconds=(0.001, 0.02))


async def send(client: Ring, method: str, numbers: range, profile: str = "") -> None:
    """Post items under ids of their own, as a client does; again, as one that lost its peer."""
    ids = [f"item-{i}" for i in numbers]
    profiles = [profile or f"type=t{i % 9}, location=l{i}, degree={i}" for i in numbers]
    body = [ids, profiles, [str(i).encode() for i in numbers], 100_000, "", 10]
    copies, _, others = await client._connection.request(method, body, 30)  # type: ignore[misc]
    outcomes = dict(others)
    for row in range(len(ids)):
        assert copies[row] or outcomes[row][:2] == ["receipt", True], outcomes[row]


async def take_all(client: Ring, interest: str = "degree=*") -> tuple[list[str], str]:
    """Take what one can get; returns it, and why one gets no more."""
    taken: list[str] = []
    while True:
        try:
            consumed = await client.consume(interest, limit=5)
        except RemoteError as error:
            return taken, str(error)
        taken += [item.text for item in consumed.items]
        if not consumed.items:
            return taken, ""


async def test_a_post_that_is_repeated_on_the_other_side_of_a_cut_is_taken_once(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Of each place one side is sure; the first post is now on that side, now on the other."""
    async with ring_of(8, tmp_path, memory) as ring:
        cut = Cut(ring, memory, 4)
        async with cut.connect(cut.one) as here, cut.connect(cut.other) as there:
            cut.fall_apart()
            await cut.go_on()
            for numbers, first, second in ((range(20), here, there), (range(20, 40), there, here)):
                await send(first, "store", numbers)
                await send(second, "store again", numbers)
            await trio.sleep(LONG_ENOUGH)  # voters are looked after, and must not be made up
            taken: list[str] = []
            for client, numbers in ((here, range(20)), (there, range(20, 40))):
                got, why = await take_all(client)
                # A post that a peer had to route again counts as repeated on its first side too.
                assert set(map(int, got)) <= set(numbers)
                assert got
                assert DOUBLED in why
                taken += got
            await cut.heal()
            for client in (here, there):
                taken += (await take_all(client))[0]
            await trio.sleep(LONG_ENOUGH)
            for client in (here, there):
                got, why = await take_all(client)
                assert why == ""
                taken += got
            assert sorted(taken, key=int) == [str(i) for i in range(40)]


async def test_what_was_posted_in_doubt_for_the_second_time_is_taken_when_the_cut_heals(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """The first post came to nothing: there is one of each, and nobody could know."""
    async with ring_of(6, tmp_path, memory) as ring:
        cut = Cut(ring, memory, 3)
        async with cut.connect(cut.one) as here:
            cut.fall_apart()
            await cut.go_on()
            await send(here, "store again", range(20))
            got, why = await take_all(here)
            assert (got, DOUBLED in why) == ([], True)
            await cut.heal()
            await trio.sleep(LONG_ENOUGH)
            assert all(voters_known(ring))
            got, why = await take_all(here)
            assert (len(got), why) == (20, "")


async def test_a_post_that_is_repeated_far_from_the_cut_is_taken_once(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Only the neighbours of the peer that is cut off know that it is."""
    async with ring_of(8, tmp_path, memory) as ring:
        cut = Cut(ring, memory, 1)
        async with cut.connect(cut.one) as here, cut.connect(cut.other) as there:
            cut.fall_apart()
            await cut.go_on()
            await send(there, "store", range(30))
            await send(here, "store again", range(30))
            ignorant = [n for n in cut.one if not ring.nodes[n].overlay.lost.peers]
            assert len(ignorant) > len(cut.one) / 2
            await trio.sleep(LONG_ENOUGH)
            taken, _ = await take_all(there)
            assert sorted(map(int, taken)) == list(range(30))
            got, why = await take_all(here)
            assert (got, DOUBLED in why) == ([], True)
            await cut.heal()
            await trio.sleep(LONG_ENOUGH)
            for client in (here, there):
                assert await take_all(client) == ([], "")


async def test_a_repeated_post_can_be_taken_after_a_while_when_nobody_is_missing(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with (
        ring_of(6, tmp_path, memory) as ring,
        Cut(ring, memory, 0).connect(["p0"]) as client,
    ):
        await send(client, "store again", range(10))
        got, why = await take_all(client)
        assert (got, DOUBLED in why) == ([], True)
        await trio.sleep(LONG_ENOUGH)
        assert all(voters_known(ring))
        got, why = await take_all(client)
        assert (sorted(map(int, got)), why) == (list(range(10)), "")


async def test_a_repeated_post_can_be_taken_when_the_lost_peer_is_forgotten(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with ring_of(6, tmp_path, memory) as ring:
        cut = Cut(ring, memory, 0)
        async with cut.connect(cut.one) as client:
            gone = ring.addresses["p3"]
            await ring.stop("p3")
            await ring.settle()
            await send(client, "store again", range(30))
            await trio.sleep(LONG_ENOUGH)
            got, why = await take_all(client)
            assert (got, DOUBLED in why) == ([], True)
            assert not ring.nodes["p0"].report()["voters_change"]  # there is nothing to be done
            await client.forget(gone)
            await trio.sleep(LOOK_AROUND_SECONDS + 5)
            got, why = await take_all(client)
            assert (sorted(map(int, got)), why) == (list(range(30)), "")


@pytest.mark.parametrize("repeated", [False, True])
async def test_a_take_that_is_asked_for_again_may_have_happened_where_nobody_can_tell(
    tmp_path: Path, memory: MemoryNetwork, autojump_clock: MockClock, repeated: bool
) -> None:
    async with ring_of(4, tmp_path, memory) as ring:
        await ring.settle()
        take = Errand(Take("item-0", "taker", ""), errand_for(SPACE, message()).spans)
        router = ring.nodes["p0"].router
        (answer,) = await router.ask([replace(take, repeated=repeated)], 10)
        assert (answer.matches, answer.faults) == (0, [])  # nobody is lost: it is not there
        owner = answer.speakers[0].peer.address.partition(":")[0]
        await ring.stop(owner)
        await ring.settle()
        router = next(iter(ring.nodes.values())).router
        (answer,) = await router.route([replace(take, repeated=repeated)], 10, 8)
        assert answer.matches == 0
        assert any("may have been given to you" in fault for fault in answer.faults) == repeated


async def test_a_take_that_nobody_answers_is_no_success(
    tmp_path: Path,
    memory: MemoryNetwork,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        ring_of(1, tmp_path, memory) as ring,
        Cut(ring, memory, 0).connect(["p0"]) as client,
    ):
        await send(client, "store", range(1))
        router = ring.nodes["p0"].router
        ask = router.ask

        async def silent(errands: Sequence[Errand], seconds: float) -> list[Answer]:
            if isinstance(errands[0].task, Take):
                return [Answer() for _ in errands]
            return await ask(errands, seconds)

        monkeypatch.setattr(router, "ask", silent)
        with pytest.raises(RemoteError, match="it may have been given to you, or not"):
            await client.consume("degree=*")


def voters_known(ring: TestRing) -> list[bool]:
    """Say of each copy whether it has voters."""
    return [
        bool(entry.message.header.voters.peers)
        for node in ring.nodes.values()
        for i in range(40)
        if (entry := node.store.find(virtual_clock_ms(), f"item-{i}")) is not None
    ]


async def test_a_part_of_a_batch_whose_owner_did_not_answer_is_repeated(
    tmp_path: Path,
    memory: MemoryNetwork,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A peer that hands a part back, or refuses to talk, has done nothing."""
    async with ring_of(3, tmp_path, memory) as ring:
        await ring.settle()
        posts = ring.nodes["p0"]._posts
        other = Peer(1, "elsewhere:1")
        monkeypatch.setattr(posts, "_shares", lambda batch: {other: range(len(batch))})
        for answer, expected in (
            (ConnectionLost("gone"), {"a", "b"}),
            (NoAnswer("slow"), {"a", "b"}),
            (Refused("of another ring"), set()),
            ([[], 0, [], [], "", [0, 1]], set()),
        ):
            await one_way(posts, answer, expected, monkeypatch)


async def one_way(
    posts: Posts,
    answer: MeteorError | list[Value],
    expected: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    general: list[tuple[int, set[str]]] = []

    async def owner(address: str, method: str, body: Value, seconds: float) -> Value:
        if isinstance(answer, MeteorError):
            raise answer
        return answer

    async def general_way(
        messages: list[Message], seconds: float, repeated: Collection[str]
    ) -> list[Value]:
        general.append((len(messages), set(repeated)))
        return [["receipt"]] * len(messages)

    profile = "type=t1, location=l1, degree=1"
    posted = posts.read("c", [["a", "b"], [profile] * 2, [b"", b""], 10, ""])
    with monkeypatch.context() as patch:
        patch.setattr(posts._links, "request", owner)
        await posts.place(posted, trio.current_time() + 5, general_way)
    assert general == [(2, expected)]


# -- who says that it is repeated ------------------------------------------------------------------


class Peers:
    """Answers requests one after the other, as it was told to."""

    def __init__(self, *answers: Exception | str) -> None:
        self.closed = trio.Event()
        self.asked: list[str] = []
        self._answers = list(answers)

    async def request(self, method: str, body: Value, seconds: float) -> Value:
        self.asked.append(method)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("store", ["store", "store", "store again", "store again"]),
        ("post", ["post", "post", "post again", "post again"]),
        ("page", ["page"] * 4),
    ],
)
async def test_a_client_that_lost_its_peer_says_that_it_asks_again(
    method: str, asked: Sequence[str], autojump_clock: MockClock
) -> None:
    connection = Connection(MemoryNetwork().host("c:1"), ["p:1"], "c", Random(1))
    peers = Peers(Busy("later"), ConnectionLost("gone"), Busy("later"), "done")
    connection._channel = peers  # type: ignore[assignment]
    assert await connection.request(method, None, 30) == "done"
    assert peers.asked == list(asked)


@pytest.mark.parametrize("repeated", [False, True])
def test_an_errand_says_on_the_wire_whether_it_is_repeated(repeated: bool) -> None:
    errand = Errand(message(), ((0, 5),), repeated=repeated)
    wire = errand.to_wire()
    assert Errand.from_wire([list(map(list, p)) if i == 2 else p for i, p in enumerate(wire)]) == (
        errand
    )
    with pytest.raises(InputError, match="not an errand"):
        Errand.from_wire(wire[:-1])


async def test_the_second_round_and_what_is_shared_out_again_are_repeated(
    tmp_path: Path,
    memory: MemoryNetwork,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ring_of(3, tmp_path, memory) as ring:
        await ring.settle()
        errand = errand_for(SPACE, message())
        others = [n for n in ring.nodes.values() if not intersect(n.overlay.spans, errand.spans)]
        router = others[0].router
        rounds: list[bool] = []

        async def silent(errands: Sequence[Errand], seconds: float, hops: int) -> list[Answer]:
            rounds.extend(errand.repeated for errand in errands)
            return [Answer() for _ in errands]

        with monkeypatch.context() as patch:
            patch.setattr(router, "route", silent)
            await router.ask([errand], 0.1)
        assert rounds[:2] == [False, True]

        sent: list[bool] = []

        async def gone(address: str, method: str, body: Value, seconds: float) -> Value:
            if method == "errands":
                sent.extend(wire[-1] for wire in body[3])  # type: ignore[call-overload, index]
            raise ConnectionLost("gone")

        monkeypatch.setattr(router._links, "request", gone)
        await router.route([errand], 1, 8)
        assert sent[0] is False
        assert all(sent[1:])
        assert len(sent) > 1


def message() -> Message:
    return Message(Header(Profile.parse("type=t1, location=l1, degree=1"), "id"), Action.STORE, b"")
