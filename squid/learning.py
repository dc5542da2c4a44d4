"""Learning a space from a sample: quantile codecs that spread values like those evenly.

Pure and deterministic: the same sample, in any order, gives the same space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from squid.codecs import Codec, NumberAxis
from squid.limits import LEARNT_POINTS, SPLIT_POINTS_MAX
from squid.patterns import Interval, Keyword, Pattern, number_text
from squid.quantile import QuantileKeywords, QuantileNumbers, as_float
from squid.space import Dimension, Space

Values = Mapping[str, Sequence[Pattern]]
"""The patterns of each attribute of one data profile."""

OBSERVATION = 16
"""The weight of a value seen once; a gap in which nothing was seen has 1, for what comes."""

V = TypeVar("V", str, float)


def learn_space(space: Space, sample: Iterable[Values], points: int = LEARNT_POINTS) -> Space:
    """Return the next version of a space, with codecs that spread the sample evenly.

    A dimension that the sample has no values of keeps its codec. A number axis stays one; on other
    axes numbers count as they are written.
    """
    seen: dict[str, list[Pattern]] = {dimension.name: [] for dimension in space.dimensions}
    for values in sample:
        for name, patterns in seen.items():
            patterns.extend(values.get(name, ()))
    dimensions = tuple(
        Dimension(
            dimension.name, _learnt(dimension.codec, seen[dimension.name], space.bits, points)
        )
        for dimension in space.dimensions
    )
    return replace(space, version=space.version + 1, dimensions=dimensions)


def learn_keywords(bits: int, counts: Mapping[str, int], points: int) -> QuantileKeywords:
    """Return a codec for texts that were seen so often."""
    return QuantileKeywords(bits, *_split(counts, points))


def learn_numbers(bits: int, counts: Mapping[float, int], points: int) -> QuantileNumbers:
    """Return a codec for numbers that were seen so often."""
    return QuantileNumbers(bits, *_split(counts, points))


def _learnt(codec: Codec, patterns: Iterable[Pattern], bits: int, points: int) -> Codec:
    if isinstance(codec, NumberAxis):
        numbers = Counter(
            as_float(pattern.low)
            for pattern in patterns
            if isinstance(pattern, Interval)
            and pattern.is_number
            and isinstance(pattern.low, int | float)
        )
        finite = {value: count for value, count in numbers.items() if abs(value) < float("inf")}
        return learn_numbers(bits, finite, points) if finite else codec
    texts = Counter(text for pattern in patterns if (text := _text(pattern)) is not None)
    return learn_keywords(bits, texts, points) if texts else codec


def _text(pattern: Pattern) -> str | None:
    match pattern:
        case Keyword(text):
            return text
        case Interval(low=int() | float() as low) if pattern.is_number:
            return number_text(low)
    return None


def _split(counts: Mapping[V, int], points: int) -> tuple[list[V], list[int], list[int]]:
    """Return split points, their weights, and the weights of the gaps around them.

    Half of the points are the most frequent values: a value between two points has one cell for all
    of its data, so none of those may be hot. The others stand wherever an equal share of the rest
    has come together since the last point. The first and the last value are points too.
    """
    if not 2 <= points <= SPLIT_POINTS_MAX:
        raise ValueError(f"a codec is learnt with 2 to {SPLIT_POINTS_MAX} points, not {points}")
    values: list[V] = sorted(counts)
    hot: int = max(0, points - 2) // 2
    always: set[V] = set(sorted(values, key=lambda value: (-counts[value], value))[:hot])
    rest = sum(count for value, count in counts.items() if value not in always)
    share = rest / max(1, points - 2 - hot)
    always.update((values[0], values[-1]))
    chosen: list[V] = []
    weights: list[int] = []
    gaps: list[int] = []
    gap = 0
    for value in values:
        count = counts[value]
        if value in always or gap + count >= share:
            chosen.append(value)
            weights.append(count * OBSERVATION)
            gaps.append(gap * OBSERVATION + 1)
            gap = 0
        else:
            gap += count
    return chosen, weights, [*gaps, 1]
