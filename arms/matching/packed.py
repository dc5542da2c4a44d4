"""The packed index: many boxes in memory, most of them in order, none of them for long out of it.

New boxes go to a shelf that is in no order, the *tail*. A full tail is sorted. Sorted shelves form
levels, as in a log-structured merge tree: from the first one on, each shelf of a level has its own
range of keys, and a level has room for FANOUT times as many as the one before. What is too much for
a level is merged into the next one, a few shelves in each step (`tidy`), so that no step takes
long. A search looks at the bounds of all shelves at once and does not care which level they are of.

Deleted boxes leave holes that the next merge closes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import invert, le
from typing import TYPE_CHECKING, Any

import numpy as np

from arms.matching.order import Order
from arms.matching.shelves import BLOCK, SHELF, SHELF_ROWS, Shelves

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Integers = NDArray[np.int64]
    Ends = NDArray[np.signedinteger[Any]]

TAIL_ROWS = 1024
"""Boxes that every search looks at one by one: it costs a few microseconds."""

TAILS = 4
"""Sorted tails that are merged together: each is near everything, so searches look into all."""

FANOUT = 8
"""Shelves of a level for one of the level before."""

MERGED_MAX = 8
"""Shelves of the next level that one step merges: with them it takes some 5 ms."""

FEW = 16
"""Keys up to which Python works them out faster than numpy, and boxes that it searches faster."""

EVENTS_AT_ONCE = 1 << 18
"""Comparisons of points with shelves made in one go."""


@dataclass(slots=True, eq=False)
class _Shelf:
    """A sorted shelf: where it stands, its first and last key, what was put on it and is left."""

    number: int
    first: int
    last: int
    rows: int = 0
    live: int = 0


class PackedIndex:
    """Which boxes meet another; each has a code, which several may share. Codes are not negative.

    An index of points has their places on the curve as keys, so that it can also say those.
    """

    def __init__(self, dimensions: int, bits: int, *, of_points: bool = False) -> None:
        self._dimensions = dimensions
        self._order = Order(dimensions, bits, of_points=of_points)
        self._shelves = Shelves(dimensions, bits)
        self._tail, self._tail_used = self._shelves.take(), 0
        self._tail_keyed = 0
        self._levels: list[list[_Shelf]] = [[]]
        self._count = 0
        self._has_holes = False
        self._few: list[tuple[int, list[int]]] | None = None  # codes and ends, if they are so few

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the index takes."""
        return self._shelves.nbytes

    # -- changing ----------------------------------------------------------------------------------

    def add(self, codes: Sequence[int], boxes: Sequence[Sequence[tuple[int, int]]]) -> None:
        """Add boxes: for each axis its low and high cell, both included."""
        cells = np.array(boxes, np.int64)
        self._append(np.array(codes, np.int64), self._ends(cells[:, :, 0], cells[:, :, 1]))

    def add_points(self, codes: Integers, cells: Integers) -> None:
        """Add many points at once, as an array of shape (n, dimensions)."""
        self._append(codes, self._ends(cells, cells))

    def _append(self, codes: Integers, ends: Ends) -> None:
        self._count += len(codes)
        self._few = None
        while len(codes):
            room = TAIL_ROWS - self._tail_used
            self._shelves.append(self._tail, self._tail_used, ends[:, :room], codes[:room])
            self._tail_used += len(codes[:room])
            codes, ends = codes[room:], ends[:, room:]
            if self._tail_used == TAIL_ROWS:
                self._sort_tail()

    def load(self, codes: Integers, lows: Integers, highs: Integers) -> None:
        """Add very many boxes at once, as arrays of shape (n, dimensions), and put all in order.

        This is for a start: it takes its time.
        """
        ends = self._ends(lows, highs)
        self._count += len(codes)
        self._few = None
        level = 1
        while FANOUT**level * SHELF_ROWS < len(codes):
            level += 1
        self._add_levels(level)
        # Shelves of one level must not overlap, so what is there already goes through the merge.
        taken = [self._taken(shelf) for shelf in self._levels[level]]
        self._levels[level] = self._sorted([(ends, codes, self._keys(ends)), *taken])

    def discard(self, codes: Sequence[int], boxes: Sequence[Sequence[tuple[int, int]]]) -> int:
        """Forget boxes by their codes; returns how many were there."""
        return self._discard(np.array(codes, np.int64), self._keys_of(boxes))

    def discard_points(self, codes: Sequence[int], keys: Sequence[int]) -> int:
        """Forget points likewise, by their places on the curve."""
        return self._discard(np.array(codes, np.int64), np.array(keys, np.int64))

    def _discard(self, wanted: Integers, keys: Integers) -> int:
        gone = self._shelves.discard(self._tail, wanted)
        for level in self._levels:
            rows: dict[_Shelf, list[int]] = {}
            for row, key in enumerate(keys.tolist()):
                for shelf in _near(level, key) if level is not self._levels[0] else level:
                    rows.setdefault(shelf, []).append(row)
            for shelf, some in rows.items():
                found = self._shelves.discard(shelf.number, wanted[some], keys[some])
                shelf.live -= found
                gone += found
            if rows:
                level[:] = self._without_empty(level)
        self._has_holes |= gone > 0
        self._count -= gone
        self._few = None
        return gone

    def _without_empty(self, level: list[_Shelf]) -> list[_Shelf]:
        for shelf in level:
            if not shelf.live:
                self._shelves.release(shelf.number)
        return [shelf for shelf in level if shelf.live]

    def _keys_of(self, boxes: Sequence[Sequence[tuple[int, int]]]) -> Integers:
        if len(boxes) < FEW:
            return np.array([self._order.key(*zip(*box, strict=True)) for box in boxes], np.int64)
        cells = np.array(boxes, np.int64)
        return self._order.keys(cells[:, :, 0], cells[:, :, 1])

    def _ends(self, lows: Integers, highs: Integers) -> Ends:
        ends: Ends = np.empty((2 * self._dimensions, len(lows)), self._shelves.dtype)
        ends[: self._dimensions] = lows.T
        ends[self._dimensions :] = ~highs.T
        return ends

    def _cells(self, ends: Ends) -> tuple[Integers, Integers]:
        wide = ends.astype(np.int64)
        return wide[: self._dimensions].T, ~wide[self._dimensions :].T

    def _keys(self, ends: Ends) -> Integers:
        return self._order.keys(*self._cells(ends))

    # -- keeping order -----------------------------------------------------------------------------

    def tidy(self) -> bool:
        """Do one step towards order, if there is one to do; says whether there was."""
        for number, level in enumerate(self._levels):
            if number == 0 and len(level) >= TAILS:
                self._merge(0, level[:TAILS])
                return True
            if number and len(level) > FANOUT**number:
                self._add_levels(number + 1)
                below = self._levels[number + 1]
                self._merge(number, [min(level, key=lambda shelf: len(_overlapping(below, shelf)))])
                return True
            if number and self._has_holes and self._close_holes(number):
                return True
        self._has_holes = False
        return False

    def _sort_tail(self) -> None:
        self._key_tail()
        rows = self._shelves.rows(self._tail)
        self._shelves.release(self._tail)
        self._levels[0] += self._sorted([rows])
        self._tail, self._tail_used = self._shelves.take(), 0
        self._tail_keyed = 0

    def _key_tail(self) -> None:
        """Work out the keys of what came to the tail lately: one by one they cost far more."""
        if self._tail_keyed < self._tail_used:
            rows = np.arange(self._tail_keyed, self._tail_used) + self._tail * SHELF_ROWS
            self._shelves.set_keys(rows, self._keys(self._shelves.ends_at(rows)))
            self._tail_keyed = self._tail_used

    def _merge(self, number: int, chosen: list[_Shelf]) -> None:
        """Move shelves to the next level, as far as MERGED_MAX of it reach."""
        self._add_levels(number + 1)
        below = self._levels[number + 1]
        span = _Shelf(0, min(s.first for s in chosen), max(s.last for s in chosen))
        met = _overlapping(below, span)
        parts = [self._taken(shelf) for shelf in chosen]
        rest = []
        if len(met) > MERGED_MAX:
            met = met[:MERGED_MAX]
            limit = met[-1].last
            rest = [_cut(part, part[2] > limit) for part in parts]
            parts = [_cut(part, part[2] <= limit) for part in parts]
        parts += [self._taken(shelf) for shelf in met]
        level = [shelf for shelf in self._levels[number] if shelf not in chosen]
        self._levels[number] = _by_key([*level, *self._sorted(rest)])
        kept = [shelf for shelf in below if shelf not in met]
        self._levels[number + 1] = _by_key([*kept, *self._sorted(parts)])

    def _close_holes(self, number: int) -> bool:
        """Join two neighbours of a level when one has holes and there is room for both."""
        level = self._levels[number]
        for at, (one, other) in enumerate(pairwise(level)):
            # Without new holes they are as they were made: joined, they might be two again.
            has_holes = one.live < one.rows or other.live < other.rows
            if has_holes and one.live + other.live <= SHELF_ROWS * 3 // 4:
                joined = self._sorted([self._taken(one), self._taken(other)])
                level[at : at + 2] = joined
                return True
        return False

    def _taken(self, shelf: _Shelf) -> tuple[Ends, Integers, Integers]:
        rows = self._shelves.rows(shelf.number)
        self._shelves.release(shelf.number)
        return rows

    def _add_levels(self, number: int) -> None:
        while len(self._levels) <= number:
            self._levels.append([])

    def _sorted(self, parts: list[tuple[Ends, Integers, Integers]]) -> list[_Shelf]:
        """Put rows in order, on as few shelves as they need, each about as full."""
        parts = [part for part in parts if len(part[1])]
        if not parts:
            return []
        codes = np.concatenate([part[1] for part in parts])
        keys = np.concatenate([part[2] for part in parts])
        ends = np.concatenate([part[0] for part in parts], axis=1)
        order = self._in_order(ends, keys)
        source, padding = _blocks(keys[order] >> self._order.group_shift)
        source = order[source]
        blocks = len(source) // BLOCK
        shelves = -(-blocks // SHELF)
        self._shelves.reserve(shelves)
        edges = [blocks * i // shelves * BLOCK for i in range(shelves + 1)]
        made = []
        for begin, end in pairwise(edges):
            rows = source[begin:end]
            there = codes[rows]
            there[padding[begin:end]] = -1
            number = self._shelves.take()
            self._shelves.fill(number, ends.take(rows, axis=1), there, keys[rows])
            live = int(np.count_nonzero(there >= 0))
            made.append(_Shelf(number, int(keys[rows[0]]), int(keys[rows[-1]]), live, live))
        return made

    def _in_order(self, ends: Ends, keys: Integers) -> Integers:
        """Return the order of rows by their keys, and of those with the same key by the rest."""
        order = keys.argsort(kind="stable")
        same = np.diff(keys[order], prepend=-1, append=-1) == 0
        tied = np.flatnonzero(same[1:] | same[:-1])
        rows = order[tied]
        rest = self._order.rest(*self._cells(ends[:, rows]))
        order[tied] = rows[np.lexsort((*rest, keys[rows]))]
        return order

    # -- searching ---------------------------------------------------------------------------------

    def meeting(self, low: Sequence[int], high: Sequence[int]) -> Integers:
        """Return the codes of the boxes that meet one; a code of several may come several times."""
        if self._count <= FEW:
            asked = [*high, *map(invert, low)]
            return np.array([c for c, ends in self._each() if all(map(le, ends, asked))], np.int64)
        places = self._shelves.meeting(self._asked(low, high))
        assert places is not None
        codes = self._shelves.codes_at(places)
        return codes[codes >= 0]

    def _each(self) -> list[tuple[int, list[int]]]:
        """Return the code and the ends of each box, of few."""
        if self._few is None:
            shelves = [self._tail, *(shelf.number for level in self._levels for shelf in level)]
            parts = [self._shelves.rows(shelf) for shelf in shelves]
            self._few = [
                pair
                for ends, codes, _ in parts
                for pair in zip(codes.tolist(), ends.T.tolist(), strict=True)
            ]
        return self._few

    def meeting_each(self, lows: Integers, highs: Integers) -> list[Integers]:
        """Return the same for each of many boxes, of shape (n, dimensions), worked out at once."""
        asked = ~self._ends(~highs, ~lows)
        step = max(1, EVENTS_AT_ONCE // max(1, sum(map(len, self._levels))))
        found: list[Integers] = []
        for begin in range(0, len(lows), step):
            found += self._shelves.meeting_each(asked[:, begin : begin + step])
        return found

    def places(
        self, low: ArrayLike, high: ArrayLike, blocks_max: int
    ) -> tuple[Integers, Integers] | None:
        """Return the codes and keys of what meets a box; None when it is in too many blocks."""
        places = self._shelves.meeting(self._asked(low, high), blocks_max)
        if places is None:
            return None
        codes = self._shelves.codes_at(places)
        codes, places = codes[codes >= 0], places[codes >= 0]
        self._key_tail()
        return codes, self._shelves.keys_at(places)

    def walk(self, first: int, last: int, count: int) -> tuple[Integers, Integers, int]:
        """Return the codes and keys of what lies from one key on, in order, and up to which key.

        That is `last`, or sooner where about `count` have been seen; of one key it is always all.
        """
        self._key_tail()
        parts = [self._shelves.beside(self._tail, first, last)]
        for run in (*([shelf] for shelf in self._levels[0]), *self._levels[1:]):
            room = count
            for shelf in run[bisect_left(run, first, key=_last) :]:
                if shelf.first > last:
                    break
                codes, keys = self._shelves.between(shelf.number, first, last)
                parts.append((codes, keys))
                if 0 < room <= len(keys):
                    last = int(keys[room - 1])
                room -= len(keys)
        codes = np.concatenate([part[0] for part in parts])
        keys = np.concatenate([part[1] for part in parts])
        kept = np.flatnonzero((keys <= last) & (codes >= 0))
        kept = kept[keys[kept].argsort(kind="stable")]
        return codes[kept], keys[kept], last

    def _asked(self, low: ArrayLike, high: ArrayLike) -> Ends:
        asked: Ends = np.array((high, low), self._shelves.dtype)
        np.invert(asked[1], out=asked[1])
        return asked.reshape(-1)


def _blocks(groups: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Return which sorted row goes where, so that each group begins a block, and what is padding.

    Padding repeats the last row of its group, so that it widens no bounds and keeps the order.
    """
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    counts = np.diff(np.append(starts, len(groups)))
    blocks = -(-counts // BLOCK)
    number = np.arange(blocks.sum()) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    begin = np.repeat(starts, blocks) + number * BLOCK
    last = np.repeat(starts + counts - 1, blocks)[:, None]
    source = begin[:, None] + np.arange(BLOCK)
    return np.minimum(source, last).ravel(), (source > last).ravel()


def _cut(
    part: tuple[Ends, Integers, Integers], kept: NDArray[np.bool_]
) -> tuple[Ends, Integers, Integers]:
    ends, codes, keys = part
    return ends[:, kept], codes[kept], keys[kept]


def _overlapping(level: list[_Shelf], shelf: _Shelf) -> list[_Shelf]:
    """Return the shelves of a sorted level whose keys overlap another's."""
    begin = bisect_left(level, shelf.first, key=_last)
    end = begin
    while end < len(level) and level[end].first <= shelf.last:
        end += 1
    return level[begin:end]


def _near(level: list[_Shelf], key: int) -> list[_Shelf]:
    """Return the shelves of a sorted level that may have a key."""
    return _overlapping(level, _Shelf(0, key, key))


def _by_key(level: list[_Shelf]) -> list[_Shelf]:
    return sorted(level, key=lambda shelf: (shelf.first, shelf.last))


def _last(shelf: _Shelf) -> int:
    return shelf.last
