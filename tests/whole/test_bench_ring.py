"""`meteor bench ring` on real processes: every message arrives, by every way it is measured."""

from __future__ import annotations

import json
import subprocess
import sys


def test_all_flows_come_to_their_end() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "meteor", "bench", "ring", "--alone", "--messages", "1000",
         "--repeats", "1", "--peers", "1", "--watches", "0", "--watches", "100", "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    flat, paced, watched, rings = report["sections"]
    assert len(flat["rows"]) == 3
    assert len(paced["rows"]) == 2
    assert [(row["system"], row["watches"]) for row in watched["rows"]] == [
        (system, watches)
        for watches in ("0", "100")
        for system in ("meteor", "meteor, space not learnt")
    ]
    assert [(row["peers"], row["posts"]) for row in rings["rows"]] == [
        ("1", "transient"),
        ("1", "durable"),
    ]
    assert report["notes"] == []  # nothing failed, and nobody asked for what is not there
    assert list(flat["rows"][0]) == ["system", "posts", "messages/s"]
