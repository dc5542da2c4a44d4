"""How evenly profiles spread over a ring that grew by joins: sorted identifiers, no network.

`grow(identifiers, peers, random)` returns the places of the peers of a ring that grew to that size
while the data were there, by the very rule that live peers place themselves by; `loads` counts the
profiles of each, and `max_over_mean` is the figure. `Workload` makes profiles of three dimensions
(`type` and `location` by Zipf's law, `degree` a number), and `identifiers_of` maps them through a
space as a peer does, dither and all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

import numpy as np
import numpy.typing as npt

from meteor.ring.arcs import RING_SIZE
from meteor.ring.placement import Load, busiest, place_in, split_share
from squid import Keyword, Pattern, Space, number, number_text

Identifiers = npt.NDArray[np.int64]

Row = tuple[str, str, float, int]
"""The type, location and degree of one profile, and which sensor it is from."""

SPACE = """
name = "balance"
version = 1
[[dimension]]
name = "type"
codec = "keyword"
[[dimension]]
name = "location"
codec = "keyword"
[[dimension]]
name = "degree"
codec = "number"
min = -50
max = 150
"""


@dataclass(frozen=True)
class Workload:
    """Profiles with skewed values; if `correlated`, location and degree mostly follow the type."""

    seed: int
    correlated: bool = False
    types: int = 2_000
    locations: int = 500
    sensors: int = 10_000

    def rows(self, count: int) -> Iterator[Row]:
        """Give so many profiles, the same for the same seed."""
        random = Random(f"{self.seed}/rows")
        types, locations = (_words(n, f"{self.seed}/{n}") for n in (self.types, self.locations))
        type_weights = list(accumulate(1 / rank for rank in range(1, self.types + 1)))
        location_weights = list(accumulate(1 / rank for rank in range(1, self.locations + 1)))
        for _ in range(count):
            (kind,) = random.choices(range(self.types), cum_weights=type_weights)
            if self.correlated and random.random() < 0.9:
                place = kind % self.locations
                degree = random.gauss(kind % 97, 1.5)
            else:
                (place,) = random.choices(range(self.locations), cum_weights=location_weights)
                degree = random.gauss(21, 8)
            sensor = random.randrange(self.sensors)
            yield types[kind], locations[place], round(degree, 1), sensor


def values_of(row: Row) -> dict[str, list[Pattern]]:
    """Return a profile's values, as a space and a learner want them."""
    return {"type": [Keyword(row[0])], "location": [Keyword(row[1])], "degree": [number(row[2])]}


def identifiers_of(space: Space, rows: Iterable[Row]) -> Identifiers:
    """Return the sorted identifiers of profiles, each where a peer would store it."""
    points = []
    for row in rows:
        box = space.point_box(values_of(row), profile_text(row).encode())
        assert box is not None
        points.append([cell for cell, _ in box])
    found = space.curve.encode_many(np.array(points, dtype=np.int64)) << space.shift
    found.sort()
    return found


def profile_text(row: Row) -> str:
    """Return the canonical text of a profile."""
    kind, location, degree, sensor = row
    return f"degree={number_text(degree)}, location={location}, sensor={sensor}, type={kind}"


def grow(identifiers: Identifiers, peers: int, random: Random, samples: int = 8) -> list[int]:
    """Return the places of a ring that grew to so many peers, one after the other, in order.

    Each joins where `meteor.ring.placement` says, after it has looked at `samples` of the peers,
    each as likely as the others, and at their successors. The identifiers are sorted.
    """
    places = [random.randrange(RING_SIZE)]
    while len(places) < peers:
        share = split_share(random)
        sampled = [random.randrange(len(places)) for _ in range(samples)]
        looked_at = {(at + step) % len(places) for at in sampled for step in (0, 1)}
        load = busiest(load_of(identifiers, places, at, share) for at in sorted(looked_at))
        place = place_in(load, share, random)
        at = bisect_left(places, place)
        if at == len(places) or places[at] != place:
            places.insert(at, place)
    return places


def load_of(identifiers: Identifiers, places: Sequence[int], at: int, share: float) -> Load:
    """Return what a peer says of itself: the peer with this number among the places."""
    low, high = places[at - 1], places[at]
    first = int(np.searchsorted(identifiers, low, "right"))
    last = int(np.searchsorted(identifiers, high, "right"))
    count = last - first if low < high else len(identifiers) - first + last
    middle = None
    if count:
        middle = int(identifiers[(first + int((count - 1) * share)) % len(identifiers)])
    width = (high - low) % RING_SIZE or RING_SIZE
    return Load(high, None if low == high else low, count, width / RING_SIZE, middle)


def loads(identifiers: Identifiers, places: Sequence[int]) -> npt.NDArray[np.int64]:
    """Count the profiles of each peer; the lowest also has what lies after the highest."""
    ends = np.searchsorted(identifiers, np.array(places, dtype=np.int64), "right")
    counts = np.diff(ends, prepend=0)
    counts[0] += len(identifiers) - ends[-1]
    return counts


def max_over_mean(counts: npt.NDArray[np.int64]) -> float:
    """Return how many times more than the mean the busiest has."""
    return float(counts.max() / counts.mean())


def over_equal_arcs(identifiers: Iterable[int], arcs: int = 64) -> float:
    """Return the same for equal arcs of the ring: how even the content alone is."""
    counts = Counter(identifier * arcs // RING_SIZE for identifier in identifiers)
    return max(counts.values()) * arcs / sum(counts.values())


def _words(count: int, seed: str) -> list[str]:
    """Return different words as people write them, some with a common beginning."""
    random = Random(seed)
    syllables = [c + v for c in "bdfghklmnprstvwz" for v in "aeiou"]
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(random.choices(syllables, k=random.randint(2, 4)))] = None
    return list(words)
