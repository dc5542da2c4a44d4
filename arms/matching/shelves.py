"""Boxes in blocks, blocks on shelves: three levels of bounds, searched with a few numpy calls.

A box is kept as its *ends*: the lows of all axes, then the inverted highs. Two boxes meet when no
end of one is above what the other asks for:

    ends = low_1 .. low_d, ~high_1 .. ~high_d        asked = high_1 .. high_d, ~low_1 .. ~low_d

    the boxes meet  <=>  all(ends <= asked)

and the bounds of many boxes are the least of each of their ends. So a search is one comparison
three times: with the bounds of all shelves, with those of the blocks on the shelves that remain,
with the boxes of the blocks that remain. Each level lies in one array, so each takes one call,
however many boxes there are. The side comes first in every array, because numpy is quick at
comparing and joining long rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Ends = NDArray[np.signedinteger[Any]]
    Bits = NDArray[np.bool_]

BLOCK_BITS = 6
BLOCK = 1 << BLOCK_BITS
"""Boxes in a block: comparing them takes about as long as one numpy call."""

SHELF_BITS = 6
SHELF = 1 << SHELF_BITS
"""Blocks on a shelf, likewise."""

SHELF_ROWS = SHELF * BLOCK

GONE = -1
"""The code of a place without a box."""

LAST_KEY = 2**63 - 1

MANY_MATCHES = 8
"""Matches in a block from which on joining and sorting those of many points costs more."""

BLOCKS_AT_ONCE = 512
"""Blocks compared in one go, so that their copies stay in the processor's cache."""


