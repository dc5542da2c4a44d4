"""Rings of thousands: they come to rest, keep their invariants, and lookups take half of log2 N."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from meteor.cli.main import cli
from meteor.ring.chord import Chord
from meteor.ring.invariants import principals
from meteor.ring.questions import Neighbours, between
from meteor.simulation import growth
from meteor.simulation.cores import Broken
from meteor.simulation.growth import CoresReport, simulate_cores


@pytest.mark.parametrize(
    ("peers", "faults"),
    [
        (300, {}),
        (300, {"loss": 0.05, "duplicates": 0.2}),
        pytest.param(5000, {}, marks=pytest.mark.slow),
    ],
)
def test_lookups_take_about_half_of_log2_n(peers: int, faults: dict[str, float]) -> None:
    report = simulate_cores(peers, 7, **faults)  # type: ignore[arg-type]
    assert (report.peers, report.joins) == (peers, peers)
    assert abs(report.hops_mean - report.half_log2) < 1
    assert report.hops_max <= 4 * report.half_log2
    assert report.checks > peers, "every change was looked at"


@pytest.mark.parametrize(
    ("seeds", "sizes"),
    [(24, (8, 16, 64)), pytest.param(2000, (8, 16, 24), marks=pytest.mark.slow)],
)
def test_small_rings_bear_joins_crashes_and_leaves(seeds: int, sizes: tuple[int, ...]) -> None:
    gone = 0
    for seed in range(seeds):
        size = sizes[seed % len(sizes)]
        faults = {"loss": 0.05, "duplicates": 0.2} if seed % 2 else {}
        gone += simulate_cores(size, seed, events=1000, lookups=50, **faults).left  # type: ignore[arg-type]
    assert gone > seeds, "peers did go"
    print(f"{seeds} seeds passed; {gone} peers crashed or left")


def test_a_seed_is_a_history() -> None:
    faults = {"loss": 0.1, "duplicates": 0.3}
    runs = [simulate_cores(20, seed, events=300, **faults) for seed in (1, 1, 2)]  # type: ignore[arg-type]
    assert runs[0] == runs[1] != runs[2]


def test_loss_costs_messages() -> None:
    messages = [simulate_cores(64, 3, loss=loss, lookups=0).messages for loss in (0.0, 0.3)]
    assert messages[1] > messages[0]


def test_a_core_that_forgets_its_list_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Chord, before: Neighbours) -> None:
        self.successors = before.successors[:1] or (before.peer,)

    monkeypatch.setattr(Chord, "_place_after", careless)
    monkeypatch.setattr(Chord, "_adopt", lambda self, head: True)  # never renews its list
    with pytest.raises(Broken):
        simulate_cores(16, 1, events=1000)


@given(st.integers(0, 10_000))
def test_principals_are_those_that_no_pair_skips(seed: int) -> None:
    random = Random(seed)
    ids = random.sample(range(30), random.randint(1, 12))
    lists = [random.choices(range(30), k=random.randint(1, 4)) for _ in range(random.randint(0, 5))]
    pairs = [pair for one in lists for pair in pairwise(one)]
    assert principals(ids, lists) == {i for i in ids if not any(between(a, i, b) for a, b in pairs)}


# -- the command ---------------------------------------------------------------------------------


def test_the_command_says_what_happened() -> None:
    done = CliRunner().invoke(cli, ["simulate-cores", "--peers", "16", "--seeds", "3"])
    assert done.exit_code == 0, done.output
    for words in ("no violation", "half of log2 N", "3 of 3 seeds passed", "3 of 3 seeds\n"):
        assert words in done.output


def test_the_command_speaks_json() -> None:
    arguments = ["simulate-cores", "--peers", "80", "--seed", "9", "--lookups", "10", "--json"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["peers"] == 80


def test_a_failing_seed_prints_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = simulate_cores

    def second_fails(peers: int, seed: int, **options: object) -> CoresReport:
        if seed == 5:
            raise Broken("the ring is out of order")
        return real(peers, seed, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(growth, "simulate_cores", second_fails)
    arguments = ["simulate-cores", "--peers", "8", "--seed", "4", "--seeds", "2", "--loss", "0.1"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 1
    assert "1 of 2 seeds passed" in done.output
    assert "seed 5: the ring is out of order" in done.output
    assert "meteor simulate-cores --peers 8 --seed 5 --churn 1000 --loss 0.1" in done.output
