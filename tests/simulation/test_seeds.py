"""Whole rings with all faults: no seed breaks what is promised, and a seed is one history."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from meteor.errors import InputError
from meteor.simulation.faults import FAULTS, parse_faults
from meteor.simulation.run import Settings, simulate

ALL = tuple(FAULTS)

DIGEST = """
import sys
from meteor.simulation.faults import FAULTS
from meteor.simulation.run import Settings, simulate
print(simulate(Settings(6, 0.5, int(sys.argv[1]), tuple(FAULTS))).history)
"""


def digest_in_a_process(seed: int, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", DIGEST, str(seed)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.strip()


def test_one_seed_is_one_history_byte_for_byte() -> None:
    first, second = digest_in_a_process(5, "0"), digest_in_a_process(5, "4711")
    assert len(first) == 64
    assert first == second
    assert first != digest_in_a_process(6, "0")


def test_without_faults_every_operation_has_its_result() -> None:
    report = simulate(Settings(5, 0.5, 1, ()))
    assert report.violation == ""
    assert "operations without a result" not in report.operations
    assert report.operations["posts acknowledged"] > 50
    assert all(report.checks.values())


@pytest.mark.parametrize("text", ["all", "none", "crash,loss"])
def test_a_report_says_the_command_that_gives_it_again(text: str) -> None:
    settings = Settings(7, 1.5, 3, parse_faults(text))
    *_, said = settings.command.split()
    assert parse_faults(said) == settings.faults
    assert "--peers 7 --minutes 1.5 --seed 3" in settings.command


def test_a_fault_that_there_is_not_is_refused_in_words() -> None:
    with pytest.raises(InputError, match="no fault 'rain'; there are latency, loss"):
        parse_faults("crash,rain")


@pytest.mark.parametrize("seed", range(24))
def test_no_violation_in_short_runs(seed: int) -> None:
    report = simulate(Settings(6 + seed % 5, 0.5, seed, ALL))
    assert report.violation == "", f"{report.checker}: {report.settings.command}"


@pytest.mark.parametrize("seed", [1856, 1867])
def test_seeds_that_found_takes_that_were_told_wrongly(seed: int) -> None:
    report = simulate(Settings(16, 0.25, seed, ALL))
    assert report.violation == "", f"{report.checker}: {report.settings.command}"


@pytest.mark.parametrize(("peers", "seed"), [(24, 1721), (16, 1901)])
def test_seeds_that_waited_for_a_peer_that_had_been_replaced(peers: int, seed: int) -> None:
    report = simulate(Settings(peers, 0.25, seed, ALL))
    assert report.violation == "", f"{report.checker}: {report.settings.command}"


@pytest.mark.parametrize("fault", ["partition", "power", "crash", "churn"])
def test_no_violation_under_each_of_the_great_faults(fault: str) -> None:
    report = simulate(Settings(7, 1.0, 100, ("latency", "drift", fault)))
    assert report.violation == "", f"{report.checker}: {report.settings.command}"
    assert report.events[fault] > 0


def settings_of(seed: int) -> Settings:
    sizes = [16] * 21 + [24, 24, 32, 64]
    return Settings(sizes[seed % len(sizes)], 0.25, seed, ALL)


@pytest.mark.slow
def test_a_thousand_seeds_of_16_to_64_peers() -> None:
    broken = []
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for report in pool.map(simulate, map(settings_of, range(1000, 2000))):
            if report.violation:
                broken.append(f"{report.settings.command}\n{report.checker}: {report.violation}")
    print(f"{1000 - len(broken):,} of 1,000 seeds passed")
    assert broken == []
