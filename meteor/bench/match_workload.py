"""The workload of `bench match`: interests and data, as boxes and as profiles.

Every interest constrains some dimensions, at random, and leaves the others open. It asks a keyword
dimension for a prefix of one or two letters or for one word, and a number dimension for a range.
The ranges are as wide as it takes for any data to be met by the wanted share of all interests:
about 10 of them (*sparse*) or 1 % (*dense*). Data are drawn evenly: every word as often, every
number as likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import numpy as np

from squid import Keyword, Pattern, Prefix, Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

SPARSE_MATCHES = 10
DENSE_SHARE = 0.01
OPEN_SHARE = 0.4
"""How often an interest leaves a dimension open."""

PREFIXES = ["".join(p) for length in (1, 2, 3) for p in product(ascii_lowercase, repeat=length)]
WORDS = len(ascii_lowercase) ** 3
"""The last of the prefixes are whole words: of three letters."""

NUMBER_MAX = 1_000_000


def space_of(dimensions: int) -> Space:
    """Return a space with keywords on the first third of its dimensions, numbers on the others."""
    axes = []
    for axis in range(dimensions):
        codec = (
            '"keyword"' if axis < keywords(dimensions) else f'"number"\nmin = 0\nmax = {NUMBER_MAX}'
        )
        axes.append(f'[[dimension]]\nname = "{_name(axis)}"\ncodec = {codec}\n')
    return Space.from_toml('name = "bench"\nversion = 1\n' + "\n".join(axes))


def keywords(dimensions: int) -> int:
    """Return how many dimensions have keywords."""
    return max(1, dimensions // 3 + (dimensions > 3))


@dataclass(frozen=True, slots=True)
class Workload:
    """Interests as boxes, data as points, and what both were made of."""

    space: Space
    bits: int
    """Of the cells that boxes and points are given in."""
    lows: Integers
    highs: Integers
    points: Integers
    interests: list[str]
    """The profiles of the first few."""
    data: list[str]


def workload(
    size: int, points: int, dimensions: int, share: float, seed: int, *, fine: bool = True
) -> Workload:
    """Return so many interests and points; each point meets about this share of the interests.

    Fine: in the cells of the space's grid, where a peer compares interests; else in the ring's,
    where it compares data.
    """
    rng = np.random.default_rng([seed, size, dimensions])
    space = space_of(dimensions)
    bits = space.grid.bits if fine else space.bits
    last = (1 << bits) - 1
    words = keywords(dimensions)
    cells = _prefix_cells(dimensions, fine)
    drawn = np.sort(cells[-WORDS:, 0])
    # How much of the data a prefix meets by its cells, which several words may share.
    begin, end = drawn.searchsorted(cells[:, 0]), drawn.searchsorted(cells[:, 1], "right")
    met = np.maximum(end - begin, 1) / WORDS

    closed = rng.random((size, dimensions)) >= OPEN_SHARE
    closed[np.arange(size), rng.integers(words, dimensions, size)] = True  # one range at least
    lows = np.zeros((size, dimensions), np.int64)
    highs = np.full((size, dimensions), last)
    left = np.full(size, share)
    chosen = np.full((size, words), -1)
    for axis in range(words):
        # A prefix of any length that leaves something for the ranges to choose.
        length = rng.integers(0, 3, size)
        first = np.array([0, 26, 26 + 676])[length]
        number = first + (rng.random(size) * np.array([26, 676, WORDS])[length]).astype(np.int64)
        fits = closed[:, axis] & (met[number] >= left)
        chosen[fits, axis] = number[fits]
        lows[fits, axis], highs[fits, axis] = cells[number[fits]].T
        left[fits] /= met[number[fits]]
    ranges = closed[:, words:]
    width = left[:, None] ** (1 / ranges.sum(axis=1, keepdims=True))
    from_share = rng.random(ranges.shape) * (1 - width)
    begin_cells = 1 + (from_share * last).astype(np.int64)
    end_cells = np.minimum(1 + ((from_share + width) * last).astype(np.int64), last)
    lows[:, words:] = np.where(ranges, begin_cells, 0)
    highs[:, words:] = np.where(ranges, end_cells, last)

    word = rng.integers(0, WORDS, (points, words))
    number_shares = rng.random((points, dimensions - words))
    where = np.concatenate(
        (cells[-WORDS:, 0][word], 1 + (number_shares * last).astype(np.int64)), axis=1
    )
    few = range(min(size, 10_000))
    return Workload(
        space, bits, lows, highs, where,
        [_interest(chosen[i], ranges[i], from_share[i], width[i, 0]) for i in few],
        [_data(word[i], number_shares[i]) for i in range(min(points, 2_000))],
    )  # fmt: skip


@cache
def _prefix_cells(dimensions: int, fine: bool) -> Integers:
    space = space_of(dimensions)
    codec = space.dimensions[0].codec
    patterns: list[Pattern] = [Prefix(text) for text in PREFIXES[:-WORDS]]
    patterns += [Keyword(text) for text in PREFIXES[-WORDS:]]
    return np.array([space.grid.interval(0, (p,)) if fine else codec.interval(p) for p in patterns])


def _name(axis: int) -> str:
    return f"dimension{axis}"


def _interest(chosen: Any, ranges: Any, begin: Any, width: float) -> str:
    parts = []
    for axis, number in enumerate(chosen.tolist()):
        if number >= 0:
            whole = number >= len(PREFIXES) - WORDS
            parts.append(f"{_name(axis)}={PREFIXES[number]}{'' if whole else '*'}")
    for axis, (closed, low) in enumerate(zip(ranges.tolist(), begin.tolist(), strict=True)):
        if closed:
            ends = f"{low * NUMBER_MAX:.3f}..{(low + width) * NUMBER_MAX:.3f}"
            parts.append(f"{_name(len(chosen) + axis)}={ends}")
    return ", ".join(parts)


def _data(words: Any, numbers: Any) -> str:
    texts = [PREFIXES[len(PREFIXES) - WORDS + word] for word in words.tolist()]
    texts += [f"{number * NUMBER_MAX:.3f}" for number in numbers.tolist()]
    return ", ".join(f"{_name(axis)}={text}" for axis, text in enumerate(texts))
