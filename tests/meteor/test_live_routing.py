"""Routing in a whole ring of the real code, at rest: what `meteor trace` shows of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import log2
from pathlib import Path

import pytest
from trio.testing import MockClock

from arms.message import Action, region_of_profile
from arms.profile import Profile
from meteor.client import connect
from meteor.node.errands import Trace
from meteor.simulation.resting import RestingRing, Walk
from meteor.transport.memory import MemoryNetwork
from tests.meteor.rings import SPACE, TestRing, ring_of

INTERESTS = [
    "type=*",
    "type=temperature",
    "type=te*",
    "location=lab, degree=20..30",
    "type=t*, location=l*, degree>40",
    "type=light | degree=-40..-20",
    "type=temperature, location=hall, degree=21",
]


def know_everybody(ring: TestRing) -> RestingRing:
    """Have each peer hear of all others, which it would find by looking up its fingers."""
    overlays = [node.overlay for node in ring.nodes.values()]
    for overlay in overlays:
        for other in overlays:
            if other is not overlay:
                overlay._chord.fingers.learn(other.neighbours())
    ids = [overlay.me.id for overlay in overlays]
    return RestingRing(ids, ring.config.successors, ring.config.fingers)


def steps(traces: list[Trace], sender: int | None = None) -> Iterator[tuple[int | None, Trace]]:
    for trace in traces:
        yield sender, trace
        yield from steps(trace.hops, trace.peer.id)


@pytest.mark.parametrize("peers", [16, pytest.param(64, marks=pytest.mark.slow)])
async def test_no_peer_of_a_ring_at_rest_is_asked_twice(
    peers: int, tmp_path: Path, autojump_clock: MockClock
) -> None:
    memory = MemoryNetwork(seed=7, latency_seconds=(0.001, 0.02))
    async with ring_of(peers, tmp_path, memory) as ring:
        resting = know_everybody(ring)
        for interest in INTERESTS:
            region = region_of_profile(SPACE, Profile.parse(interest), Action.RETRIEVE)
            for name in ("p0", f"p{peers // 2}"):
                async with connect(ring.addresses[name], network=ring.network()) as client:
                    traces, complete = await client.trace(interest)
                assert complete
                asked = Counter(trace.peer.id for _, trace in steps(traces))
                assert set(asked.values()) == {1}, interest
                owners = {trace.peer.id for _, trace in steps(traces) if trace.owner}
                assert owners == resting.owners(region)
                # The simulated ring of `meteor bench route` takes the very same way.
                walk = Walk(resting, region, ring.nodes[name].me.id)
                if not region.is_point:  # whose owner may have been heard of
                    assert asked.keys() == {walk.origin, *walk.asked}
                assert walk.depth <= log2(peers)


async def test_a_point_is_one_hop_away_once_its_owner_was_heard_of(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    memory = MemoryNetwork(seed=7, latency_seconds=(0.001, 0.02))
    async with ring_of(8, tmp_path, memory) as ring:
        know_everybody(ring)
        me = ring.nodes["p3"].me.id
        profiles = [f"type=t{i}, location=room{i}, degree={5 * i}" for i in range(20)]
        async with connect(ring.addresses["p3"], network=ring.network()) as client:
            for profile in profiles:
                assert (await client.store(profile)).complete
            for profile in profiles:
                traces, complete = await client.trace(profile, Action.STORE)
                assert complete
                (_, first), *rest = steps(traces)
                assert first.peer.id == me
                assert first.owner == (not rest)
                assert [(sender, trace.owner) for sender, trace in rest] in ([], [(me, True)])
