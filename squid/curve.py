"""The Hilbert curve: points of a grid to identifiers and back, for one point and for arrays.

It is the curve of the `hilbertcurve` package in every number of dimensions. The curve is part of
what peers agree on, so it has a name (`CURVE_NAME`) that a space's definition carries.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from squid.curve_tables import Machine, Row, machine, tables
from squid.errors import CurveError
from squid.limits import DIMENSIONS_MAX, LEVELS_PER_STEP, RING_BITS, TABLE_DIMENSIONS_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CURVE_NAME = "hilbert-1"

Spreads = list[list[int]]


class Curve:
    """A Hilbert curve through a grid of 2**bits cells a side."""

    __slots__ = (
        "_decode_plan",
        "_decode_top",
        "_encode_plan",
        "_encode_row",
        "_half",
        "_levels",
        "_machine",
        "_spreads",
        "_top",
        "_total",
        "_whole",
        "bits",
        "dimensions",
    )

    def __init__(self, dimensions: int, bits: int) -> None:
        if not 1 <= dimensions <= DIMENSIONS_MAX:
            raise CurveError(f"a curve has 1 to {DIMENSIONS_MAX} dimensions, not {dimensions}")
        if bits < 1 or dimensions * bits > RING_BITS:
            raise CurveError(
                f"a curve in {dimensions} dimensions has 1 to {RING_BITS // dimensions} bits a"
                f" dimension, not {bits}"
            )
        self.dimensions = dimensions
        self.bits = bits
        self._total = dimensions * bits
        self._machine: Machine = machine(dimensions)
        self._whole = dimensions <= TABLE_DIMENSIONS_MAX
        levels = LEVELS_PER_STEP[dimensions] if self._whole else 1
        step = dimensions * levels
        self._levels = levels
        self._top = -(-bits // levels) * step - step
        # After the top step come single steps, then triples, which work on small integers.
        shifts = tuple(range(self._top - step, -1, -step))
        single, triple = shifts[: len(shifts) % 3], shifts[len(shifts) % 3 + 2 :: 3]
        masks = (1 << step) - 1, (1 << 3 * step) - 1
        self._encode_plan = (single, triple, *masks, step, 2 * step, 3 * step)
        self._decode_plan = (single, triple, *masks, step, 2 * step, levels, 2 * levels, 3 * levels)
        self._half = (bits + 1) // 2
        # Empty until first used: then every lookup misses, and the slow path fills them.
        self._spreads: tuple[Spreads, Spreads] = ([[]] * dimensions, [[]] * dimensions)
        self._encode_row: Row = []
        self._decode_top: dict[int, tuple[int, Row]] = {}

    def encode(self, point: Sequence[int]) -> int:
        """Return the identifier of a point: its place along the curve."""
        high, low = self._spreads
        half = self._half
        mask = (1 << half) - 1
        try:
            if self.dimensions == 3:  # the loop below, unrolled for the commonest kind of space
                x, y, z = point
                beyond = x | y | z
                code = (
                    high[0][x >> half]
                    | low[0][x & mask]
                    | high[1][y >> half]
                    | low[1][y & mask]
                    | high[2][z >> half]
                    | low[2][z & mask]
                )
            else:
                code = beyond = 0
                for value, upper, lower in zip(point, high, low, strict=True):
                    code |= upper[value >> half] | lower[value & mask]
                    beyond |= value
        except (IndexError, TypeError, ValueError):
            return self._encode_slowly(point)
        if beyond < 0:  # a negative index is no IndexError
            return self._encode_slowly(point)
        if not self._encode_row:
            return self._encode_by_level(code)
        single, triple, mask, mask_three, step, twice, thrice = self._encode_plan
        result, row = self._encode_row[code >> self._top]
        for shift in single:
            first, row = row[code >> shift & mask]
            result = result << step | first
        for shift in triple:
            three = code >> shift & mask_three
            first, row = row[three >> twice]
            second, row = row[three >> step & mask]
            third, row = row[three & mask]
            result = result << thrice | first << twice | second << step | third
        return result

    def decode(self, identifier: int) -> tuple[int, ...]:
        """Return the point at a place along the curve."""
        try:
            fields, row = self._decode_top[identifier >> self._top]
        except (KeyError, TypeError):
            return self._decode_slowly(identifier)
        single, triple, mask, mask_three, step, twice, rise, rise_two, rise_three = (
            self._decode_plan
        )
        for shift in single:
            first, row = row[identifier >> shift & mask]
            fields = fields << rise | first
        for shift in triple:
            three = identifier >> shift & mask_three
            first, row = row[three >> twice]
            second, row = row[three >> step & mask]
            third, row = row[three & mask]
            fields = fields << rise_three | first << rise_two | second << rise | third
        if self.dimensions == 3:
            return fields >> 42, fields >> 21 & 0x1FFFFF, fields & 0x1FFFFF
        field = RING_BITS // self.dimensions
        mask = (1 << field) - 1
        return tuple([fields >> field * i & mask for i in range(self.dimensions - 1, -1, -1)])

    def encode_many(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the identifiers of an array of points, shape (n, dimensions)."""
        from squid import curve_arrays

        return curve_arrays.encode_many(self, points)

    def decode_many(self, identifiers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the points, shape (n, dimensions), of an array of identifiers."""
        from squid import curve_arrays

        return curve_arrays.decode_many(self, identifiers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Curve):
            return NotImplemented
        return (self.dimensions, self.bits) == (other.dimensions, other.bits)

    def __hash__(self) -> int:
        return hash((self.dimensions, self.bits))

    def __repr__(self) -> str:
        return f"Curve(dimensions={self.dimensions}, bits={self.bits})"

    def _encode_slowly(self, point: Sequence[int]) -> int:
        """Encode what the tables did not: the first point, and what is wrong or nearly so."""
        values = self._check_point(point)
        if self.dimensions == 1:
            return values[0]
        if self._whole:
            start = self._machine.start(-self.bits % self._levels)
            self._encode_row = tables(self.dimensions).encoding[start]
        self._spreads = _spreads(self.dimensions, self.bits, self._half)
        return self.encode(values)

    def _decode_slowly(self, identifier: int) -> tuple[int, ...]:
        """Decode what the tables did not: the first identifier, and what is wrong or nearly so."""
        value = self._check_identifier(identifier)
        if not self._whole:
            return self._decode_by_level(value)
        if not self._decode_top:
            start = self._machine.start(-self.bits % self._levels)
            row = tables(self.dimensions).decoding[start]
            valid = 1 << self._total - self._top
            self._decode_top = dict(enumerate(row[:valid]))
        return self.decode(value)

    def _encode_by_level(self, code: int) -> int:
        state, step, d = self._machine.start(), self._machine.by_cell, self.dimensions
        mask = (1 << d) - 1
        result = 0
        for shift in range(self._top, -1, -d):
            digit, state = step(state, code >> shift & mask)
            result = result << d | digit
        return result

    def _decode_by_level(self, identifier: int) -> tuple[int, ...]:
        state, step, d = self._machine.start(), self._machine.by_digit, self.dimensions
        mask = (1 << d) - 1
        point = [0] * d
        for shift in range(self._top, -1, -d):
            cell, state = step(state, identifier >> shift & mask)
            for axis in range(d):
                point[axis] = point[axis] << 1 | cell >> d - 1 - axis & 1
        return tuple(point)

    def _check_point(self, point: Sequence[int]) -> tuple[int, ...]:
        if len(point) != self.dimensions:
            raise CurveError(f"a point here has {self.dimensions} coordinates, not {len(point)}")
        try:
            values = tuple(operator.index(value) for value in point)
        except TypeError:
            raise CurveError(f"coordinates are integers: {tuple(point)!r} are not") from None
        for value in values:
            if not 0 <= value < 1 << self.bits:
                raise CurveError(f"a coordinate is 0 to {(1 << self.bits) - 1} here, not {value}")
        return values

    def _check_identifier(self, identifier: int) -> int:
        try:
            value = operator.index(identifier)
        except TypeError:
            raise CurveError(f"an identifier is an integer, not {identifier!r}") from None
        highest = (1 << self._total) - 1
        if not 0 <= value <= highest:
            raise CurveError(f"an identifier on this curve is 0 to {highest}, not {value}")
        return value


@cache
def _spreads(dimensions: int, bits: int, half: int) -> tuple[Spreads, Spreads]:
    """Return, for each axis, where its upper bits and its lower half go among all cells.

    They have exactly the values that a coordinate may have, so a lookup checks the upper end.
    """
    spread = [0]
    for place in range(half):
        bit = 1 << place * dimensions
        spread += [value | bit for value in spread]
    low = [[value << dimensions - 1 - axis for value in spread] for axis in range(dimensions)]
    upper = 1 << bits - half
    high = [[value << half * dimensions for value in table[:upper]] for table in low]
    return high, low
