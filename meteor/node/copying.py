"""Copying what a store holds of some part of the ring to another peer, a page at a time.

Everything that is written to a store gets the next number, messages and tombstones each their own.
So "what came after this number" is a log that another store can follow, and the log from 0 is a
copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from arms.batch import BATCH_ENTRY_BYTES, Batch
from arms.limits import TIME_MS_MAX
from arms.message import Message, Voters, region_of, weight
from arms.rows import PROFILE, add_row, is_plain_row, read_row
from arms.sites import Site, Sites
from arms.store import Mark, Store
from arms.writes import Bury, Put, PutBatch, Tombstone, Write
from meteor.errors import InputError
from meteor.limits import HANDOVER_BYTES, HANDOVER_ROWS
from meteor.ring.arcs import TOP, Spans, contains, meeting
from meteor.transport.frames import Value
from squid import Space

START: Mark = (0, 0)


@dataclass(slots=True)
class Page:
    """Some of what a store holds, and how far one has come with it."""

    upto: Mark
    last: bool
    """There is nothing after it yet."""
    messages: list[Message | Batch] = field(default_factory=list)
    """In order; plain data that lie side by side are batches."""
    stones: list[Tombstone] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.messages or self.stones)

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(len(entry) if isinstance(entry, Batch) else 1 for entry in self.messages)

    def to_wire(self) -> list[Value]:
        """Return what the page holds in its wire form."""
        stones = [stone_wire(stone) for stone in self.stones]
        return [[_entry_wire(entry) for entry in self.messages], stones]


@dataclass(slots=True)
class Parcel:
    """Messages in wire form, and how many of those asked for were looked for."""

    messages: list[Value] = field(default_factory=list)
    looked: int = 0
    size: int = 0


class Copier:
    """Reads pages from a store, and from the wire."""

    def __init__(self, space: Space, store: Store, clock: Callable[[], int], sites: Sites) -> None:
        self._space, self._store, self._clock = space, store, clock
        self._sites = sites

    def fetch(self, ids: Sequence[str]) -> Parcel:
        """Return messages by their ids; as many as a frame should hold."""
        now_ms, parcel = self._clock(), Parcel()
        for id_ in ids[:HANDOVER_ROWS]:
            parcel.looked += 1
            stored = self._store.find(now_ms, id_)
            if stored is not None:
                parcel.messages.append(stored.message.to_wire())
                parcel.size += weight(stored.message)
            if parcel.size > HANDOVER_BYTES:
                break
        return parcel

    def page(self, spans: Spans, after: Mark, *, moving: bool = False) -> Page:
        """Return what came after a mark and touches the spans, as much as a frame should hold.

        Where a deleted region lay nobody knows any more. When an arc is `moving`, its tombstone
        goes along; else each peer of the region has its own.
        """
        now_ms, newest = self._clock(), self._store.newest()
        seq, stone = after
        messages: list[Message | Batch] = []
        size = rows = 0
        for row in self._store.rows_after(now_ms, seq, HANDOVER_ROWS):
            seq, rows = row[-1], rows + 1
            if is_plain_row(row):
                site = self._sites.of(row[PROFILE])
                if site is not None and contains(spans, site.identifier):
                    size += _add(messages, row, site)
            else:
                message = read_row(row).message
                if meeting(region_of(self._space, message), spans):
                    messages.append(message)
                    size += weight(message)
            if size > HANDOVER_BYTES:
                rows = HANDOVER_ROWS
                break
        stones = self._store.tombstones(now_ms, stone, HANDOVER_ROWS)
        if stones:
            stone = stones[-1][0]
        # At the end one has come up to the newest, also if that has expired or was deleted by now.
        if rows < HANDOVER_ROWS:
            seq = max(seq, newest[0])
        if len(stones) < HANDOVER_ROWS:
            stone = max(stone, newest[1])
        last = rows < HANDOVER_ROWS and len(stones) < HANDOVER_ROWS
        mine = [e for _, e in stones if contains(spans, e.identifier) or (moving and not e.point)]
        return Page((seq, stone), last, messages, mine)

    def read(self, messages: list[Value], stones: list[Value]) -> list[Write]:
        """Read a page from the wire, as what is to be written for it."""
        writes: list[Write] = []
        for entry in messages:
            match entry:
                case {"batch": batch, "voters": voters}:
                    part = Batch.from_wire(self._sites, batch)
                    part.voters = Voters.from_wire(voters)
                    if len(part):
                        writes.append(PutBatch(part))
                case _:
                    writes.append(Put(Message.from_wire(entry)))
        if stones:
            writes.append(Bury(tuple(read_stone(entry) for entry in stones)))
        return writes


def _add(messages: list[Message | Batch], row: tuple[Any, ...], site: Site) -> int:
    """Add plain data to the batch before them, if they go together; returns their size."""
    before = messages[-1] if messages else None
    batch = add_row(row, site, before if isinstance(before, Batch) else None)
    if batch is not before:
        messages.append(batch)
    return len(batch.data[-1]) + BATCH_ENTRY_BYTES


def _entry_wire(entry: Message | Batch) -> Value:
    if isinstance(entry, Batch):
        return {"batch": entry.to_wire(), "voters": entry.voters.to_wire()}
    return entry.to_wire()


def stone_wire(stone: Tombstone) -> list[Value]:
    """Return a tombstone in its wire form."""
    return [stone.id, stone.taker, stone.identifier, stone.point, stone.expires_ms]


def read_stone(wire: object) -> Tombstone:
    """Read a tombstone from the wire."""
    match wire:
        case [str() as id_, str() as taker, int() as at, bool() as point, int() as expires_ms] if (
            0 <= at <= TOP and 0 <= expires_ms <= TIME_MS_MAX
        ):
            return Tombstone(id_, taker, at, point, expires_ms)
        case _:
            raise InputError("what came is not a tombstone")
