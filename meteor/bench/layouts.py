"""Where profiles and peers lie on the ring: a codec for the content, and a way to choose places.

A ring grows peer by peer with all profiles there. What a joining peer samples and where it goes is
decided by the rule of a live peer (`meteor.ring.placement`); only the asking is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from meteor.bench.balance import grow
from meteor.bench.keywords import NAMES, Profiles, Query
from meteor.ring.arcs import RING_SIZE
from squid import Keyword, Region, Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Profiles on the ring of a space."""

    space: Space
    profiles: Profiles
    identifiers: Integers
    """The identifier of every profile."""

    def first(self, count: int) -> Layout:
        """Return the same with fewer profiles."""
        return Layout(self.space, self.profiles.first(count), self.identifiers[:count])

    def region(self, query: Query) -> Region:
        """Return where what is asked for may be."""
        patterns = {NAMES[d]: [pattern] for d, pattern in enumerate(query.patterns)}
        return self.space.region([patterns])

    def loads(self, places: list[int]) -> Integers:
        """Count the profiles of every peer, given the peers' places in order."""
        owners = np.searchsorted(np.array(places, np.int64), self.identifiers) % len(places)
        return np.bincount(owners, minlength=len(places))


def keyword_layout(profiles: Profiles) -> Layout:
    """Lay profiles out by the letters of their words."""
    dimensions = "".join(
        f'[[dimension]]\nname = "{name}"\ncodec = "keyword"\n'
        for name in NAMES[: profiles.dimensions]
    )
    space = Space.from_toml(f'name = "keywords"\nversion = 1\n{dimensions}')
    return Layout(space, profiles, _identifiers(space, profiles))


def _identifiers(space: Space, profiles: Profiles) -> Integers:
    cells = np.empty_like(profiles.numbers)
    for d, dimension in enumerate(space.dimensions):
        of_words = [dimension.codec.cell(Keyword(word)) for word in profiles.words[d]]
        cells[:, d] = np.array(of_words, np.int64)[profiles.numbers[:, d]]
    return space.curve.encode_many(cells) << space.shift


def random_places(peers: int, random: Random) -> list[int]:
    """Return places that nobody has chosen, in order."""
    places: set[int] = set()
    while len(places) < peers:
        places.add(random.randrange(RING_SIZE))
    return sorted(places)


def split_places(layout: Layout, peers: int, samples: int, random: Random) -> list[int]:
    """Return the places of peers that joined one by one, each at the busiest of some peers."""
    return grow(np.sort(layout.identifiers), peers, random, samples)
