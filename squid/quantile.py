"""The quantile codec: split points learnt from data, so that skewed values spread evenly.

Points are values that were seen; each owns an interval of cells as wide as its weight, and what
lies between two points has the gap between their intervals, by its order there. Data at a point
take a hashed position inside its interval (*dither*), so that a hot keyword is spread like any
other; an interest covers all of it. What lies outside all points has the two gaps at the ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from typing import Any, Generic, TypeVar

from squid.codecs import (
    BARE_CELL,
    BASE,
    Cells,
    Definition,
    NumberAxis,
    TextAxis,
    quoted,
    text_number,
)
from squid.errors import SpaceError
from squid.limits import SPLIT_POINTS_MAX, SPLIT_WEIGHT_MAX
from squid.patterns import Number, Prefix, text_span

KINDS = ("keyword", "number")

GAP_SYMBOLS = 8
"""Characters that tell the texts of one gap apart, after those that all of them begin with."""

V = TypeVar("V", str, float)


class Segments(Generic[V]):
    """The cells of points and gaps, in order: gap, point, gap, ... point, gap."""

    def __init__(
        self, bits: int, points: Sequence[V], weights: Sequence[int], gaps: Sequence[int]
    ) -> None:
        self.points: tuple[V, ...] = tuple(points)
        self.weights, self.gaps = tuple(weights), tuple(gaps)
        widths = [width for pair in zip(gaps, weights, strict=False) for width in pair]
        widths.append(gaps[-1])
        last = (1 << bits) - 1
        first = min(BARE_CELL + 1, last)
        cells, total = last - first + 1, sum(widths)
        # A cell for each, and the rest by weight. Where there are too few, neighbours share some.
        least = 1 if cells > len(widths) else 0
        spare = cells - least * len(widths)
        self._starts, sum_ = [], 0
        for place, width in enumerate(widths):
            self._starts.append(min(first + least * place + sum_ * spare // total, last))
            sum_ += width
        self._starts.append(last + 1)

    def segment(self, place: int) -> Cells:
        """Return the cells of one point or gap."""
        start = self._starts[place]
        return start, max(start, self._starts[place + 1] - 1)

    def cells(self, value: V, share: Callable[[V, int], tuple[int, int]]) -> Cells:
        """Return the cells of a value: those of its point, or one of its gap.

        `share` says where in a gap, given by the number of the point behind it, a value lies: so
        many parts of so many. It must not fall when the value grows.
        """
        place = bisect_left(self.points, value)
        if place < len(self.points) and self.points[place] == value:
            return self.segment(2 * place + 1)
        low, high = self.segment(2 * place)
        parts, whole = share(value, place)
        cell = min(low + parts * (high - low + 1) // whole, high)
        return cell, cell

    def below(self, point: V) -> Cells | None:
        """Return the gap before a point, if this is one."""
        place = bisect_left(self.points, point)
        if place < len(self.points) and self.points[place] == point:
            return self.segment(2 * place)
        return None

    def describe(self, kind: str) -> Definition:
        """Return what a space's definition has of it."""
        return {
            "codec": "quantile",
            "kind": kind,
            "points": self.points,
            "weights": self.weights,
            "gaps": self.gaps,
        }


class QuantileKeywords(TextAxis):
    """Keywords by how often they were seen, in code point order."""

    def __init__(
        self, bits: int, points: Sequence[str], weights: Sequence[int], gaps: Sequence[int]
    ) -> None:
        super().__init__(bits)
        self._segments = Segments(bits, points, weights, gaps)
        self._stems = [_stem(one, other) for one, other in pairwise(points)]

    def describe(self) -> Definition:
        """Return the codec as the space's definition has it."""
        return self._segments.describe("keyword")

    def with_bits(self, bits: int) -> QuantileKeywords:
        """Return the same codec for an axis of so many bits."""
        learnt = self._segments
        return QuantileKeywords(bits, learnt.points, learnt.weights, learnt.gaps)

    def _text_cells(self, text: str) -> Cells:
        return self._segments.cells(text, self._share)

    def _prefix_cells(self, text: str) -> Cells:
        low = self._text_cells(text)[0]
        _, end = text_span(Prefix(text))
        if end is None:
            return low, self._last
        gap = self._segments.below(end)
        return low, (gap or self._text_cells(end))[1]

    def _share(self, text: str, place: int) -> tuple[int, int]:
        points = self._segments.points
        # Between two points all texts begin with what both begin with.
        stem = self._stems[place - 1] if 0 < place < len(points) else 0
        low = text_number(points[place - 1][stem:], GAP_SYMBOLS) if place else 0
        high = (
            text_number(points[place][stem:], GAP_SYMBOLS)
            if place < len(points)
            else BASE**GAP_SYMBOLS
        )
        return text_number(text[stem:], GAP_SYMBOLS) - low, high - low + 1


