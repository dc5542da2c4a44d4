"""Inputs that lead into code never reached before: no crash, no hang, no unbounded memory."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TARGETS = (
    "frames",
    "channel",
    "message",
    "errand",
    "answer",
    "peers",
    "profile",
    "space",
    "address",
)

SECONDS = int(os.environ.get("FUZZ_SECONDS", "60"))
INPUT_SECONDS_MAX = 5
MEMORY_MB_MAX = 1024


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not installed; where your Python has one: pip install 'meteor[fuzz]'",
)
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_crashes_hangs_or_bloats_a_parser(target: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("targets.py")),
            target,
            str(tmp_path),
            f"-max_total_time={SECONDS}",
            "-max_len=8192",
            f"-timeout={INPUT_SECONDS_MAX}",
            f"-rss_limit_mb={MEMORY_MB_MAX}",
            f"-artifact_prefix={tmp_path}/",
            "-seed=1",
        ],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS + 120,
        check=False,
    )
    said = done.stderr[-4000:]
    assert done.returncode == 0, said
    assert "Done" in done.stderr, said
