"""Where profiles and peers lie on the ring: a codec for the content, and a way to choose places.

A ring grows peer by peer with all profiles there. What a joining peer samples and where it goes is
decided by the code of a live peer (`meteor.node.place`); only the asking is left out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from meteor.bench.keywords import NAMES, Profiles, Query
from meteor.limits import SUCCESSORS_KEPT
from meteor.node.place import SPREAD, place_in
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
    stored = np.sort(layout.identifiers)
    places = [random.randrange(RING_SIZE)]
    while len(places) < peers:
        share = random.uniform(0.5 - SPREAD, 0.5 + SPREAD)
        sampled = {_sample(places, random) for _ in range(samples)}
        loads = [_load(places, i, stored, share) for i in sorted(sampled)]
        busiest = max(loads, key=lambda load: (load["data"], load["share"]))
        place = place_in(busiest, share, random)
        if place != places[bisect_left(places, place) % len(places)]:
            insort(places, place)
    return places


def _sample(places: list[int], random: Random) -> int:
    before = bisect_left(places, random.randrange(RING_SIZE)) - 1
    return (before + random.randrange(SUCCESSORS_KEPT + 1)) % len(places)


def _load(places: list[int], i: int, stored: Integers, share: float) -> dict[str, Any]:
    """Return what a peer would answer when it is asked for its load."""
    low, high = places[i - 1], places[i]
    first, end = (int(at) for at in np.searchsorted(stored, (low, high), side="right"))
    count = end - first if low < high else len(stored) - first + end
    middle = None
    if count:
        middle = int(stored[(first + int((count - 1) * share)) % len(stored)])
    width = ((high - low) % RING_SIZE or RING_SIZE) / RING_SIZE
    return {"id": high, "low": low, "data": count, "share": width, "middle": middle}
