"""Two stores that differ agree afterwards, and what differs is all that is sent."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from arms.message import Action, Header, Message
from arms.profile import Profile
from arms.sites import Sites
from arms.store import Store
from arms.writes import Put, Remove
from meteor.node.copying import Copier
from meteor.node.reconciler import Reconciler
from meteor.node.writer import Writer
from meteor.ring.arcs import WHOLE, Spans, arc, contains
from meteor.transport.frames import FrameDecoder, encode
from tests.arms.rendezvous_point import stored_after
from tests.meteor.rings import SPACE, AtOnce

NOW, LATER = 1_000, 10**12


class Side:
    """A store with all that compares it."""

    def __init__(self, path: Path) -> None:
        self.store = Store(path, SPACE, sync="normal")
        self.writer = Writer(self.store, lambda: NOW, AtOnce())
        copier = Copier(SPACE, self.store, lambda: NOW, Sites(SPACE))
        self.reconciler = Reconciler(self.store, copier, self.writer, lambda: NOW)
        self.requests: list[str] = []
        self.bytes = 0

    async def answer(self, method: str, body: Any) -> Any:
        """Answer as over a connection."""
        self.requests.append(method)
        (asked,) = FrameDecoder().feed(encode(body))
        reply = encode(await self.reconciler.answer(method, asked))
        self.bytes += len(encode(body)) + len(reply)
        return FrameDecoder().feed(reply)[0]

    def write(self, *writes: Any) -> None:
        self.store.apply(NOW, [writes])

    def content(self, spans: Spans = WHOLE) -> set[tuple[str, int]]:
        found = {
            (s.message.id, s.message.header.expires_ms)
            for s in stored_after(self.store, NOW, 0, 10**6)
            if not s.point or contains(spans, s.identifier)
        }
        stones = {(s.id, 0) for _, s in self.store.tombstones(NOW, 0, 10**6) if s.point}
        return found | stones


def message(i: int, expires_ms: int = LATER) -> Message:
    action = Action.NOTIFY_DATA if i % 10 == 0 else Action.STORE
    text = f"type=t{i % 7}, degree={i % 180 - 40}, location=r{i}"
    if action is Action.NOTIFY_DATA:
        text = f"type=t{i % 7}*, degree>{i % 100}"
    return Message(Header(Profile.parse(text), f"m{i}", expires_ms), action)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Side, Side]:
    return Side(tmp_path / "one.db"), Side(tmp_path / "other.db")


async def reconcile(one: Side, other: Side, spans: Spans = WHOLE) -> None:
    async with trio.open_nursery() as nursery:
        for side in (one, other):
            nursery.start_soon(side.writer.run)
        await one.reconciler.reconcile(other.answer, spans)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(12))
async def test_both_sides_have_the_same_afterwards(
    sides: tuple[Side, Side], autojump_clock: MockClock, seed: int
) -> None:
    random = Random(seed)
    count = random.choice([0, 3, 300, 2500])
    union: dict[str, int] = {}
    removed: set[str] = set()
    for i in range(count):
        for side in sides:
            if random.random() < 0.9:
                later = LATER + random.randrange(2)
                side.write(Put(message(i, later)))
                union[f"m{i}"] = max(later, union.get(f"m{i}", 0))
    for side in sides:
        for i in range(count):
            if i % 10 and random.random() < 0.05 and side.store.find(NOW, f"m{i}"):
                side.write(Remove((f"m{i}",)))
                removed.add(f"m{i}")
    await reconcile(*sides)
    expected = {(id_, 0 if id_ in removed else ends) for id_, ends in union.items()}
    assert sides[0].content() == sides[1].content() == expected


async def test_only_the_spans_are_looked_at(
    sides: tuple[Side, Side], autojump_clock: MockClock
) -> None:
    one, other = sides
    for i in range(1, 400):
        one.write(Put(message(i)))
    points = {s.message.id: s.identifier for s in stored_after(one.store, NOW, 0, 999) if s.point}
    half = arc(0, sorted(points.values())[len(points) // 2])
    await reconcile(one, other, half)
    inside = {id_ for id_, identifier in points.items() if contains(half, identifier)}
    assert 0 < len(inside) < len(points)
    assert {s.message.id for s in stored_after(other.store, NOW, 0, 999) if s.point} == inside


async def test_the_cost_follows_the_difference(
    sides: tuple[Side, Side], autojump_clock: MockClock
) -> None:
    one, other = sides
    for side in sides:
        side.write(*(Put(message(i)) for i in range(1, 5000) if i % 10))
    await reconcile(one, other)
    alike = other.bytes
    assert set(other.requests) == {"digests"}
    one.write(Put(message(9001)))
    other.write(Put(message(9002)), Remove(("m7",)))
    await reconcile(one, other)
    assert one.content() == other.content()
    assert other.bytes - alike < 200_000  # three differ of 4,500, which are 1.5 MB
