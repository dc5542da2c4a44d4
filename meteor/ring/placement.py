"""Where a joining peer goes: it splits the busiest of some sampled peers at its median.

The rule alone, without a network: live peers and simulated rings place themselves by it.
"""

from __future__ import annotations

from collections.abc import Iterable
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
