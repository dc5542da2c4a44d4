"""A ring of cores that grows, churns, and comes to rest: what it took, and how far lookups go.

Peers join in waves, through random members, all of a wave at once. After each wave the ring
stabilises until it is ideal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import log2
from typing import Any

from meteor.limits import SUCCESSORS_KEPT
from meteor.ring.arcs import RING_SIZE
from meteor.simulation.cores import Broken, World, churn

WAVE_SHARE = 0.25
"""Joiners of one wave, beside the members there are: several fall between the same two."""

ROUNDS_MAX = 64
"""Stabilising rounds before a ring counts as one that never comes to rest. Joiners that fell
between the same two members need one each; a wave has rarely more than a dozen of those."""

WHOLE_CHECKS_PEERS_MAX = 64
"""Up to here the whole ring is checked after every change; it costs time by the ring's size."""

WHOLE_CHECKS_EVERY = 500
"""In larger rings: so many changes between two checks of the whole ring."""

FINGERS_PER_ROUND = 2
"""Fingers that each peer looks up in a stabilising round, so that joiners are found by others."""


@dataclass(frozen=True)
class CoresReport:
    """What a simulated ring did. It exists only when every check held."""

    peers: int
    seed: int
    joins: int
    left: int
    """Peers that crashed or left."""
    rounds: int
    """Stabilising rounds of the whole ring."""
    messages: int
    lookups: int
    hops_mean: float
    hops_max: int
    half_log2: float
    """Half of log2 N, Chord's expectation for the mean."""
    checks: int

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)


def simulate_cores(
    peers: int,
    seed: int,
    *,
    events: int = 0,
    loss: float = 0.0,
    duplicates: float = 0.0,
    lookups: int = 2000,
    progress: Callable[[int], None] = lambda _: None,
) -> CoresReport:
    """Grow a ring to `peers`, let `events` of churn happen, and look things up.

    Raises `Broken` when a check does not hold. `progress` is told how many peers there are.
    """
    whole = peers <= WHOLE_CHECKS_PEERS_MAX
    world = World(
        seed,
        SUCCESSORS_KEPT,
        loss=loss,
        duplicates=duplicates,
        check_every=1 if whole else WHOLE_CHECKS_EVERY,
    )
    rounds = _grow(world, peers, progress)
    joins, left = peers, 0
    if events:
        counts = churn(world, events, size_max=peers + peers // 2)
        world.finish()
        rounds += _rest(world)
        joins, left = joins + counts.joins, counts.left
    for _ in range(2 + int(log2(peers)) // FINGERS_PER_ROUND):
        _refresh_fingers(world)
    world.check()
    hops = _look_up(world, lookups)
    return CoresReport(
        peers=len(world.cores),
        seed=seed,
        joins=joins,
        left=left,
        rounds=rounds,
        messages=world.messages,
        lookups=lookups,
        hops_mean=sum(hops) / max(1, len(hops)),
        hops_max=max(hops, default=0),
        half_log2=log2(len(world.cores)) / 2,
        checks=world.checks,
    )


def _grow(world: World, peers: int, progress: Callable[[int], None]) -> int:
    """Let peers join until there are enough; return the stabilising rounds."""
    world.first(world.new())
    rounds = 0
    while (there := len(world.cores)) < peers:
        # The base comes one by one: a ring of fewer than r + 1 at rest bears nothing at once.
        wave = 1 if there <= world.r else max(1, int(there * WAVE_SHARE))
        for _ in range(min(wave, peers - there)):
            world.join(world.new())
        world.finish()
        rounds += _rest(world)
        if len(world.cores) > world.r:
            world.principals_min = world.r + 1
        _refresh_fingers(world)
        progress(len(world.cores))
    return rounds


def _rest(world: World) -> int:
    """Stabilise until the ring is ideal; return how many rounds that took."""
    for done in range(ROUNDS_MAX):
        wrong = world.not_ideal()
        world.checks += 1
        if not wrong:
            return done
        world.quiet(1)
    raise Broken(f"not at rest after {ROUNDS_MAX} rounds: {wrong[0]}")


def _refresh_fingers(world: World) -> None:
    for _ in range(FINGERS_PER_ROUND):
        for core in world.shuffled():
            world.start(core, core.refresh_finger())
        world.finish()


def _look_up(world: World, count: int) -> list[int]:
    """Look random places up from random members; every answer must be the owner."""
    order = sorted(world.cores)
    hops: list[int] = []
    for _ in range(count):
        identifier = world.random.randrange(RING_SIZE)
        found, asks = world.run_counted(world.anyone().lookup(identifier))
        owner = order[bisect_left(order, identifier) % len(order)]
        world.checks += 1
        if found is None or (found.successors or (found.peer,))[0].id != owner:
            raise Broken(f"the owner of {identifier} is {owner}, and the lookup found {found}")
        hops.append(asks)
    return hops
