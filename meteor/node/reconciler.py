"""Reconciles two peers' stores: finds what they have not in common in some spans, and mends it.

The peer that leads compares digests (`arms.digests`), asks for names where they differ, fetches
what it lacks and sends what the other lacks. What was deleted at either is deleted at both. The
other side only answers, and keeps no state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from arms.digests import Digest, Names, Span, part_width
from arms.places import Place
from arms.store import Store
from arms.writes import Bury
from meteor.errors import InputError
from meteor.limits import HANDOVER_ROWS, REPAIR_BYTES_PER_SECOND
from meteor.node.copying import Copier, read_stone, stone_wire
from meteor.node.errands import read_spans
from meteor.node.writer import Writer
from meteor.ring.arcs import Spans
from meteor.transport.frames import Value

PARTS = 64
"""Parts that a range which differs is cut into: two round trips tell 4,096 of them apart."""

LEAF_MAX = 256
"""A range with no more messages and tombstones than this on both sides is compared by name."""

ROWS_PER_SLICE = 1000
"""Rows that a walk looks at before other tasks have a turn: some milliseconds."""

NAMES_MAX = 8_000
"""Names in one answer; where one identifier has more, the rest waits for the next time."""

REGIONS = "regions"
POINTS = "points"

Ask = Callable[[str, Value], Awaitable[Value]]
"""Puts a request to the other peer."""

Walk = Callable[[Place], Place | None]


@dataclass(slots=True)
class Mended:
    """How many messages and tombstones went which way."""

    sent: int = 0
    got: int = 0


class Reconciler:
    """Compares this peer's store with others', and answers those that compare theirs."""

    def __init__(
        self, store: Store, copier: Copier, writer: Writer, clock: Callable[[], int]
    ) -> None:
        self._store, self._copier, self._writer, self._clock = store, copier, writer, clock

    # -- leading -----------------------------------------------------------------------------------

    async def reconcile(self, ask: Ask, spans: Spans) -> Mended:
        """Have both sides agree on what lies in the spans."""
        mended = Mended()
        different: list[Span] = list(spans)
        while different:
            span = different.pop()
            for part, mine, theirs in await self._parts(ask, span):
                if max(mine, theirs) <= LEAF_MAX or part[0] == part[1]:
                    await self._compare(ask, [POINTS, [part], 0], mended)
                else:
                    different.append(part)
        await self._reconcile_regions(ask, spans, mended)
        return mended

    async def _parts(self, ask: Ask, span: Span) -> list[tuple[Span, int, int]]:
        """Return the parts of a span in which the sides differ, and how much each has there."""
        question = [POINTS, [span]]
        theirs, mine = await self._both(ask, question)
        width = part_width(span, PARTS)
        return [
            (
                (span[0] + i * width, min(span[0] + (i + 1) * width - 1, span[1])),
                mine[i].count,
                theirs[i].count,
            )
            for i in range(PARTS)
            if mine[i] != theirs[i]
        ]

    async def _reconcile_regions(self, ask: Ask, spans: Spans, mended: Mended) -> None:
        theirs, mine = await self._both(ask, [REGIONS, spans])
        for i in range(PARTS):
            if mine[i] != theirs[i]:
                await self._compare(ask, [REGIONS, spans, i], mended)

    async def _both(self, ask: Ask, question: list[Value]) -> tuple[list[Digest], list[Digest]]:
        theirs = _read_digests(await ask("digests", question))
        return theirs, await self._digests(question[0], question[1])

    async def _compare(self, ask: Ask, question: list[Value], mended: Mended) -> None:
        """Compare by name, and give each side what it lacks."""
        theirs = _read_names(await ask("names", question))
        mine = await self._names(*question)
        stones = [stone for id_, stone in theirs.stones.items() if id_ not in mine.stones]
        if stones:
            await self._writer.commit([Bury(tuple(stones))])
        lacking = [id_ for id_, state in theirs.messages.items() if _newer(state, id_, mine)]
        mended.got += len(stones) + await self._fetch(ask, lacking)
        wanted = [id_ for id_, state in mine.messages.items() if _newer(state, id_, theirs)]
        buried = [stone for id_, stone in mine.stones.items() if id_ not in theirs.stones]
        mended.sent += len(buried) + await self._send(
            ask, wanted, [stone_wire(stone) for stone in buried]
        )

    async def _fetch(self, ask: Ask, ids: list[str]) -> int:
        """Get messages; those that have expired or gone meanwhile are left out."""
        count = 0
        while ids:
            match await ask("fetch", ids[:HANDOVER_ROWS]):
                case [list() as messages, int() as looked] if looked > 0:
                    await self._writer.commit(self._copier.read(messages, []))
                    ids, count = ids[looked:], count + len(messages)
                case _:
                    raise InputError("what came are not messages")
        return count

    async def _send(self, ask: Ask, ids: list[str], stones: list[Value]) -> int:
        """Send messages and tombstones, no faster than repairs may go."""
        count = 0
        while ids or stones:
            page = self._copier.fetch(ids)
            await ask("mend", [page.messages, stones[:HANDOVER_ROWS]])
            await trio.sleep(page.size / REPAIR_BYTES_PER_SECOND)
            ids, stones = ids[page.looked :], stones[HANDOVER_ROWS:]
            count += len(page.messages)
        return count

    # -- answering ---------------------------------------------------------------------------------

    async def answer(self, method: str, body: Value) -> Value:
        """Answer a peer that compares its store with this one."""
        match method, body:
            case "digests", [("points" | "regions") as what, list() as spans]:
                digests = await self._digests(what, _checked(what, spans))
                return [[digest.count, digest.sum] for digest in digests]
            case "names", [("points" | "regions") as what, list() as spans, int() as part]:
                names = await self._names(what, _checked(what, spans), part)
                messages = [[id_, *state] for id_, state in names.messages.items()]
                return [messages, [stone_wire(stone) for stone in names.stones.values()]]
            case "fetch", [str(), *_] as ids:
                page = self._copier.fetch([str(id_) for id_ in ids])
                return [page.messages, page.looked]
            case "mend", [list() as messages, list() as stones]:
                await self._writer.commit(self._copier.read(messages, stones))
                return True
            case _:
                raise InputError(f"no answer to {method!r} like this")

    async def _digests(self, what: str, spans: Spans) -> list[Digest]:
        digests, now_ms = [Digest() for _ in range(PARTS)], self._clock()
        read = self._store.digests
        if what == REGIONS:
            await _walk(0, lambda at: read.regions(now_ms, spans, digests, at, ROWS_PER_SLICE))
            return digests
        (span,) = spans
        await _walk(span[0], lambda at: read.points(now_ms, span, digests, at, ROWS_PER_SLICE))
        return digests

    async def _names(self, what: str, spans: Spans, part: int) -> Names:
        names, now_ms = Names(), self._clock()
        read, rows = self._store.digests, ROWS_PER_SLICE

        def enough(at: Place | None) -> Place | None:
            return at if len(names.messages) + len(names.stones) < NAMES_MAX else None

        if what == REGIONS:
            which = (part, PARTS)
            await _walk(
                0, lambda at: enough(read.region_names(now_ms, spans, which, names, at, rows))
            )
            return names
        (span,) = spans
        await _walk(span[0], lambda at: enough(read.names(now_ms, span, names, at, rows)))
        return names


def _checked(what: str, wire: list[Value]) -> Spans:
    spans = read_spans(wire)
    if what == POINTS and len(spans) != 1:
        raise InputError(f"points are compared in one span at a time, not in {len(spans)}")
    return spans


async def _walk(low: int, step: Walk) -> None:
    """Walk over a store in slices, with a turn for other tasks in between."""
    at: Place | None = (low, "")
    while at is not None:
        at = step(at)
        await trio.lowlevel.checkpoint()


def _newer(state: tuple[int, int], id_: str, other: Names) -> bool:
    """Say whether the other side lacks a message, or has an older state of it."""
    known = other.messages.get(id_)
    if id_ in other.stones:
        return False
    return known is None or state[0] > known[0] or state[1] > known[1]


def _read_digests(wire: Value) -> list[Digest]:
    match wire:
        case list() if len(wire) == PARTS:
            return [_read_digest(entry) for entry in wire]
        case _:
            raise InputError("what came are no digests")


def _read_digest(wire: Value) -> Digest:
    match wire:
        case [int() as count, int() as total]:
            return Digest(count, total)
        case _:
            raise InputError("what came is no digest")


def _read_names(wire: Value) -> Names:
    match wire:
        case [list() as messages, list() as stones]:
            names = Names()
            for entry in messages:
                match entry:
                    case [str() as id_, int() as expires_ms, int() as term]:
                        names.messages[id_] = (expires_ms, term)
                    case _:
                        raise InputError("what came is no name of a message")
            for stone in map(read_stone, stones):
                names.stones[stone.id] = stone
            return names
        case _:
            raise InputError("what came are no names")
