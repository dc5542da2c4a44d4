"""Plain posts: many in one request, each with its own receipt, whatever happens to the others."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from meteor.client import Post, connect
from meteor.client.posting import LEADERS_MAX, Poster
from meteor.client.requests import POSTS_PER_REQUEST
from meteor.client.watch import ITEMS_PER_TURN
from meteor.errors import Busy, InputError, MeteorError, ProtocolError
from tests.meteor.rings import ring_of


class Peer:
    """Answers posts in its own time, and keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.methods: list[str] = []
        self.ids: list[tuple[str, str]] = []
        self.go_on = trio.Event()
        self.refuses = False

    async def request(self, method: str, body: Any) -> Any:
        self.methods.append(method)
        ids, profiles, data, _, credential, seconds = body
        assert (credential, seconds) == ("mine", 5.0)
        assert len(ids) == len(profiles) == len(data)
        self.requests.append(list(profiles))
        self.ids += zip(profiles, ids, strict=True)
        await self.go_on.wait()
        if self.refuses:
            raise Busy("later")
        wrong = [[i, ["error", "input", "bad"]] for i, p in enumerate(profiles) if p == "bad"]
        return [[1] * len(ids), [i % 7 for i in range(len(ids))], wrong]


def poster_of(peer: Peer) -> Poster:
    return Poster(peer.request, "mine", 5.0, Random(1))


async def test_what_tasks_post_while_requests_are_on_their_way_goes_in_one() -> None:
    peer = Peer()
    poster = poster_of(peer)
    receipts = {}

    async def post(number: int) -> None:
        receipts[number] = await poster.one(f"n={number}", b"", 1)

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(post, number)
        await trio.testing.wait_all_tasks_blocked()
        assert [len(request) for request in peer.requests] == [1] * LEADERS_MAX  # nobody waits
        peer.go_on.set()
    assert [len(request) for request in peer.requests[LEADERS_MAX:]] == [100 - LEADERS_MAX]
    assert len({receipt.id for receipt in receipts.values()}) == 100
    for request in peer.requests:
        for place, text in enumerate(request):  # everyone gets the receipt of its own post
            assert receipts[int(text[2:])].matches == place % 7


async def test_a_request_holds_so_many_posts_and_no_more() -> None:
    peer = Peer()
    poster = poster_of(peer)
    async with trio.open_nursery() as nursery:
        for number in range(LEADERS_MAX + 2 * POSTS_PER_REQUEST + 1):
            nursery.start_soon(poster.one, f"n={number}", b"", 1)
        await trio.testing.wait_all_tasks_blocked()
        peer.go_on.set()
    sizes = sorted(len(request) for request in peer.requests)
    assert sizes == [1] * (LEADERS_MAX + 1) + [POSTS_PER_REQUEST] * 2


async def test_a_leader_that_is_cancelled_leaves_the_others_to_the_next() -> None:
    peer = Peer()
    poster = poster_of(peer)
    done: list[str] = []

    async def post(text: str) -> None:
        await poster.one(text, b"", 1)
        done.append(text)

    async with trio.open_nursery() as nursery:
        first = trio.CancelScope()

        async def lead() -> None:
            with first:
                await post("n=leader")

        nursery.start_soon(lead)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(5):
            nursery.start_soon(post, f"n={number}")
        await trio.testing.wait_all_tasks_blocked()
        first.cancel()
        await trio.testing.wait_all_tasks_blocked()
        peer.go_on.set()
    assert sorted(done) == [f"n={number}" for number in range(5)]


async def test_what_a_cancelled_leader_sent_is_sent_again_under_the_same_ids() -> None:
    peer = Peer()
    poster = poster_of(peer)
    async with trio.open_nursery() as nursery:
        for number in range(LEADERS_MAX):
            nursery.start_soon(poster.one, f"n={number}", b"", 1)
        await trio.testing.wait_all_tasks_blocked()
        scope = trio.CancelScope()

        async def lead() -> None:
            with scope:
                await poster.one("n=leader", b"", 1)

        nursery.start_soon(lead)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(poster.one, "n=other", b"", 1)
        await trio.testing.wait_all_tasks_blocked()
        peer.go_on.set()  # the first are answered, the leader sends its own and the other's
        peer.go_on = trio.Event()
        await trio.testing.wait_all_tasks_blocked()
        assert ["n=leader", "n=other"] in peer.requests
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        peer.go_on.set()
    assert peer.methods[-1] == "store again"
    assert len({id_ for profile, id_ in peer.ids if profile == "n=other"}) == 1


