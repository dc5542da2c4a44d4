"""Sixteen real processes under load, killed with -9 and started again; the clients' log judges.

One peer is down at a time: the next is killed only when the ring is whole and every copy has
caught up, which is what the promise asks for.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
import trio

from meteor.client import Post, Ring, connect
from meteor.errors import MeteorError
from tests.whole.rings_up import Process, free_ports, process

PEERS = 16
CLIENTS = 4
WHOLE_SECONDS_MAX = 120
PATIENT = {
    # Two cores run all of these: a peer that waits for its turn is slow, not dead.
    "METEOR_REQUEST_SECONDS": "5",
    "METEOR_POST_SECONDS": "30",
}


class Lab:
    """Peers by their number, each a process with a folder of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.port = free_ports(PEERS)
        self.peers: dict[int, Process] = {}

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.port + number}"

    def start(self, number: int) -> None:
        joins = [
            word for other in sorted(self.peers)[:3] for word in ("--join", self.address(other))
        ]
        state = str(self.folder / f"peer-{number}")
        peer = self.stack.enter_context(
            process("node", "--listen", self.address(number), "--state", state, *joins, **PATIENT)
        )
        peer.wait_for("ready")
        self.peers[number] = peer

    def kill(self, number: int) -> None:
        self.peers.pop(number).end(signal.SIGKILL)

    async def whole(self) -> None:
        """Wait until every peer answers, and every copy has caught up."""
        with trio.fail_after(WHOLE_SECONDS_MAX):
            async with connect(*map(self.address, self.peers), seconds=30) as ring:
                while not await self._is_whole(ring):  # noqa: ASYNC110 - only peers know
                    await trio.sleep(0.2)

    async def _is_whole(self, ring: Ring) -> bool:
        report = await ring.report()
        copies = [copy for peer in report.peers for copy in peer["copies_at"]]
        # Posts go on meanwhile, so a copy may lack the very last ones.
        behind = any(copy["behind"] > 50 or copy["catching_up"] for copy in copies)
        return report.complete and len(report.peers) == len(self.peers) and not behind


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with ExitStack() as stack:
        lab = Lab(tmp_path, stack)
        lab.start(0)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lab.start, range(1, PEERS)))
        yield lab


class Log:
    """What the clients know: acknowledged, deleted for sure, or not sure."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, str]] = {}
        """By text: the profile and the id of what was acknowledged."""
        self.deleted: set[str] = set()
        self.unsure: set[str] = set()
        self.acknowledged = 0
        self.retrievals = 0


async def use(ring: Ring, log: Log, random: Random, name: str, done: trio.Event) -> None:
    """Post, delete and retrieve, at random, until it is over; note what is certain."""
    number = 0
    while not done.is_set():
        posts = []
        for _ in range(random.choice([1, 1, 1, 20])):
            number += 1
            profile = f"type=t{number % 7}, degree={random.randrange(150)}, client={name}"
            posts.append(Post(profile, f"{name}-{number}"))
        try:
            await keep(ring, log, posts)
            mine = [text for text in log.kept if text.startswith(f"{name}-")]
            if random.random() < 0.3 and mine:
                await forget(ring, log, random.choice(mine))
            if random.random() < 0.1:
                await ring.retrieve("type=t1, degree=0..50").all()
                log.retrievals += 1
        except MeteorError:
            await trio.sleep(0.1)  # what it was about is noted as unsure
        await trio.sleep(0.02)


async def keep(ring: Ring, log: Log, posts: list[Post]) -> None:
    log.unsure |= {str(post.data) for post in posts}
    if len(posts) == 1:
        receipts = [await ring.store(posts[0].profile, posts[0].data)]
    else:
        receipts = await ring.post_many(posts)
    for post, receipt in zip(posts, receipts, strict=True):
        if receipt.complete and not receipt.error:
            log.unsure.discard(str(post.data))
            log.kept[str(post.data)] = (post.profile, receipt.id)
            log.acknowledged += 1


async def forget(ring: Ring, log: Log, text: str) -> None:
    profile, id_ = log.kept.pop(text)
    log.unsure.add(text)
    if (await ring.delete(profile, only=id_)).complete:
        log.unsure.discard(text)
        log.deleted.add(text)


async def audit(lab: Lab, log: Log, number: int) -> None:
    """Compare what one peer finds with the log."""
    async with connect(lab.address(number), seconds=120) as ring:
        retrieval = ring.retrieve("type=*")
        there = [item.text for item in await retrieval.all()]
    assert retrieval.complete
    assert len(there) == len(set(there)), "found twice"
    assert set(log.kept) - set(there) == set(), "acknowledged, and gone"
    assert log.deleted & set(there) == set(), "deleted, and back"
    assert set(there) <= set(log.kept) | log.unsure, "never posted"


@pytest.mark.parametrize("seconds", [30, pytest.param(300, marks=pytest.mark.slow)])
async def test_nothing_is_lost_and_nothing_comes_back_under_chaos(lab: Lab, seconds: int) -> None:
    random, log, done, kills = Random(seconds), Log(), trio.Event(), 0
    await lab.whole()

    async def client(number: int) -> None:
        addresses = [lab.address(i) for i in range(number, PEERS, CLIENTS)]
        async with connect(*addresses, seconds=60) as ring:
            await use(ring, log, Random(number), f"c{number}", done)

    with trio.fail_after(seconds * 2 + 4 * WHOLE_SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                nursery.start_soon(client, number)
            end = trio.current_time() + seconds
            while trio.current_time() < end or not kills:
                victim = random.choice(sorted(lab.peers))
                await trio.to_thread.run_sync(lab.kill, victim)
                kills += 1
                await lab.whole()
                await trio.to_thread.run_sync(lab.start, victim)
                await lab.whole()
            done.set()
        for number in (0, PEERS // 2):
            await audit(lab, log, number)
    assert log.acknowledged > 100
    assert log.deleted
    print(
        f"{log.acknowledged} posts acknowledged, {len(log.deleted)} deleted, {kills} kills, "
        f"{len(log.unsure)} unsure, {log.retrievals} retrievals"
    )
