"""Where a joining peer goes: it splits the busiest of some sampled peers at its median.

The rule alone, without a network: live peers and simulated rings place themselves by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from meteor.ring.arcs import RING_SIZE

SPREAD = 0.05
"""A peer goes this far from the middle at most, at random, so that two peers that join at the same
moment and look at the same arc don't want the same place."""

NUDGE = 1024
"""For the same reason it goes up to so many identifiers on: many data may share one."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a peer says of itself to one that wants to join."""

    id: int
    low: int | None
    """The beginning of its arc, which is not part of it; None when it is not responsible yet."""
    data: int
    share: float
    """Of the ring."""
    middle: int | None
    """The identifier below which the share of its data lies that was asked for, if it has any."""


def even_places(samples: Mapping[str, tuple[float, Sequence[int]]]) -> dict[str, int]:
    """Return a place for each peer of a new ring, by name, so that all have about as much to do.

    Each name comes with how many data there are, and the identifiers of some of them: all together
    are a sample of what the ring will hold. Without any, the places are as far apart as can be.
    """
    names, weighted = sorted(samples), []
    for count, identifiers in samples.values():
        weighted += [(at, count / len(identifiers)) for at in identifiers]
    weighted.sort()
    total = sum(weight for _, weight in weighted)
    places: dict[str, int] = {}
    used: set[int] = set()
    passed, at = 0.0, -1
    for number, name in enumerate(names):
        if len(weighted) < len(names):
            place = number * RING_SIZE // len(names)
        else:
            while passed < total * (number + 0.5) / len(names) and at + 1 < len(weighted):
                at += 1
                passed += weighted[at][1]
            place = weighted[max(at, 0)][0]
        if place in used:  # many data share one identifier: nobody can split them
            place = (number * RING_SIZE + RING_SIZE // 2) // len(names)
        while place in used:
            place = (place + 1) % RING_SIZE
        used.add(place)
        places[name] = place
    return places


def split_share(random: Random) -> float:
    """Return the share of a peer's data at which a joining peer splits it: about half."""
    return random.uniform(0.5 - SPREAD, 0.5 + SPREAD)


def busiest(loads: Iterable[Load]) -> Load:
    """Return the one with the most to do."""
    return max(loads, key=lambda load: (load.data, load.share))


def place_in(load: Load, share: float, random: Random) -> int:
    """Return a place in the arc of a peer that leaves it about this share of its data."""
    low = load.id if load.low is None else load.low
    width = (load.id - low) % RING_SIZE or RING_SIZE
    offset = int(width * share) if load.middle is None else (load.middle - low) % RING_SIZE
    offset += random.randrange(NUDGE)
    return (low + min(max(offset, 1), width - 1)) % RING_SIZE