class QuantileNumbers(NumberAxis):
    """Numbers by how often they were seen; those outside have the gaps at the ends."""

    def __init__(
        self, bits: int, points: Sequence[float], weights: Sequence[int], gaps: Sequence[int]
    ) -> None:
        super().__init__(bits)
        self._segments = Segments(bits, [float(point) for point in points], weights, gaps)
        # What lies outside is squeezed, by how far out it is beside what was learnt.
        learnt = self._segments.points
        self._reach = (learnt[-1] / 2 - learnt[0] / 2) or abs(learnt[0]) or 1.0

    def describe(self) -> Definition:
        """Return the codec as the space's definition has it."""
        return self._segments.describe("number")

    def with_bits(self, bits: int) -> QuantileNumbers:
        """Return the same codec for an axis of so many bits."""
        learnt = self._segments
        return QuantileNumbers(bits, learnt.points, learnt.weights, learnt.gaps)

    def _number_cells(self, value: Number) -> Cells:
        return self._segments.cells(as_float(value), self._share)

    def _share(self, value: float, place: int) -> tuple[int, int]:
        # Every operation rounds monotonically, so order is kept; all are exact IEEE arithmetic, so
        # every machine agrees.
        points = self._segments.points
        if place == 0:
            share = self._reach / (points[0] - value + self._reach)
        elif place == len(points):
            share = 1 - self._reach / (value - points[-1] + self._reach)
        else:
            # Halves, because the whole distance of two floats may be no float.
            low, high = points[place - 1] / 2, points[place] / 2
            share = (value / 2 - low) / (high - low) if low < high else 0.0
        return int(share * STEPS), STEPS


STEPS = 1 << 53
"""Parts of a gap between numbers: as fine as a float is."""


def from_table(table: Mapping[str, object], bits: int) -> QuantileKeywords | QuantileNumbers:
    """Build a quantile codec from its part of a space's definition."""
    keys = ("kind", "points", "weights", "gaps")
    problems = []
    unknown = table.keys() - set(keys)
    if unknown:
        problems.append(f"a quantile codec has no {quoted(unknown)}, only {', '.join(keys)}")
    kind = table.get("kind")
    if kind not in KINDS:
        problems.append(f"kind must be {' or '.join(map(repr, KINDS))}, not {kind!r}")
    points = _points(table.get("points"), kind, problems)
    count = len(points)
    weights = _weights("weights", table.get("weights"), count, "one for each point", problems)
    gaps = _weights("gaps", table.get("gaps"), count + 1, "one more than points", problems)
    if not problems and sum(weights) + sum(gaps) == 0:
        problems.append("one of the weights or gaps must be more than 0")
    if problems:
        raise SpaceError(problems)
    build = QuantileKeywords if kind == "keyword" else QuantileNumbers
    return build(bits, points, weights, gaps)


def _points(values: object, kind: object, problems: list[str]) -> list[Any]:
    if not isinstance(values, list):
        problems.append("points must be a list of the values that were learnt, in order")
        return []
    if not 1 <= len(values) <= SPLIT_POINTS_MAX:
        problems.append(f"a quantile codec has 1 to {SPLIT_POINTS_MAX:,} points, not {len(values)}")
        return values
    words = "texts" if kind == "keyword" else "finite numbers"
    for value in values:
        if not (isinstance(value, str) if kind == "keyword" else _is_number(value)):
            problems.append(f"points of the kind {kind} are {words}, and {value!r} is not one")
            return values
    for one, other in pairwise(values):
        if (one >= other) if kind == "keyword" else (as_float(one) >= as_float(other)):
            problems.append(f"points must grow, and {one!r} stands before {other!r}")
            break
    return values


def _weights(key: str, values: object, count: int, words: str, problems: list[str]) -> list[int]:
    if not isinstance(values, list):
        problems.append(f"{key} must be a list of whole numbers, {words}")
        return []
    if len(values) != count:
        problems.append(f"{key} must be {count}, {words}, not {len(values)}")
    for value in values:
        if type(value) is not int or not 0 <= value <= SPLIT_WEIGHT_MAX:
            problems.append(
                f"{key} are whole numbers from 0 to {SPLIT_WEIGHT_MAX:,}, not {value!r}"
            )
            break
    return values


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isfinite(as_float(value))


def as_float(value: Number) -> float:
    """Return the nearest float; what is too large for one is infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _stem(one: str, other: str) -> int:
    """Return how many characters two texts begin with in common."""
    alike = 0
    while alike < min(len(one), len(other)) and one[alike] == other[alike]:
        alike += 1
    return alike
