"""What clients do, and their own log of what the ring told them.

The log knows nothing of the ring: what was acknowledged, when, and what may or may not have
happened. `meteor.simulation.checks` judges the ring by it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

import trio

from arms.profile import Profile
from meteor.client import Post, Receipt, Ring
from meteor.errors import MeteorError
from meteor.simulation.determinism import History

PAUSE_SECONDS = 1.0
"""The pause of a client after an operation, at most."""

LONG_TTL_SECONDS = 100_000.0

EXPIRY_SLACK_SECONDS = 1.0
"""By how much the clocks of two peers may differ about the end of a TTL, and then some."""


@dataclass
class Item:
    """One item that a client posted, and what it was told about it."""

    number: int
    profile: str
    ttl: float
    posted: float
    acked: float = math.inf
    """When the ring acknowledged it; never, if it may or may not be there."""
    doubted: bool = False
    """Acknowledged by peers that answered in the place of lost ones."""
    doomed: float = math.inf
    """When somebody began to delete or take it."""
    gone: float = math.inf
    """When the ring said that it is deleted or taken, without a doubt."""
    takers: list[str] = field(default_factory=list)


@dataclass
class Query:
    """A question about the ring's content, and its answer."""

    client: str
    interest: str
    began: float
    ended: float
    found: frozenset[int]
    complete: bool
    doubted: bool


class Log:
    """What all clients did and were told."""

    def __init__(self) -> None:
        self.items: dict[int, Item] = {}
        self.counts: dict[str, int] = {}
        self.notified: dict[int, int] = {}
        """How often the reader was told of an item."""
        self.watched = math.inf
        """Since when the reader has its reliable watch."""
        self.takes: dict[str, Profile] = {}
        """What clients are just trying to take: it may be gone already."""
        self.on_query: Callable[[Query], None] = lambda _: None

    def new(self, random: Random) -> Item:
        """Make up an item; each has a profile of its own."""
        number = len(self.items)
        profile = f"type=t{number % 9}, location=l{number}, degree={number % 150}"
        ttl = random.uniform(5, 20) if random.random() < 0.15 else LONG_TTL_SECONDS
        item = self.items[number] = Item(number, profile, ttl, trio.current_time())
        return item

    def count(self, what: str) -> None:
        """Count an operation, or how it ended."""
        self.counts[what] = self.counts.get(what, 0) + 1


class Worker:
    """One client that does this and that."""

    def __init__(self, name: str, log: Log, history: History, seed: int) -> None:
        self.name, self._log, self._history = name, log, history
        self._random = Random(f"worker {name} {seed}")
        self._kinds: tuple[tuple[float, Callable[[Ring], Awaitable[None]]], ...] = (
            (0.45, self._store),
            (0.10, self._store_many),
            (0.15, self._delete),
            (0.18, self._retrieve),
            (0.04, self._count),
            (0.08, self._consume),
        )

    async def run(self, ring: Ring) -> None:
        """Work until cancelled."""
        weights = [weight for weight, _ in self._kinds]
        while True:
            ((_, work),) = self._random.choices(self._kinds, weights)
            try:
                await work(ring)
            except MeteorError as error:
                self._log.count("operations without a result")
                self._history.note("failed", self.name, work.__name__, error)
            await trio.sleep(self._random.uniform(0, PAUSE_SECONDS))

    async def _store(self, ring: Ring) -> None:
        item = self._log.new(self._random)
        self._log.count("posts")
        self._acknowledged(item, await ring.store(item.profile, str(item.number), ttl=item.ttl))

    async def _store_many(self, ring: Ring) -> None:
        items = [self._log.new(self._random) for _ in range(self._random.randint(2, 12))]
        self._log.count("batches of posts")
        posts = [Post(item.profile, str(item.number), ttl=item.ttl) for item in items]
        for item, receipt in zip(items, await ring.post_many(posts), strict=True):
            if not receipt.error:
                self._acknowledged(item, receipt)

    def _acknowledged(self, item: Item, receipt: Receipt) -> None:
        if receipt.complete:
            self._log.count("posts acknowledged")
            item.acked, item.doubted = trio.current_time(), bool(receipt.lost)
            self._history.note("acknowledged", self.name, item.number, receipt)

    async def _delete(self, ring: Ring) -> None:
        there = [i for i in self._log.items.values() if i.acked < i.doomed]
        if not there:
            return
        item = self._random.choice(there)
        item.doomed = trio.current_time()
        self._log.count("deletes")
        receipt = await ring.delete(item.profile)
        if receipt.complete and not receipt.lost and not item.doubted:
            item.gone = trio.current_time()
        self._history.note("deleted", self.name, item.number, receipt)

    async def _retrieve(self, ring: Ring) -> None:
        await query(ring, self._interest(), self.name, self._log, self._history)

    def _interest(self) -> str:
        low = self._random.randrange(140)
        return self._random.choice(
            (
                "degree=*",
                f"type=t{low % 9}",
                f"degree={low}..{low + 30}",
                f"type=t*, degree>{low}",
                f"location=l{low % 10}*",
                f"type=t{low % 9} | degree<{low // 4}",
            )
        )

    async def _count(self, ring: Ring) -> None:
        self._log.count("aggregates")
        result = await ring.aggregate(self._interest())
        self._history.note("counted", self.name, result)

    async def _consume(self, ring: Ring) -> None:
        interest = f"type=t{self._random.randrange(2)}"  # few, so that takers meet
        wanted = Profile.parse(interest)
        began = trio.current_time()
        self._log.count("takes")
        self._log.takes[self.name] = wanted
        try:
            consumed = await ring.consume(interest, limit=self._random.randint(1, 3))
        except (MeteorError, trio.Cancelled):
            self._may_be_taken(wanted, began)
            raise
        finally:
            del self._log.takes[self.name]
        if not consumed.complete:
            self._may_be_taken(wanted, began)
        for found in consumed.items:
            item = self._log.items[int(found.text)]
            item.doomed = min(item.doomed, began)
            item.takers.append(self.name)
            self._log.count("items taken")
            self._history.note("took", self.name, item.number)

    def _may_be_taken(self, wanted: Profile, began: float) -> None:
        """Note that a take may have got any item, and nobody was told."""
        for item in self._log.items.values():
            if wanted.selects(Profile.parse(item.profile)):
                item.doomed = min(item.doomed, began)


WATCHED = "type=t2"


async def read(ring: Ring, log: Log, history: History) -> None:
    """Read a reliable watch until cancelled."""
    while True:
        try:
            async with ring.watch(WATCHED, reliable="reader") as matches:
                log.watched = min(log.watched, trio.current_time())
                async for match in matches:
                    number = int(match.text)
                    log.notified[number] = log.notified.get(number, 0) + 1
                    history.note("notified", number)
        except MeteorError as error:
            history.note("could not watch", error)
            await trio.sleep(PAUSE_SECONDS)


async def query(ring: Ring, interest: str, client: str, log: Log, history: History) -> Query:
    """Retrieve by an interest, and have the answer judged."""
    log.count("queries")
    began, retrieval = trio.current_time(), ring.retrieve(interest)
    found = frozenset([int(item.text) async for item in retrieval])
    asked = Query(
        client,
        interest,
        began,
        trio.current_time(),
        found,
        retrieval.complete,
        bool(retrieval.lost),
    )
    history.note("queried", client, interest, len(found), retrieval.complete, retrieval.lost)
    log.on_query(asked)
    return asked