async def test_who_waits_to_be_sent_and_is_cancelled_is_not_posted() -> None:
    peer = Peer()
    poster = poster_of(peer)
    async with trio.open_nursery() as nursery:
        for number in range(LEADERS_MAX):
            nursery.start_soon(poster.one, f"n={number}", b"", 1)
            await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.01) as gone:
            await poster.one("n=late", b"", 1)
        assert gone.cancelled_caught
        peer.go_on.set()
    assert ["n=late"] not in peer.requests


async def test_an_error_goes_to_whom_it_concerns() -> None:
    peer = Peer()
    peer.go_on.set()
    poster = poster_of(peer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poster.one, "n=1", b"", 1)
        with pytest.raises(InputError, match="bad"):
            await poster.one("bad", b"", 1)
    peer.refuses = True
    with pytest.raises(Busy):
        await poster.one("n=2", b"", 1)


@pytest.mark.parametrize(
    "answer", [None, [[1], [1]], [[1], [1], [[5, []]]], [[1, 1], [1], []], [["1"], [1], []]]
)
async def test_receipts_that_are_none_break_the_protocol(answer: Any) -> None:
    async def request(_method: str, _body: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return answer

    with pytest.raises(ProtocolError):
        await Poster(request, "", 1.0, Random(1)).one("n=1", b"", 1)


async def test_posts_of_all_kinds_have_their_receipts_in_order(tmp_path: Path) -> None:
    async with ring_of(3, tmp_path) as ring, connect(ring.address) as client:
        posts = [
            Post("type=a, degree=1", "plain"),
            Post("type=a, degree=1..5", "a range lies in more than one place"),
            Post("type=", "not a profile"),
            Post("type=a, degree=2", "with a context", context={"why": "so"}),
            Post("type=a*", action="notify_data"),
            Post("type=b, degree=3", 5),  # type: ignore[arg-type]
            Post("type=b, degree=4", "plain too"),
            Post("type=b", ttl=True),
        ]
        receipts = await client.post_many(posts)
        assert [bool(receipt.error) for receipt in receipts] == [0, 0, 1, 0, 0, 1, 0, 1]
        assert "column" in receipts[2].error
        found = {item.text async for item in client.retrieve("type=*")}
        assert found == {str(posts[i].data) for i in (0, 1, 3, 6)}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (Post("type=bad", b"", ttl=-1), "a TTL of -1 s; it must be 0 to"),
        (Post("type=bad", b"", ttl=float("nan")), "a TTL of nan s"),
        (Post("type=bad", b"", ttl=1e9), "it must be 0 to 31,622,400 seconds"),
        (Post("type=bad", bytes(2_000_000)), "2,000,000 bytes of data; a message carries at most"),
    ],
)
async def test_a_post_that_can_not_be_costs_its_neighbours_nothing(
    tmp_path: Path, bad: Post, why: str
) -> None:
    """Neither those of the same call, nor those of other tasks that share its request."""
    async with ring_of(1, tmp_path) as ring, connect(ring.address) as client:
        before, failed, after = await client.post_many(
            [Post("type=good", b"1"), bad, Post("type=good", b"2")]
        )
        assert why in failed.error
        assert "may or may not" not in failed.error
        assert before.complete
        assert after.complete
        async with trio.open_nursery() as nursery:
            for i in range(3, 9):
                nursery.start_soon(client.store, "type=good", str(i))
            with pytest.raises(InputError, match=why):
                await client.store(bad.profile, bad.data, ttl=bad.ttl)
        found = {item.text async for item in client.retrieve("type=*")}
        assert found == {str(i) for i in range(1, 9)}


