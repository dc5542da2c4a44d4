"""Joining peers spread the load: the rule that live peers and simulated rings share."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arms.message import Action, region_of_profile
from arms.profile import Profile
from meteor.bench import balance
from meteor.ring.arcs import RING_SIZE, arc, contains
from meteor.ring.placement import Load, busiest, even_places, place_in
from squid import Space, learn_space

SPACE = Space.from_toml(balance.SPACE)
places = st.integers(0, RING_SIZE - 1)


@given(places, places | st.none(), places | st.none(), st.floats(0, 1), st.integers())
@settings(max_examples=300, deadline=None)
def test_a_place_lies_in_the_arc_that_is_split(id_, low, middle, share, seed):
    low = None if low in (id_, (id_ - 1) % RING_SIZE) else low
    load = Load(id_, low, 5, 0.5, middle)
    place = place_in(load, share, Random(seed))
    assert place != id_
    assert contains(arc(id_ if low is None else low, id_), place) or middle is not None


def test_the_busiest_is_the_one_with_the_most_data_then_with_the_widest_arc():
    few, many = Load(1, 9, 3, 0.9, None), Load(2, 1, 7, 0.1, None)
    assert busiest([few, many]) == many
    assert busiest([Load(5, 3, 3, 0.1, None), few]) == few


@pytest.mark.parametrize("learnt", [False, True])
def test_simulated_profiles_lie_where_peers_store_them(learnt):
    rows = list(balance.Workload(seed=3).rows(200))
    space = learn_space(SPACE, map(balance.values_of, rows)) if learnt else SPACE
    stored = []
    for row in rows:
        profile = Profile.parse(balance.profile_text(row))
        assert str(profile) == balance.profile_text(row)
        stored.append(region_of_profile(space, profile, Action.STORE).lowest)
    assert balance.identifiers_of(space, rows).tolist() == sorted(stored)


@given(st.sets(places, min_size=1, max_size=20), st.lists(places, min_size=1, max_size=60))
@settings(max_examples=200, deadline=None)
def test_loads_are_counted_by_owner(ring, identifiers):
    ordered, peers = np.array(sorted(identifiers), dtype=np.int64), sorted(ring)
    counted = balance.loads(ordered, peers).tolist()
    for at, peer in enumerate(peers):
        spans = arc(peers[at - 1], peer)
        own = sorted(
            (i for i in identifiers if contains(spans, i)), key=lambda i: (i - peer - 1) % RING_SIZE
        )
        load = balance.load_of(ordered, peers, at, 0.5)
        assert load.data == counted[at] == len(own)
        assert load.middle == (own[(len(own) - 1) // 2] if own else None)


@pytest.mark.parametrize("correlated", [False, True])
def test_joins_keep_the_load_even(correlated):
    rows = list(balance.Workload(seed=7, correlated=correlated).rows(20_000))
    space = learn_space(SPACE, map(balance.values_of, rows[:5_000]))
    identifiers = balance.identifiers_of(space, rows)
    peers = balance.grow(identifiers, 200, Random(5))
    assert len(peers) == len(set(peers)) == 200
    assert balance.max_over_mean(balance.loads(identifiers, peers)) < 2.5
    assert balance.over_equal_arcs(identifiers.tolist()) < balance.over_equal_arcs(
        balance.identifiers_of(SPACE, rows).tolist()
    )


def test_the_places_of_a_new_ring_share_the_data_evenly():
    random = Random(3)
    data = [int(random.betavariate(2, 9) * RING_SIZE) for _ in range(5_000)]
    samples = {f"p{i}": (500 * (i + 1), random.sample(data, 60)) for i in range(10)}
    peers = sorted(even_places(samples).values())
    counts = balance.loads(np.array(sorted(data), dtype=np.int64), peers)
    assert balance.max_over_mean(counts) < 1.6
    assert sorted(even_places({"a": (0, []), "b": (0, [])}).values()) == [0, RING_SIZE // 2]
    assert len({*even_places({"a": (9, [7, 7]), "b": (9, [7])}).values()}) == 2
