"""Profiles of keywords for benchmarks, and queries about them, with the answers by brute force.

Words are made of syllables; how often each occurs follows Zipf's law, and says nothing about its
place in the alphabet. Everything comes from one seed. An answer is found by comparing the numbers
of words, without any of the code that is measured.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from squid import Anything, Interval, Keyword, Pattern, Prefix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

WORDS = 10_000
"""Different words in each dimension: some for every 100 of a million profiles."""

ZIPF = 1.0
"""The word of rank k occurs in proportion to 1 / k**ZIPF, as in natural text."""

CORRELATED = 0.9
"""Of correlated profiles: the share whose other words follow from the first."""

PREFIX_LETTERS = 2
"""Letters of a partial keyword; words begin with one of some 100 pairs."""

RANGE_SHARE = 0.1
"""The share of the profiles that each range of a query holds."""


@dataclass(frozen=True)
class Query:
    """What is asked for: a pattern for each dimension, and the numbers of the words it means."""

    patterns: tuple[Pattern, ...]
    wanted: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Profiles:
    """Tuples of keywords, one for each dimension."""

    words: list[list[str]]
    """The words of each dimension, in the order of the alphabet."""
    shares: list[NDArray[np.float64]]
    """How often each word occurs, on average."""
    numbers: Integers
    """The number of the word in each dimension, for every profile."""

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def dimensions(self) -> int:
        """How many words a profile has."""
        return len(self.words)

    def first(self, count: int) -> Profiles:
        """Return the same words with fewer profiles."""
        return replace(self, numbers=self.numbers[:count])

    def values(self, profile: int) -> dict[str, list[Pattern]]:
        """Return the values of a profile's dimensions."""
        return {name: [Keyword(word)] for name, word in self._pairs(profile)}

    def text(self, profile: int) -> str:
        """Return a profile as it is posted; no other has its serial number."""
        pairs = [*self._pairs(profile), ("serial", str(profile))]
        return ", ".join(f"{name}={value}" for name, value in sorted(pairs))

    def _pairs(self, profile: int) -> list[tuple[str, str]]:
        numbers = self.numbers[profile].tolist()
        return [(NAMES[d], self.words[d][number]) for d, number in enumerate(numbers)]

    def matching(self, query: Query) -> NDArray[np.bool_]:
        """Say of every profile whether it is asked for, by looking at all."""
        mask = np.ones(len(self), bool)
        for column, (low, high) in zip(self.numbers.T, query.wanted, strict=True):
            if (low, high) != (0, WORDS - 1):
                mask &= (column >= low) & (column <= high)
        return mask

    # -- queries -----------------------------------------------------------------------------------

    def keyword(self, random: Random) -> Query:
        """Ask for one keyword, any of the words as likely, and wildcards."""
        dimension = random.randrange(self.dimensions)
        return self._query({dimension: self._word(dimension, random.randrange(WORDS))})

    def posted_keyword(self, random: Random) -> Query:
        """Ask for one keyword, as likely as it occurs, and wildcards."""
        dimension = random.randrange(self.dimensions)
        return self._query({dimension: self._posted(random)[dimension]})

    def prefix(self, random: Random) -> Query:
        """Ask for one partial keyword, and wildcards."""
        dimension = random.randrange(self.dimensions)
        words = self.words[dimension]
        begin = words[random.randrange(WORDS)][:PREFIX_LETTERS]
        like = [number for number, word in enumerate(words) if word.startswith(begin)]
        return self._query({dimension: (Prefix(begin), (like[0], like[-1]))})

    def two_keywords(self, random: Random) -> Query:
        """Ask for two keywords of some profile, and wildcards."""
        posted = self._posted(random)
        return self._query({d: posted[d] for d in random.sample(range(self.dimensions), 2)})

    def ranges(self, random: Random) -> Query:
        """Ask for a range in each dimension, which holds a tenth of the profiles at least."""
        return self._query(
            {dimension: self._range(dimension, random) for dimension in range(self.dimensions)}
        )

    def all_keywords(self, random: Random) -> Query:
        """Ask for all keywords of some profile."""
        return self._query(dict(enumerate(self._posted(random))))

    def _query(self, constrained: dict[int, tuple[Pattern, tuple[int, int]]]) -> Query:
        whole: tuple[Pattern, tuple[int, int]] = (Anything(), (0, WORDS - 1))
        pairs = [constrained.get(dimension, whole) for dimension in range(self.dimensions)]
        return Query(tuple(pattern for pattern, _ in pairs), tuple(span for _, span in pairs))

    def _word(self, dimension: int, number: int) -> tuple[Pattern, tuple[int, int]]:
        return Keyword(self.words[dimension][number]), (number, number)

    def _posted(self, random: Random) -> list[tuple[Pattern, tuple[int, int]]]:
        numbers = self.numbers[random.randrange(len(self))].tolist()
        return [self._word(dimension, number) for dimension, number in enumerate(numbers)]

    def _range(self, dimension: int, random: Random) -> tuple[Pattern, tuple[int, int]]:
        sums: Sequence[float] = np.cumsum(self.shares[dimension]).tolist()
        low = bisect_right(sums, random.random() * (1 - RANGE_SHARE))
        begin = sums[low - 1] if low else 0.0
        high = min(bisect_right(sums, begin + RANGE_SHARE), WORDS - 1)
        words = self.words[dimension]
        return Interval(words[low], words[high]), (low, high)


NAMES = ("kind", "place", "unit", "maker", "owner", "room", "model", "grade")
"""What the dimensions are called."""

QUERIES: dict[str, Callable[[Profiles, Random], Query]] = {
    "keyword, wildcards": Profiles.keyword,
    "keyword as posted, wildcards": Profiles.posted_keyword,
    "prefix, wildcards": Profiles.prefix,
    "two keywords, wildcard": Profiles.two_keywords,
    "three ranges of 10 %": Profiles.ranges,
    "three keywords": Profiles.all_keywords,
}
"""The kinds of queries, from the widest to the narrowest."""


def make_profiles(
    count: int, seed: int, dimensions: int = 3, *, correlated: bool = False
) -> Profiles:
    """Make profiles; in correlated ones the first word mostly says what the others are."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, WORDS + 1) ** ZIPF
    weights /= weights.sum()
    words, shares, columns = [], [], []
    for _ in range(dimensions):
        words.append(_vocabulary(random))
        shares.append(weights[random.permutation(WORDS)])
        columns.append(random.choice(WORDS, count, p=shares[-1]))
    if correlated:
        for column in columns[1:]:
            follows = random.permutation(WORDS)[columns[0]]
            column[:] = np.where(random.random(count) < CORRELATED, follows, column)
    return Profiles(words, shares, np.stack(columns, axis=1))


def _vocabulary(random: np.random.Generator) -> list[str]:
    """Make words of two to four syllables."""
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in "aeiou"]
    words: set[str] = set()
    while len(words) < WORDS:
        drawn = random.integers(0, len(syllables), (WORDS, 4)).tolist()
        lengths = random.integers(2, 5, WORDS).tolist()
        for numbers, length in zip(drawn, lengths, strict=True):
            words.add("".join(syllables[number] for number in numbers[:length]))
    candidates = sorted(words)
    return sorted(candidates[i] for i in random.permutation(len(words))[:WORDS].tolist())
