"""Where profiles lie on the ring: a space for the content, and the identifiers it gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np

from meteor.bench.balance import Identifiers, grow, loads, max_over_mean
from meteor.bench.keywords import NAMES, Profiles, Query
from meteor.ring.arcs import RING_SIZE
from squid import Keyword, Region, Space, learn_space

SAMPLE = 100_000
"""Profiles that a codec is learnt from: the first of them."""


@dataclass(frozen=True)
class Layout:
    """Profiles on the ring of a space."""

    space: Space
    profiles: Profiles
    identifiers: Identifiers
    """The identifier of every profile."""

    def first(self, count: int) -> Layout:
        """Return the same with fewer profiles."""
        return Layout(self.space, self.profiles.first(count), self.identifiers[:count])

    def region(self, query: Query) -> Region:
        """Return where what is asked for may be."""
        patterns = {NAMES[d]: [pattern] for d, pattern in enumerate(query.patterns)}
        return self.space.region([patterns])

    def places(self, peers: int, samples: int, random: Random) -> list[int]:
        """Return the places of peers that joined one by one; without samples, at random."""
        if samples:
            return grow(self._in_order, peers, random, samples)
        places: set[int] = set()
        while len(places) < peers:
            places.add(random.randrange(RING_SIZE))
        return sorted(places)

    def imbalance(self, places: list[int]) -> float:
        """Return how many times more profiles than the mean the fullest peer has."""
        return max_over_mean(loads(self._in_order, places))

    @cached_property
    def _in_order(self) -> Identifiers:
        return np.sort(self.identifiers)


def keyword_layout(profiles: Profiles) -> Layout:
    """Lay profiles out by the letters of their words."""
    dimensions = "".join(
        f'[[dimension]]\nname = "{name}"\ncodec = "keyword"\n'
        for name in NAMES[: profiles.dimensions]
    )
    space = Space.from_toml(f'name = "keywords"\nversion = 1\n{dimensions}')
    return Layout(space, profiles, _identifiers(space, profiles))


def quantile_layout(profiles: Profiles) -> Layout:
    """Lay profiles out by how often their words occur in a sample of them."""
    count = min(SAMPLE, len(profiles))
    space = learn_space(keyword_layout(profiles.first(1)).space, map(profiles.values, range(count)))
    return Layout(space, profiles, _identifiers(space, profiles))


def _identifiers(space: Space, profiles: Profiles) -> Identifiers:
    """Return where each profile is stored; a word that owns one cell is looked up once for all."""
    cells = np.empty_like(profiles.numbers)
    spread = np.zeros(len(profiles), bool)
    for d, dimension in enumerate(space.dimensions):
        intervals = np.array(
            [dimension.codec.interval(Keyword(word)) for word in profiles.words[d]]
        )
        of_profiles = intervals[profiles.numbers[:, d]]
        cells[:, d] = of_profiles[:, 0]
        spread |= of_profiles[:, 0] < of_profiles[:, 1]
    for i in np.flatnonzero(spread).tolist():
        box = space.point_box(profiles.values(i), profiles.text(i).encode())
        assert box is not None
        cells[i] = [low for low, _ in box]
    return space.curve.encode_many(cells) << space.shift
