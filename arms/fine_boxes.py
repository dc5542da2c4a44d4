"""Where data lie in the finer cells that the index in memory compares, by their values.

Values come again and again, so the cells of each are kept.
"""

from __future__ import annotations

from arms.limits import VALUES_KEPT
from arms.selection import Placed, Selected, Value, patterns_of
from squid import Space
from squid.codecs import Cells
from squid.patterns import Absent
from squid.region import Box


class FineBoxes:
    """Finds the boxes of data in one space's grid."""

    def __init__(self, space: Space) -> None:
        self._grid = space.grid
        self._names = [dimension.name for dimension in space.dimensions]
        self._kept: dict[tuple[int, Value | None], Cells] = {}

    def of(self, data: Selected) -> Box:
        """Return the box of data: one cell, but for values that are ranges."""
        placed = data.placed()[0]
        kept, box = self._kept, []
        for axis, name in enumerate(self._names):
            value = _value(placed, name)
            cells = kept.get((axis, value))
            box.append(self._find(axis, value) if cells is None else cells)
        return tuple(box)

    def _find(self, axis: int, value: Value | None) -> Cells:
        patterns = (Absent(),) if value is None else patterns_of(value)
        cells = self._grid.interval(axis, patterns)
        if len(self._kept) >= VALUES_KEPT:
            self._kept.clear()
        self._kept[axis, value] = cells
        return cells


def _value(placed: Placed, name: str) -> Value | None:
    """Return the value of an attribute, which data have on one level at most."""
    for level in placed.levels:
        if name in level:
            return level[name]
    return None
