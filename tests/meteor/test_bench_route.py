"""The routing benchmark: its workload is what it says, and its answers are right."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner

from arms.message import Action, region_of_profile
from arms.profile import Profile
from meteor.bench.keywords import QUERIES, make_profiles
from meteor.bench.layouts import Layout, keyword_layout, quantile_layout
from meteor.cli.main import cli

LAYOUTS = {"keyword": keyword_layout, "quantile": quantile_layout}


@pytest.fixture(scope="module", params=sorted(LAYOUTS))
def layout(request: pytest.FixtureRequest) -> Layout:
    made: Layout = LAYOUTS[request.param](make_profiles(2_000, seed=3))
    return made


def test_a_profile_lies_where_a_peer_would_store_it(layout: Layout) -> None:
    for i in range(0, 2_000, 97):
        profile = Profile.parse(layout.profiles.text(i))
        region = region_of_profile(layout.space, profile, Action.STORE)
        assert region.is_point
        assert region.lowest == layout.identifiers[i]


@pytest.mark.parametrize("kind", QUERIES)
def test_what_a_query_asks_for_lies_in_its_region(layout: Layout, kind: str) -> None:
    random = Random(kind)
    for _ in range(5):
        query = QUERIES[kind](layout.profiles, random)
        region = layout.region(query)
        for identifier in layout.identifiers[layout.profiles.matching(query)].tolist():
            assert identifier in region


def test_words_occur_by_zipfs_law() -> None:
    column = make_profiles(100_000, seed=3).numbers[:, 0].tolist()
    (_, first), (_, second), *_ = Counter(column).most_common(10)
    assert first / second == pytest.approx(2, rel=0.1)


def test_correlated_words_follow_from_the_first() -> None:
    profiles = make_profiles(20_000, seed=3, correlated=True)
    pairs = Counter(map(tuple, profiles.numbers[:, :2].tolist()))
    words = Counter(profiles.numbers[:, 0].tolist())
    ((word, count),) = words.most_common(1)
    assert max(n for (first, _), n in pairs.items() if first == word) / count > 0.85


def test_joins_that_split_the_busiest_spread_the_load(layout: Layout) -> None:
    split, random = (layout.places(50, samples, Random(1)) for samples in (8, 0))
    for places in (split, random):
        assert len(places) == 50
        assert places == sorted(set(places))
    assert layout.imbalance(split) < layout.imbalance(random) / 2


def test_routing_is_measured_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "routing.svg"
    sizes = ["--peers", "20", "--peers", "100", "--profiles", "5000", "--queries", "3"]
    result = CliRunner().invoke(cli, ["bench", "route", *sizes, "--json", "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    small, large, upkeep, figure, _ = report["sections"]
    for row in (*small["rows"], *large["rows"]):
        assert row["asked twice"] == 0
        assert row["recall %"] in (None, 100)
        assert row["messages"] + 1 >= row["owners %"] / 100 * 20
    assert upkeep["rows"][0]["lookups"] <= upkeep["rows"][0]["peers known"]
    assert [row["peers"] for row in figure["rows"]] == ["20", "100"]
    assert figure["rows"][1]["any: process"] == large["rows"][0]["contacted %"]
    assert "<svg" in picture.read_text(encoding="utf-8")


def test_one_seed_makes_one_workload() -> None:
    one, other, third = (make_profiles(500, seed) for seed in (5, 5, 6))
    assert one.words == other.words
    assert np.array_equal(one.numbers, other.numbers)
    assert not np.array_equal(one.numbers, third.numbers)