class Shelves:
    """Places for boxes, each with a code and a key.

    Place `p` is column `p % BLOCK` of block `p // BLOCK`, which stands on shelf `p // SHELF_ROWS`.
    """

    def __init__(self, dimensions: int, bits: int) -> None:
        self._sides = 2 * dimensions
        # The smallest integers that hold every end: comparing and copying cost by the byte.
        width = 2 if bits <= 15 else 4 if bits <= 31 else 8
        self.dtype: np.dtype[Any] = np.dtype(f"i{width}")
        self._most = (1 << 8 * width - 1) - 1
        self._tops = np.empty((self._sides, 0), self.dtype)
        self._bounds = np.empty((self._sides, 0, SHELF), self.dtype)
        self._boxes = np.empty((self._sides, 0, BLOCK), self.dtype)
        self._narrow = np.empty(0, np.int64)  # of each block: the axis to look at first
        self._codes = np.empty(0, np.int64)
        self._keys = np.empty(0, np.int64)
        self._free: list[int] = []

    @property
    def nbytes(self) -> int:
        """Bytes of memory, used or not."""
        arrays = (self._tops, self._bounds, self._boxes, self._narrow, self._codes, self._keys)
        return sum(array.nbytes for array in arrays)

    # -- shelves -----------------------------------------------------------------------------------

    def take(self) -> int:
        """Return an empty shelf."""
        if not self._free:
            # In small steps, because what is not used is memory all the same.
            self.reserve(1 + self._tops.shape[1] // 16)
        shelf = self._free.pop()
        self._bounds[:, shelf] = self._most
        rows = slice(shelf * SHELF_ROWS, (shelf + 1) * SHELF_ROWS)
        self._codes[rows] = GONE
        self._keys[rows] = LAST_KEY  # so that what is behind the last box is in order too
        return shelf

    def release(self, shelf: int) -> None:
        """Have nothing on a shelf any more."""
        self._tops[:, shelf] = self._most  # an inverted high is negative, so nothing meets this
        self._free.append(shelf)

    def reserve(self, shelves: int) -> None:
        """Have room for so many more."""
        before = self._tops.shape[1]
        after = before + shelves - len(self._free)
        if after <= before:
            return

        def grown(array: Ends, per_shelf: int) -> Ends:
            shape = (self._sides, after * per_shelf, *array.shape[2:])
            larger: Ends = np.empty(shape, self.dtype)
            larger[:, : before * per_shelf] = array
            return larger

        self._tops = grown(self._tops, 1)
        self._tops[:, before:] = self._most
        self._bounds = grown(self._bounds, 1)
        self._boxes = grown(self._boxes, SHELF)
        for array, each in (
            (self._narrow, SHELF),
            (self._codes, SHELF_ROWS),
            (self._keys, SHELF_ROWS),
        ):
            array.resize(after * each, refcheck=False)
        self._free = [*range(after - 1, before - 1, -1), *self._free]

    # -- rows --------------------------------------------------------------------------------------

    def fill(self, shelf: int, ends: Ends, codes: Integers, keys: Integers) -> None:
        """Put rows on an empty shelf, whole blocks in order; ends have the shape (sides, rows)."""
        blocks = ends.shape[1] // BLOCK
        boxes = ends.reshape(self._sides, blocks, BLOCK)
        self._boxes[:, shelf * SHELF : shelf * SHELF + blocks] = boxes
        rows = slice(shelf * SHELF_ROWS, shelf * SHELF_ROWS + len(codes))
        self._codes[rows], self._keys[rows] = codes, keys
        bounds = boxes.min(axis=2)
        self._bounds[:, shelf, :blocks] = bounds
        self._narrow[shelf * SHELF : shelf * SHELF + blocks] = _narrowest(boxes, bounds)
        self._tops[:, shelf] = bounds.min(axis=1)

    def append(self, shelf: int, used: int, ends: Ends, codes: Integers) -> None:
        """Put rows behind the `used` ones of a shelf, in any order and without keys."""
        begin = shelf * SHELF_ROWS + used
        rows = slice(begin, begin + len(codes))
        self._boxes.reshape(self._sides, -1)[:, rows] = ends
        self._codes[rows] = codes
        for block in range(used // BLOCK, (used + len(codes) - 1) // BLOCK + 1):
            part = ends[:, max(block * BLOCK - used, 0) : (block + 1) * BLOCK - used].min(axis=1)
            for bounds in (self._bounds[:, shelf, block], self._tops[:, shelf]):
                np.minimum(bounds, part, out=bounds)

    def rows(self, shelf: int) -> tuple[Ends, Integers, Integers]:
        """Return what is on a shelf: ends, codes and keys."""
        begin = shelf * SHELF_ROWS
        there = begin + np.flatnonzero(self._codes[begin : begin + SHELF_ROWS] >= 0)
        return self.ends_at(there), self._codes[there], self._keys[there]

    def set_keys(self, places: Integers, keys: Integers) -> None:
        """Set the keys at places that were appended without."""
        self._keys[places] = keys

    def discard(self, shelf: int, codes: Integers, keys: Integers | None = None) -> int:
        """Forget the rows with these codes; returns how many there were.

        With their keys, the shelf is one in order, and only rows with those keys are looked at,
        unless they are very many.
        """
        begin = shelf * SHELF_ROWS
        here = self._codes[begin : begin + SHELF_ROWS]
        near = None if keys is None else _ranges(self._keys[begin : begin + SHELF_ROWS], keys)
        if near is None:
            found = np.flatnonzero(np.isin(here, codes))
        else:
            places, numbers = near
            # Once, though several boxes with one code may share a key.
            found = np.unique(places[here[places] == codes[numbers]])
        here[found] = GONE
        return len(found)

    # -- searching ---------------------------------------------------------------------------------

    def meeting(self, asked: Ends, blocks_max: int | None = None) -> Integers | None:
        """Return the places of the boxes that meet what is asked; those of GONE ones too.

        None when that would take a look into more than so many blocks.
        """
        asked = asked[:, None]
        shelves = _all(self._tops <= asked).nonzero()[0]
        near = self._bounds.take(shelves, axis=1).reshape(self._sides, -1) <= asked
        blocks = _expand(shelves, _all(near).nonzero()[0], SHELF_BITS)
        if blocks_max is not None and len(blocks) > blocks_max:
            return None
        if len(blocks) <= BLOCKS_AT_ONCE:
            return self._in_blocks(blocks, asked)
        return np.concatenate([self._in_blocks(part, asked) for part in _parts(blocks)])

    def _in_blocks(self, blocks: Integers, asked: Ends) -> Integers:
        met = self._boxes.take(blocks, axis=1).reshape(self._sides, -1) <= asked
        return _expand(blocks, _all(met).nonzero()[0], BLOCK_BITS)

    def meeting_each(self, asked: Ends) -> list[Integers]:
        """Return the codes of what meets each of several, asked of shape (sides, n)."""
        count = asked.shape[1]
        # Shelf by shelf, so that what is looked at again is still in the processor's cache.
        shelves, which = _all(self._tops[:, :, None] <= asked[:, None, :]).nonzero()
        which, blocks = self._each(self._bounds, which, shelves, asked, SHELF_BITS)
        if not self._is_much(which, blocks, asked):
            which, places = self._in_each(which, blocks, asked)
            codes = self.codes_at(places)
            return _split(which[codes >= 0], codes[codes >= 0], count)
        return [
            _live(self.codes_at(self._in_blocks(near, asked[:, i : i + 1])))
            for i, near in enumerate(_split(which, blocks, count))
        ]

    def _is_much(self, which: Integers, blocks: Integers, asked: Ends) -> bool:
        """Say whether it is quicker to look up each by itself, as far as a few blocks show."""
        step = max(8, len(blocks) // 256)
        tried = which[::step]
        found, _ = self._each(self._boxes, tried, blocks[::step], asked, BLOCK_BITS)
        return len(found) > MANY_MATCHES * len(tried)

    def _each(
        self, pool: Ends, which: Integers, outer: Integers, asked: Ends, bits: int
    ) -> tuple[Integers, Integers]:
        """Look into an outer for each pair of a number and an outer: the pairs one level below."""
        numbers, inner = [which[:0]], [outer[:0]]
        for begin in range(0, len(outer), BLOCKS_AT_ONCE):
            number = which[begin : begin + BLOCKS_AT_ONCE]
            part = outer[begin : begin + BLOCKS_AT_ONCE]
            met = pool.take(part, axis=1) <= asked.take(number, axis=1)[:, :, None]
            found = _all(met.reshape(self._sides, -1)).nonzero()[0]
            numbers.append(number.take(found >> bits))
            inner.append(_expand(part, found, bits))
        return np.concatenate(numbers), np.concatenate(inner)

    def _in_each(self, which: Integers, blocks: Integers, asked: Ends) -> tuple[Integers, Integers]:
        """Look into a block for each pair: first on the one axis that leaves few of its boxes."""
        ends, flat = self._boxes.reshape(-1, BLOCK), asked.reshape(-1)
        half = self._sides // 2  # from the low of an axis to its high
        numbers, places = [which[:0]], [blocks[:0]]
        for begin in range(0, len(blocks), BLOCKS_AT_ONCE):
            number = which[begin : begin + BLOCKS_AT_ONCE]
            part = blocks[begin : begin + BLOCKS_AT_ONCE]
            axis = self._narrow.take(part)
            rows, limits = axis * self._boxes.shape[1] + part, axis * asked.shape[1] + number
            met = ends.take(rows, axis=0) <= flat.take(limits)[:, None]
            rows += half * self._boxes.shape[1]
            limits += half * asked.shape[1]
            met &= ends.take(rows, axis=0) <= flat.take(limits)[:, None]
            found = met.reshape(-1).nonzero()[0]
            number, place = number.take(found >> BLOCK_BITS), _expand(part, found, BLOCK_BITS)
            left = _all(self.ends_at(place) <= asked.take(number, axis=1)).nonzero()[0]
            numbers.append(number.take(left))
            places.append(place.take(left))
        return np.concatenate(numbers), np.concatenate(places)

    def between(self, shelf: int, first: int, last: int) -> tuple[Integers, Integers]:
        """Return codes and keys from one key to another, of a shelf in order; GONE ones too."""
        begin = shelf * SHELF_ROWS
        keys = self._keys[begin : begin + SHELF_ROWS]
        low, high = keys.searchsorted(first), keys.searchsorted(last, "right")
        return self._codes[begin + low : begin + high], keys[low:high]

    def beside(self, shelf: int, first: int, last: int) -> tuple[Integers, Integers]:
        """Return the same of a shelf that is in no order."""
        begin = shelf * SHELF_ROWS
        keys = self._keys[begin : begin + SHELF_ROWS]
        there = np.flatnonzero((keys >= first) & (keys <= last))
        return self._codes[begin + there], keys[there]

    def ends_at(self, places: Integers) -> Ends:
        """Return the ends at places, of shape (sides, n)."""
        return self._boxes.reshape(self._sides, -1).take(places, axis=1)

    def codes_at(self, places: Integers) -> Integers:
        """Return the codes at places."""
        return self._codes.take(places)

    def keys_at(self, places: Integers) -> Integers:
        """Return the keys at places."""
        return self._keys.take(places)


def _ranges(keys: Integers, wanted: Integers) -> tuple[Integers, Integers] | None:
    """Return all places of each wanted one among sorted keys, and the number of that one.

    None if that is more than there are keys: most are the same.
    """
    lows, highs = keys.searchsorted(wanted), keys.searchsorted(wanted, "right")
    sizes = highs - lows
    if sizes.sum() > len(keys):
        return None
    numbers = np.repeat(np.arange(len(wanted)), sizes)
    before = sizes.cumsum() - sizes
    return np.arange(len(numbers)) + (lows - before)[numbers], numbers


def _all(met: Bits) -> Bits:
    joined: Bits = np.logical_and.reduce(met, axis=0)
    return joined


def _narrowest(boxes: Ends, bounds: Ends) -> Integers:
    """Return the axis of each block on which its boxes are the narrowest, beside the block."""
    axes = len(boxes) // 2
    widths = (~boxes[axes:] - boxes[:axes]).mean(axis=2)
    narrowest: Integers = (widths / (~bounds[axes:] - bounds[:axes] + 1.0)).argmin(axis=0)
    return narrowest


def _live(codes: Integers) -> Integers:
    return codes[codes >= 0]


def _split(which: Integers, values: Integers, count: int) -> list[Integers]:
    """Return the values of each of so many numbers."""
    order = which.argsort(kind="stable")
    edges = which[order].searchsorted(np.arange(count + 1)).tolist()
    values = values[order]
    return [values[begin:end] for begin, end in pairwise(edges)]


def _expand(outer: Integers, found: Integers, bits: int) -> Integers:
    """Return inner places from the numbers of outer ones and positions in their joined contents."""
    return (outer.take(found >> bits) << bits) | (found & (1 << bits) - 1)


def _parts(blocks: Integers) -> list[Integers]:
    return [blocks[i : i + BLOCKS_AT_ONCE] for i in range(0, len(blocks), BLOCKS_AT_ONCE)]
