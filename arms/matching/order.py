"""The order that boxes are packed in: what lies near in it should be asked for together.

First come the axes on which a box is wide (a wildcard, or more than half of the axis), because one
wide box among narrow ones would spoil the bounds of its block. Then comes the place of its centre
on the Hilbert curve, without the bits below its width: where boxes are long it is of no use to cut
them, and blocks should be narrow where the boxes are. Boxes that have all this in common, such as
words that begin alike, are sorted by the rest of their bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from squid.curve import Curve
from squid.curve_arrays import encode_many
from squid.limits import RING_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


class Order:
    """Turns boxes into keys: integers of 63 bits, with the group of a box in the upper ones.

    The keys of points are simply their places on the curve.
    """

    def __init__(self, dimensions: int, bits: int, *, of_points: bool = False) -> None:
        groups = 0 if of_points else dimensions
        kept = min(bits, (RING_BITS - groups) // dimensions)
        self._dimensions, self._bits, self._shift = dimensions, bits, bits - kept
        self._curve = Curve(dimensions, kept)
        self._of_points = of_points
        self._below = [
            (Curve(dimensions, min(kept, self._shift - begin)), begin)
            for begin in range(0, self._shift, kept)
        ]
        self.group_shift = dimensions * kept
        """The key of a box without its lower so many bits is its group."""

    def keys(self, lows: Integers, highs: Integers) -> Integers:
        """Return the keys of boxes; both ends have the shape (n, dimensions)."""
        widths = highs - lows
        centres = lows + (widths >> 1)
        if self._of_points:
            return encode_many(self._curve, centres)
        wide = widths >> self._bits - 1 != 0
        groups = (wide << np.arange(self._dimensions)).sum(axis=1) << self.group_shift
        places = encode_many(self._curve, (centres & ~_filled(widths)) >> self._shift)
        places |= groups
        return places

    def rest(self, lows: Integers, highs: Integers) -> list[Integers]:
        """Return more keys, of what the keys leave out: those for the lowest bits first."""
        if self._of_points:
            return []
        centres = lows + (highs - lows >> 1)
        return [
            encode_many(curve, centres >> shift & (1 << curve.bits) - 1)
            for curve, shift in (*self._below, (self._curve, self._shift))
        ]

    def key(self, low: Sequence[int], high: Sequence[int]) -> int:
        """Return the key of one box."""
        centre, wide = [], 0
        for axis, (begin, end) in enumerate(zip(low, high, strict=True)):
            width = end - begin
            below = (1 << width.bit_length()) - 1
            centre.append((begin + (width >> 1) & ~below) >> self._shift)
            wide |= (width >> self._bits - 1) << axis
        return self._curve.encode(centre) | wide << self.group_shift


def _filled(widths: Integers) -> Integers:
    """Return widths with all bits below their highest."""
    filled = widths.copy()
    for step in (1, 2, 4, 8, 16, 32):
        filled |= filled >> step
    return filled
