"""Meteor as a system under test: a ring of real processes on loopback."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import trio

from meteor.bench.flow import MATCHED, PLACES, TASKS, TYPES, Flow, Watched, pause, payload
from meteor.client import Post, Ring, connect
from meteor.config import load_space
from meteor.workers import deaf_to_interrupts, end_with_parent
from squid import Keyword, Pattern, Space, learn_space, number

POSTS_PER_CALL = 2_048
"""Posts that the publisher hands to `post_many` at once."""

CALLS_AT_ONCE = 3
"""Tasks that do so: while the posts of one are on their way, another makes its own."""

READINGS_LEARNT = 5_000
"""Readings that the space is learnt from; they are others than those that are sent."""

START_SECONDS = 30.0


class OwnRing:
    """A ring of so many peers, whose space was learnt from readings or is the default as it is."""

    def __init__(self, peers: int = 1, sync: str = "full", *, learnt: bool = True) -> None:
        self.name = "meteor" if peers == 1 else f"meteor, {peers} peers"
        self.name += "" if learnt else ", space not learnt"
        self.peers, self.sync, self.learnt = peers, sync, learnt

    def missing(self) -> str:
        """Nothing is missing."""
        return ""

    @contextmanager
    def running(self, folder: str) -> Iterator[str]:
        """Run the peers, each with an equal arc; gives the address of the first."""
        context = get_context("spawn")
        processes = []
        space = learnt_space() if self.learnt else load_space("")
        first = ""
        with tempfile.TemporaryDirectory(dir=folder) as state:
            try:
                for i in range(self.peers):
                    near, far = context.Pipe()
                    settings = {
                        "listen": "127.0.0.1:0",
                        "join": (first,) if first else (),
                        "state": str(Path(state) / f"peer-{i}"),
                        "id": i * (2**63 // self.peers),
                        "sync": self.sync,
                    }
                    process = context.Process(
                        target=_peer, args=(settings, space.to_toml(), far), daemon=True
                    )
                    with deaf_to_interrupts():
                        process.start()
                    processes.append(process)
                    if not near.poll(START_SECONDS):
                        raise RuntimeError(f"peer {i} did not start in {START_SECONDS:.0f} s")
                    first = first or near.recv()
                if self.peers > 1:
                    time.sleep(3.0)  # until everybody knows everybody
                yield first
            finally:
                for process in processes:
                    process.terminate()
                for process in processes:
                    process.join(5)
                    process.kill()

    def watch(self, address: str, flow: Flow, ready: Callable[[], None]) -> Watched:
        """Take all deliveries."""
        return trio.run(_watch, address, flow, ready)

    def post(self, address: str, flow: Flow, begin: Callable[[], None]) -> None:
        """Send all messages."""
        trio.run(_post, address, flow, begin)


def learnt_space() -> Space:
    """Return the default space with codecs learnt from readings, as `meteor space learn` does.

    A ring that knows its content has such a space. The plain keyword codec places words of three
    dimensions by their first three letters only, and all these rooms begin alike.
    """
    values: list[dict[str, list[Pattern]]] = [
        {"type": [Keyword(name)], "location": [Keyword(f"room{place}")], "degree": [number(degree)]}
        for name, place, degree in Flow(READINGS_LEARNT, seed=0).readings()
    ]
    return learn_space(load_space(""), values)


def _peer(settings: dict[str, Any], space: str, pipe: Any) -> None:
    from meteor.config import Config
    from meteor.node.node import Node

    end_with_parent()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            node = Node(Config(**settings), Space.from_toml(space))
            pipe.send(await nursery.start(node.run))

    trio.run(main)


def interests(flow: Flow) -> list[str]:
    """Return the watches of a flow: ranges and prefixes, MATCHED of which each message meets.

    Every type and place has its watches; those of one place cut the degrees into ranges, which
    differ from watch to watch, and name the type by a prefix.
    """
    if not flow.watches:
        return ["degree=*"]
    groups = flow.watches // MATCHED
    places = max(1, groups // len(TYPES))
    found = []
    for name in TYPES[: max(1, groups // places)]:
        for place in range(places):
            low = place * PLACES // places
            rooms = range(low, (place + 1) * PLACES // places)
            where = " | ".join(f"location=room{room}" for room in rooms)
            if places == 1:
                where = "location=room*"
            for i in range(MATCHED):
                found.append(f"type={name[: 3 + i % 3]}*, ({where}), degree={-i}..{150 + i}")
    return found


async def _watch(address: str, flow: Flow, ready: Callable[[], None]) -> Watched:
    watched = Watched()
    async with connect(address, name="watcher") as ring, AsyncExitStack() as stack:
        matches = await stack.enter_async_context(ring.watch_many(interests(flow)))
        ready()
        async for match in matches:
            watched.take(match.item.data, len(match.profiles))
            if watched.count >= flow.deliveries:
                break
        watched.end()
    return watched


async def _post(address: str, flow: Flow, begin: Callable[[], None]) -> None:
    async with connect(address, name="publisher") as ring:
        posts = _posts(list(flow.readings()), flow)
        begin()
        if flow.awaited or flow.per_second:
            await _post_each(ring, flow, posts)
            return

        async def work() -> None:
            while batch := list(islice(posts, POSTS_PER_CALL)):
                _check(await ring.post_many(batch))

        async with trio.open_nursery() as nursery:
            for _ in range(CALLS_AT_ONCE):
                nursery.start_soon(work)


async def _post_each(ring: Ring, flow: Flow, posts: Iterator[Post]) -> None:
    """Post one by one, by many tasks; at a pace, by one."""
    numbered, started = enumerate(posts), time.monotonic()

    async def work() -> None:
        for sent, post in numbered:
            if wait := pause(flow, started, sent):
                await trio.sleep(wait)
            await ring.store(post.profile, payload(), ttl=post.ttl)

    async with trio.open_nursery() as nursery:
        for _ in range(1 if flow.per_second else TASKS):
            nursery.start_soon(work)


def _posts(readings: Iterable[tuple[str, int, int]], flow: Flow) -> Iterator[Post]:
    ttl = 0 if flow.mode == "transient" else 600
    for name, place, degree in readings:
        profile = f"type={name}, location=room{place}, degree={degree}"
        yield Post(profile, payload(), ttl=ttl)


def _check(receipts: Sequence[Any]) -> None:
    bad = [receipt for receipt in receipts if not receipt.complete]
    if bad:
        raise RuntimeError(f"{len(bad)} posts failed: {bad[0]}")
