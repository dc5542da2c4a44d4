"""Digests: what a store has of a part of the ring, in a few numbers, and by name.

Two stores that should have the same compare digests of ranges of identifiers; only a range that
differs is cut into parts, and only in a small one are the names compared. So the cost of finding a
difference follows the difference, not the store (range-based set reconciliation, A. Meyer 2023).
Identifiers are in order in the store's indexes, so a range is one walk.

Messages that are regions lie in many arcs, so no range of identifiers has them all: those that meet
the arc are cut by their own digest instead. Their tombstones are not compared: nobody knows any
more where they lay, and each peer of the region has its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Any

from arms.message import Action, Kind, region_of_profile
from arms.places import Place, Places
from arms.profile import Profile
from arms.schema import LISTED, digest
from arms.writes import Tombstone
from squid import Region, Space

Row = tuple[Any, ...]
Span = tuple[int, int]


@dataclass(slots=True)
class Digest:
    """How many messages and tombstones there are, and their sum."""

    count: int = 0
    sum: int = 0

    def add(self, value: int) -> None:
        """Count one more."""
        self.count += 1
        self.sum ^= value


@dataclass(slots=True)
class Names:
    """Messages by name, with the state that each is in, and tombstones."""

    messages: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By id: the end of the TTL, and the term of the voters."""
    stones: dict[str, Tombstone] = field(default_factory=dict)


class Digests:
    """Reads digests and names.

    Each call looks at so many rows at most and returns where the next one goes on; None: the end.
    A walk begins at (low, "").
    """

    def __init__(
        self, space: Space, places: Places, read: Callable[[str, Sequence[object]], Iterator[Row]]
    ) -> None:
        self._space, self._places, self._read = space, places, read

    def points(
        self, now_ms: int, span: Span, parts: Sequence[Digest], after: Place, rows: int
    ) -> Place | None:
        """Add what lies at points of a span to the digests of its equal parts."""
        width = part_width(span, len(parts))
        found = self._points(now_ms, span, after, rows)
        for identifier, id_, _, _, value, taker, _ in found:
            stone = taker is not None
            parts[(identifier - span[0]) // width].add(_stone_digest(id_) if stone else value)
        return _rest(found, rows)

    def names(self, now_ms: int, span: Span, names: Names, after: Place, rows: int) -> Place | None:
        """Add the names of what lies at points of a span."""
        found = self._points(now_ms, span, after, rows)
        for identifier, id_, expires_ms, term, _, taker, _ in found:
            if taker is None:
                names.messages[id_] = (expires_ms, term)
            else:
                names.stones[id_] = Tombstone(id_, taker, identifier, True, expires_ms)
        return _rest(found, rows)

    def regions(
        self, now_ms: int, spans: Sequence[Span], parts: Sequence[Digest], after: Place, rows: int
    ) -> Place | None:
        """Add the messages that are regions and meet the spans to digests, cut by their own."""
        found = self._regions(now_ms, after, rows)
        for row in found:
            if self._meets(row, spans):
                parts[row[4] % len(parts)].add(row[4])
        return _rest(found, rows)

    def region_names(
        self,
        now_ms: int,
        spans: Sequence[Span],
        part: tuple[int, int],
        names: Names,
        after: Place,
        rows: int,
    ) -> Place | None:
        """Add the names of those in one part: its number, and how many there are."""
        number, parts = part
        found = self._regions(now_ms, after, rows)
        for row in found:
            if row[4] % parts == number and self._meets(row, spans):
                names.messages[row[1]] = (row[2], row[3])
        return _rest(found, rows)

    def _points(self, now_ms: int, span: Span, after: Place, rows: int) -> list[Row]:
        data = self._places.within(now_ms, STATE, after, span[1], small=True)
        others = self._read(OTHERS, (*after, span[1], now_ms, rows))
        merged = heapq.merge((row[1:] for row in data), others, key=itemgetter(0, 1))
        return list(islice(merged, rows))

    def _regions(self, now_ms: int, after: Place, rows: int) -> list[Row]:
        return list(self._read(REGIONS, (*after, TOP, now_ms, rows)))

    def _meets(self, row: Row, spans: Sequence[Span]) -> bool:
        action, _, profile = row[6].partition(" ")
        region: Region = region_of_profile(self._space, Profile.parse(profile), Action(action))
        return any((at := region.next(low)) is not None and at <= high for low, high in spans)


def part_width(span: Span, parts: int) -> int:
    """Return how many identifiers each of the equal parts of a span has; the last may have less."""
    return -(-(span[1] - span[0] + 1) // parts)


def _rest(found: Sequence[Row], rows: int) -> Place | None:
    return (found[-1][0], found[-1][1]) if len(found) == rows else None


def _stone_digest(id_: str) -> int:
    # Not of its end: that is the later of two, and the same in the end without our doing.
    return digest(f"tombstone {id_}", 0, 0)


TOP = 2**63 - 1

STATE = "expires_ms, term, digest, NULL, ''"

_PAGE = "(identifier, id) > (?1, ?2) AND identifier <= ?3 AND expires_ms > ?4"


def _messages(kind: Kind, point: int) -> str:
    return (
        "SELECT identifier, id, expires_ms, term, digest, NULL, action || ' ' || profile "
        f"FROM message WHERE {LISTED} AND kind = '{kind.value}' AND point = {point} AND {_PAGE}"
    )


def _in_order(*parts: str) -> str:
    # One for each kind, because that is how the index begins; SQLite merges them in order.
    return f"{' UNION ALL '.join(parts)} ORDER BY 1, 2 LIMIT ?5"


_STONES = (
    f"SELECT identifier, id, expires_ms, 0, 0, taker, '' FROM tombstone WHERE point = 1 AND {_PAGE}"
)
OTHERS = _in_order(_messages(Kind.INTEREST, 1), _messages(Kind.ADVERTISEMENT, 1), _STONES)
"""What lies at points besides data."""
REGIONS = _in_order(*(_messages(kind, 0) for kind in Kind))
