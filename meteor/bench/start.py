"""Measures what a program or a host pays before anything is posted: imports, start-up, memory.

Everything is measured on processes of its own, as a user would start them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from meteor.bench.report import Cell, Report, Spread, proc_field
from meteor.config import ENVIRONMENT_PREFIX
from meteor.errors import NoAnswer

REPEATS = 5

IMPORTS = ("meteor", "meteor.client", "trio", "numpy")
"""What a program imports; trio, which the client library is written with, and numpy to compare."""

IDLE_SECONDS = 1.0
"""How long a peer is left alone before its memory is read."""

START_SECONDS_MAX = 60.0
"""When a peer that has not started is given up; a busy machine may take some seconds."""


@dataclass(slots=True)
class Peer:
    """A process that runs one peer."""

    process: subprocess.Popen[str]
    address: str
    seconds: float
    """From the start of the process until it says that it is in the ring."""

    def megabytes(self) -> float | None:
        """Return the memory that is its own or shared, in 10^6 bytes; None where nobody says."""
        resident = proc_field(f"/proc/{self.process.pid}/status", "VmRSS")
        return int(resident.split()[0]) * 1024 / 1e6 if resident else None


def run(repeats: int = REPEATS) -> Report:
    """Measure imports in turns, then a first peer and one that joins it, several times."""
    report = Report("start", {"repeats": repeats})
    imports: dict[str, list[float]] = {name: [] for name in IMPORTS}
    first: list[float] = []
    joined: list[float] = []
    memory: list[float] = []
    for _ in range(repeats):
        for name, seconds in imports.items():
            seconds.append(_import_seconds(name))
        with _peer() as one, _peer("--join", one.address) as other:
            first.append(one.seconds)
            joined.append(other.seconds)
            time.sleep(IDLE_SECONDS)
            memory += [size for peer in (one, other) if (size := peer.megabytes()) is not None]
    section = report.section("What it takes to begin", "what", "unit", "measured", "goal")
    goals: dict[str, Cell] = {"meteor": "< 0.2", "meteor.client": "< 0.2"}
    for name, seconds in imports.items():
        section.add(f"import {name}", "s", Spread.of(seconds), goals.get(name))
    section.add("meteor node, the first peer, until it is ready", "s", Spread.of(first), "< 1")
    section.add("meteor node, joining another, until it is ready", "s", Spread.of(joined), None)
    if memory:
        section.add("memory of an idle peer", "MB", Spread.of(memory), "< 60")
    else:
        report.notes.append("The memory of a process is read from /proc, which this system lacks.")
    return report


def _import_seconds(name: str) -> float:
    code = f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


@contextmanager
def _peer(*options: str) -> Iterator[Peer]:
    """Run a peer with an empty store at any free port, until the end of the block."""
    settings = {k: v for k, v in os.environ.items() if not k.startswith(ENVIRONMENT_PREFIX)}
    with tempfile.TemporaryDirectory(prefix="meteor-bench-") as folder:
        command = [sys.executable, "-P", "-m", "meteor", "node", "--until-eof", "--log", "error"]
        command += ["--listen", "127.0.0.1:0", "--state", str(Path(folder) / "peer"), *options]
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=settings
        )
        watchdog = threading.Timer(START_SECONDS_MAX, process.kill)
        watchdog.start()
        try:
            with process:
                assert process.stdout is not None
                word, _, address = process.stdout.readline().partition(" ")
                if word != "ready":
                    raise NoAnswer(f"a peer did not start within {START_SECONDS_MAX:.0f} s")
                watchdog.cancel()
                yield Peer(process, address.strip(), time.perf_counter() - begin)
                process.terminate()
        finally:
            watchdog.cancel()
            process.kill()
