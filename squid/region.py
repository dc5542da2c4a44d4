"""Regions: unions of boxes of cells, asked by identifier and never listed.

`Region.next` is the one primitive that routing needs. A search holds, for every axis, whether the
current cell still touches the box's low or high end (*tight*), all axes in one integer; the bits of
the ends are cut into *planes*, one integer a level, in the same layout:

    low ends (d bits) | high ends, inverted (d bits)

So `tight & plane` are the axes that must be 1 (upper half) and must be 0 (lower half) at a level,
and one table lookup gives the lowest digit that obeys. When nothing is tight any more, the cell
lies inside the box.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Generic, TypeVar, cast

from squid.curve import Curve
from squid.curve_tables import machine
from squid.errors import RegionError
from squid.limits import BOXES_MAX, STEPS_KEPT_MAX

Box = tuple[tuple[int, int], ...]
"""Cells from low to high, both included, for each dimension."""


class Region:
    """The identifiers `curve identifier << shift` of all cells in one or more boxes, or in none.

    `fine` gives the boxes once more, in the cells of the space's grid.
    """

    def __init__(
        self,
        curve: Curve,
        boxes: Sequence[Box],
        shift: int = 0,
        fine: Callable[[], Sequence[Box]] | None = None,
    ) -> None:
        for box in boxes:
            _check_box(curve, box)
        if len(boxes) > BOXES_MAX and len(set(boxes)) > BOXES_MAX:
            raise RegionError(f"a region has up to {BOXES_MAX} boxes, not {len(set(boxes))}")
        self.curve = curve
        self.shift = shift
        self.boxes: tuple[Box, ...] = _joined(boxes) if len(boxes) > 1 else tuple(boxes)
        self._fine = fine

    @cached_property
    def fine_boxes(self) -> tuple[Box, ...]:
        """The same in finer cells, to be compared in memory."""
        if self._fine is None:
            raise RegionError(
                "this region was not made of patterns, so its boxes are known here only"
            )
        return tuple(dict.fromkeys(self._fine()))

    def next(self, identifier: int) -> int | None:
        """Return the smallest identifier at or after this one in the region, or None."""
        if self.is_point:
            return self.lowest if identifier <= cast(int, self.lowest) else None
        start = -(-identifier >> self.shift) if identifier > 0 else 0
        found = [place for box in self._searches if (place := box.next(start)) is not None]
        return min(found) << self.shift if found else None

    def meets(self, low: int, high: int) -> bool:
        """Return whether the region has an identifier from low to high, both included."""
        if self.is_point:
            return low <= cast(int, self.lowest) <= high
        start = -(-low >> self.shift) if low > 0 else 0
        end = high >> self.shift
        return start <= end and any(box.meets(start, end) for box in self._searches)

    @cached_property
    def lowest(self) -> int | None:
        """The smallest identifier of all; None for an empty region."""
        if self.is_point:
            return self.curve.encode([low for low, _ in self.boxes[0]]) << self.shift
        return self.next(0)

    @cached_property
    def is_point(self) -> bool:
        """True for exactly one cell."""
        return len(self.boxes) == 1 and all(low == high for low, high in self.boxes[0])

    def intersect(self, other: Region) -> Region:
        """Return what both regions have, which may be nothing."""
        if (self.curve, self.shift) != (other.curve, other.shift):
            raise RegionError(f"{self.curve} and {other.curve} have no common regions")
        common = {
            tuple([(max(a, c), min(b, d)) for (a, b), (c, d) in zip(mine, theirs, strict=True)])
            for mine in self.boxes
            for theirs in other.boxes
        }
        boxes = [box for box in common if all(low <= high for low, high in box)]
        # Two legal regions always have a common one, so BOXES_MAX does not apply to it.
        region = Region(self.curve, (), self.shift)
        region.boxes = _joined(boxes) if 1 < len(boxes) <= BOXES_MAX else tuple(sorted(boxes))
        return region

    def __contains__(self, identifier: int) -> bool:
        place = identifier >> self.shift
        if place << self.shift != identifier or not 0 <= place < 1 << _total_bits(self.curve):
            return False
        point = self.curve.decode(place)
        return any(
            all(low <= value <= high for value, (low, high) in zip(point, box, strict=True))
            for box in self.boxes
        )

    def __bool__(self) -> bool:
        return bool(self.boxes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Region):
            return NotImplemented
        return (self.curve, self.boxes, self.shift) == (other.curve, other.boxes, other.shift)

    def __hash__(self) -> int:
        return hash((self.curve, self.boxes, self.shift))

    def __repr__(self) -> str:
        return f"Region({self.curve!r}, {list(self.boxes)!r}, shift={self.shift})"

    @cached_property
    def _searches(self) -> list[_BoxSearch]:
        return [_BoxSearch(self.curve, box) for box in self.boxes]


class _BoxSearch:
    """The search for one box, in places along the curve."""

    __slots__ = ("_dimensions", "_planes", "_start", "_steps", "_tight", "_total")

    def __init__(self, curve: Curve, box: Box) -> None:
        d, bits = curve.dimensions, curve.bits
        full = (1 << bits) - 1
        ends = [low for low, _ in box] + [full ^ high for _, high in box]
        planes = []
        for level in range(bits - 1, -1, -1):
            plane = 0
            for end in ends:
                plane = plane << 1 | end >> level & 1
            planes.append(plane)
        # An end of the whole axis never binds: it has no 1 in any plane.
        tight = 0
        for end in ends:
            tight = tight << 1 | (end != 0)
        self._dimensions = d
        self._total = d * bits
        self._planes = planes
        self._tight = tight
        self._steps = _steps(d)
        self._start = machine(d).start() << 2 * d

    def next(self, start: int) -> int | None:
        """Return the smallest place at or after start in the box."""
        cell = self._first_cell(start)
        return None if cell is None else self._lowest(*cell)

    def meets(self, start: int, end: int) -> bool:
        """Return whether the box has a place from start to end."""
        cell = self._first_cell(start)
        if cell is None:
            return False
        prefix, level, _, _ = cell
        below = self._total - level * self._dimensions
        if prefix << below > end:
            return False
        return (prefix + 1 << below) - 1 <= end or self._lowest(*cell) <= end

    def _first_cell(self, start: int) -> tuple[int, int, int, int] | None:
        """Return the first cell that meets the box at or after start: digits, level, state, tight.

        Walks down along start until its cell leaves the box, then back up, once, to the deepest
        later sibling that still meets it.
        """
        total, d, planes = self._total, self._dimensions, self._planes
        if start >> total:
            return None
        follow = self._steps.follow
        state, tight, shift, mask = self._start, self._tight, total, (1 << d) - 1
        trail = []
        for plane in planes:
            if not tight:
                return start, len(planes), state, 0
            shift -= d
            digit = start >> shift & mask
            bound = tight & plane
            trail.append((state | bound, digit, tight))
            change, state = follow[state | digit]
            if bound & change:
                break
            tight &= change ^ plane
        else:
            return start, len(planes), state, 0
        later = self._steps.later
        level = len(trail)
        while trail:
            key, digit, tight = trail.pop()
            step = later[key << d | digit]
            if step is not None:
                digit, change, state = step
                prefix = start >> total - (level - 1) * d << d | digit
                return prefix, level, state, tight & (change ^ planes[level - 1])
            level -= 1
        return None

    def _lowest(self, prefix: int, level: int, state: int, tight: int) -> int:
        """Return the lowest place of the box in a cell that meets it: no way down fails."""
        first, d = self._steps.first, self._dimensions
        for plane in self._planes[level:]:
            if not tight:
                break
            digit, change, state = first[state | tight & plane]
            prefix = prefix << d | digit
            tight &= change ^ plane
            level += 1
        return prefix << self._total - level * d


Value = TypeVar("Value")


class _Kept(dict[int, Value], Generic[Value]):
    """Answers by key, worked out when first asked for; starts anew when there are too many."""

    def __init__(self, work_out: Callable[[int], Value]) -> None:
        super().__init__()
        self._work_out = work_out

    def __missing__(self, key: int) -> Value:
        if len(self) >= STEPS_KEPT_MAX:
            self.clear()
        value = self[key] = self._work_out(key)
        return value


class _Steps:
    """One level of a search, for all boxes of so many dimensions.

    States are shifted left by 2d to leave room for bounds or a digit beside them. A *change* is the
    cell in the layout of planes, inverted: `change ^ plane` are the ends that the cell stays at.
    """

    def __init__(self, dimensions: int) -> None:
        self._machine = machine(dimensions)
        self._dimensions = dimensions
        self._mask = (1 << dimensions) - 1
        self.follow = _Kept(self._follow)
        self.first = _Kept(self._first)
        self.later = _Kept(self._later)

    def _follow(self, key: int) -> tuple[int, int]:
        """From state | digit: the change, and the state below."""
        d = self._dimensions
        cell, below = self._machine.by_digit(key >> 2 * d, key & self._mask)
        return (cell ^ self._mask) << d | cell, below << 2 * d

    def _first(self, key: int) -> tuple[int, int, int]:
        """From state | bound: the lowest digit within bounds, the change, and the state below."""
        step = self._step(key, -1)
        assert step is not None, "a cell that meets the box has a child that does"
        return step

    def _later(self, key: int) -> tuple[int, int, int] | None:
        """From (state | bound) << d | digit: the same for the lowest digit after this one."""
        return self._step(key >> self._dimensions, key & self._mask)

    def _step(self, key: int, after: int) -> tuple[int, int, int] | None:
        d, mask = self._dimensions, self._mask
        state = key >> 2 * d
        digit = self._machine.first_digit(state, key >> d & mask, key & mask, after)
        if digit is None:
            return None
        cell, below = self._machine.by_digit(state, digit)
        return digit, (cell ^ mask) << d | cell, below << 2 * d


@cache
def _steps(dimensions: int) -> _Steps:
    return _Steps(dimensions)


def _total_bits(curve: Curve) -> int:
    return curve.dimensions * curve.bits


def _check_box(curve: Curve, box: Box) -> None:
    if len(box) != curve.dimensions:
        raise RegionError(f"a box here has {curve.dimensions} intervals, not {len(box)}")
    highest = (1 << curve.bits) - 1
    for low, high in box:
        if not 0 <= low <= high <= highest:
            raise RegionError(
                f"a box's interval goes up, from 0 to {highest} here: not {low}..{high}"
            )


def _joined(boxes: Sequence[Box]) -> tuple[Box, ...]:
    """Return the same cells in fewer boxes, sorted: no box in another, neighbours made one."""
    kept: list[Box] = []
    waiting = sorted(set(boxes), reverse=True)
    while waiting:
        box = waiting.pop()
        for other in kept:
            union = _union(box, other)
            if union is not None:
                kept.remove(other)
                waiting.append(union)
                break
        else:
            kept.append(box)
    return tuple(sorted(kept))


def _union(one: Box, other: Box) -> Box | None:
    """Return the two boxes' union if that is a box."""
    differing = [
        axis for axis, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]
    ]
    if len(differing) == 1:
        axis = differing[0]
        (a, b), (c, d) = one[axis], other[axis]
        if max(a, c) <= min(b, d) + 1:
            return (*one[:axis], (min(a, c), max(b, d)), *one[axis + 1 :])
    for inner, outer in ((one, other), (other, one)):
        if all(c <= a and b <= d for (a, b), (c, d) in zip(inner, outer, strict=True)):
            return outer
    return None
