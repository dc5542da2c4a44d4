"""Measures what a program or a host pays before anything is posted: imports, start-up, memory.

Everything is measured on processes of its own, as a user would start them for the second time: the
first time, Python compiles what it imports, and keeps that.
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

from meteor.bench.report import Report, Spread, proc_field
from meteor.config import ENVIRONMENT_PREFIX
from meteor.errors import NoAnswer

REPEATS = 5

IMPORTS = ("meteor", "meteor.client", "trio", "numpy")
"""What a program imports; trio, which the client library is written with, and numpy to compare."""

TIMED_IMPORT = """
from time import perf_counter, process_time
begin = perf_counter(), process_time()
import {}
print(perf_counter() - begin[0], process_time() - begin[1])
"""

FIRST = "meteor node, the first peer, until it is ready"
JOINING = "meteor node, joining another, until it is ready"
GOALS = {"import meteor": "< 0.2", "import meteor.client": "< 0.2", FIRST: "< 1"}

IDLE_SECONDS = 1.0
"""How long a peer is left alone before its memory is read."""

START_SECONDS_MAX = 60.0
"""When a peer that has not started is given up; a busy machine may take some seconds."""


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds on the clock and of the processor; the latter are the same on a busy machine."""

    seconds: float
    processor: float | None
    """None where nobody says."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A process that runs one peer."""

    process: subprocess.Popen[str]
    address: str
    start: Took
    """From the start of the process until it says that it is in the ring."""

    def megabytes(self) -> float | None:
        """Return the memory that is its own or shared, in 10^6 bytes; None where nobody says."""
        resident = proc_field(f"/proc/{self.process.pid}/status", "VmRSS")
        return int(resident.split()[0]) * 1024 / 1e6 if resident else None


def run(repeats: int = REPEATS) -> Report:
    """Measure imports in turns, then a first peer and one that joins it, several times."""
    report = Report("start", {"repeats": repeats})
    took: dict[str, list[Took]] = {}
    memory: list[float] = []
    with tempfile.TemporaryDirectory(prefix="meteor-bench-") as name:
        folder = Path(name)
        _compile(folder)
        for _ in range(repeats):
            for module in IMPORTS:
                took.setdefault(f"import {module}", []).append(_import(module, folder))
            with _peer(folder) as one, _peer(folder, "--join", one.address) as other:
                took.setdefault(FIRST, []).append(one.start)
                took.setdefault(JOINING, []).append(other.start)
                time.sleep(IDLE_SECONDS)
                memory += [size for peer in (one, other) if (size := peer.megabytes()) is not None]
    section = report.section("Seconds to begin", "what", "seconds", "of the processor", "goal")
    for what, all_ in took.items():
        processor = [one.processor for one in all_ if one.processor is not None]
        section.add(
            what,
            Spread.of(one.seconds for one in all_),
            Spread.of(processor) if processor else None,
            GOALS.get(what),
        )
    if memory:
        report.section("Memory", "what", "MB", "goal").add("idle peer", Spread.of(memory), "< 60")
    else:
        report.notes.append("The memory of a process is read from /proc, which this system lacks.")
    return report


def _compile(folder: Path) -> None:
    """Have everything compiled that is imported later."""
    for module in IMPORTS:
        _import(module, folder)
    with _peer(folder):
        pass


def _environment(folder: Path) -> dict[str, str]:
    """Return the user's environment without settings of peers, and with what is compiled kept."""
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(ENVIRONMENT_PREFIX) and name != "PYTHONDONTWRITEBYTECODE"
    }
    return kept | {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def _import(module: str, folder: Path) -> Took:
    done = subprocess.run(
        [sys.executable, "-P", "-c", TIMED_IMPORT.format(module)],
        capture_output=True,
        text=True,
        check=True,
        env=_environment(folder),
    )
    seconds, processor = map(float, done.stdout.split())
    return Took(seconds, processor)


def _processor_seconds(process: int) -> float | None:
    """Return what a process has used so far, where /proc says it."""
    try:
        fields = (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system


@contextmanager
def _peer(folder: Path, *options: str) -> Iterator[Peer]:
    """Run a peer with an empty store at any free port, until the end of the block."""
    with tempfile.TemporaryDirectory(dir=folder) as state:
        command = [sys.executable, "-P", "-m", "meteor", "node", "--until-eof", "--log", "error"]
        command += ["--listen", "127.0.0.1:0", "--state", state, *options]
        begin = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(folder),
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
                took = Took(time.perf_counter() - begin, _processor_seconds(process.pid))
                yield Peer(process, address.strip(), took)
                process.terminate()
        finally:
            watchdog.cancel()
            process.kill()
