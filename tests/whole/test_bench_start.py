"""Start-up: what is measured of it, and what a program does not have to pay for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow  # everything is compiled first
def test_start_is_measured_on_processes_of_its_own() -> None:
    command = [sys.executable, "-m", "meteor", "bench", "start", "--repeats", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    section, *_ = json.loads(done.stdout)["sections"]
    measured = {row["what"]: row["seconds"]["median"] for row in section["rows"]}
    client = measured["import meteor.client"]
    assert measured["import meteor"] < client
    assert client < measured["meteor node, the first peer, until it is ready"]


@pytest.mark.parametrize(
    ("module", "unused"),
    [
        ("meteor", "trio squid arms"),
        ("meteor.client", "numpy sqlite3 sqlite_utils click rich arms.store meteor.node"),
        ("meteor.node.node", "click rich hilbertcurve matplotlib pyspark"),
        ("meteor.cli.main", "trio numpy sqlite3 rich arms"),
    ],
)
def test_nothing_is_imported_that_is_not_used(module: str, unused: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({unused.split()}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