async def test_what_is_no_post_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with ring_of(1, tmp_path) as ring, connect(ring.address) as client:
        with pytest.raises(InputError, match="what is posted are `Post`s, not str: 'type=a'"):
            await client.post_many([Post("type=good"), "type=a"])  # type: ignore[list-item]
        assert [item async for item in client.retrieve("type=*")] == []


async def test_a_post_goes_straight_to_its_owner_and_is_found_from_everywhere(
    tmp_path: Path,
) -> None:
    async with ring_of(5, tmp_path) as ring, connect(ring.address) as client:
        for turn in range(3):  # by the second time the owners are known
            posts = [Post(f"type=t{i}, degree={i}", f"{turn}-{i}") for i in range(60)]
            assert all(receipt.complete for receipt in await client.post_many(posts))
        for address in ring.addresses.values():
            async with connect(address) as other:
                assert (await other.aggregate("type=*")).value == 180


async def test_many_watches_are_one_iterator_that_says_which_were_met(tmp_path: Path) -> None:
    async with ring_of(3, tmp_path) as ring, connect(ring.address) as client:
        profiles = [f"type=t{i}, degree<50" for i in range(300)] + ["degree>20"]
        async with client.watch_many(profiles) as matches:
            await client.post_many(
                [Post("type=t7, degree=30", "x"), Post("type=t8, degree=10", "y")]
            )
            with trio.fail_after(10):
                met = {}
                for _ in range(2):
                    match = await anext(matches)
                    met[match.item.text] = sorted(match.profiles)
            assert met == {"x": ["degree>20", "type=t7, degree<50"], "y": ["type=t8, degree<50"]}
        receipt = await client.store("type=t7, degree=30", "nobody watches any more")
        assert receipt.matches == 0


async def test_a_watch_with_a_mistake_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    async with ring_of(2, tmp_path) as ring, connect(ring.address) as client:
        with pytest.raises(InputError):
            async with client.watch_many(["type=a", "type=("]):
                pass
        assert (await client.store("type=a")).matches == 0


async def test_a_burst_larger_than_all_queues_reaches_a_watcher_that_keeps_up(
    tmp_path: Path,
) -> None:
    count = 12 * ITEMS_PER_TURN
    async with (
        ring_of(1, tmp_path) as ring,
        connect(ring.address, seconds=60) as client,
        connect(ring.address) as watcher,
        watcher.watch("type=burst") as matches,
        trio.open_nursery() as nursery,
    ):

        async def post() -> None:
            posts = (Post(f"type=burst, degree={i % 90}", str(i), ttl=0) for i in range(count))
            receipts = await client.post_many(posts)
            assert {receipt.matches for receipt in receipts} == {1}

        nursery.start_soon(post)
        seen: set[str] = set()
        with trio.fail_after(60):
            while len(seen) < count:
                seen.add((await anext(matches)).text)
        assert matches.lost == 0


async def test_what_the_ring_refuses_reaches_the_one_who_posted(tmp_path: Path) -> None:
    async with ring_of(1, tmp_path) as ring, connect(ring.address) as client:
        for profile, words in (("type=a | type=b", "'|'"), ("type", "")):
            if words:
                with pytest.raises(InputError, match=r"data can't carry"):
                    await client.store(profile)
            else:
                assert (await client.store(profile)).complete
        with pytest.raises(InputError, match="text"):
            await client.store(5)  # type: ignore[arg-type]
        with pytest.raises(MeteorError):
            await client.store("type=\ud800")
        with pytest.raises(InputError, match="TTL"):
            await client.store("type=a", ttl=-1)


async def test_one_id_twice_in_a_request_is_one_message_that_is_told_once(tmp_path: Path) -> None:
    async with ring_of(1, tmp_path) as ring, connect(ring.address) as client:
        async with client.watch("type=a") as matches:
            body = [["same", "same"], ["type=a", "type=a"], [b"one", b"two"], 60, "", 5.0]
            copies, found, others = await client._request("store", body)
            assert (copies, found, others) == ([1, 1], [1, 0], [])
            with trio.fail_after(10):
                assert (await anext(matches)).data == b"one"
        assert [item.data async for item in client.retrieve("type=a")] == [b"one"]
