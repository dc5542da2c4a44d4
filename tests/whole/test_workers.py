"""Commands that have processes work for them: Ctrl-C ends all of them, and none outlives it."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.whole.rings_up import PATIENCE_SECONDS, Process, process

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="needs Linux's /proc to see who works"
)

SIMULATE = ("simulate", "--peers", "5", "--minutes", "600", "--faults", "none")


def workers(command: Process, wanted: int) -> list[int]:
    """Wait until a command has so many workers; returns the ids of their processes."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        threads = Path(f"/proc/{command.popen.pid}/task").glob("*/children")
        found = [int(child) for thread in threads for child in thread.read_text().split()]
        found = [child for child in found if "spawn_main" in command_line(child)]
        if len(found) >= wanted:
            return found
        assert time.monotonic() < give_up, f"{len(found)} workers"
        time.sleep(0.02)


def command_line(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""  # it is gone


def assert_gone(processes: list[int]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while left := [number for number in processes if command_line(number)]:
        assert time.monotonic() < give_up, f"{left} live on"
        time.sleep(0.05)


@pytest.mark.parametrize("moment", [0.0, 1.5], ids=["while they start", "while they work"])
def test_ctrl_c_ends_many_simulations_with_one_line(moment: float) -> None:
    with process(*SIMULATE, "--seeds", "3", "--jobs", "2") as simulate:
        found = workers(simulate, 2)
        time.sleep(moment)
        assert simulate.press_ctrl_c() == 130
        assert simulate.lines == ["meteor: stopped after 0 of 3 seeds, of which 0 passed\n"]
        assert_gone(found)


def test_no_simulation_outlives_the_command_nor_do_its_files() -> None:
    with process(*SIMULATE, "--seeds", "2", "--jobs", "2") as simulate:
        found = workers(simulate, 2)
        folders = {folder for worker in found for folder in disks(worker)}
        assert folders
        assert simulate.end(signal.SIGKILL) == -signal.SIGKILL
        assert_gone(found)
        assert [folder for folder in folders if folder.exists()] == []


def test_ctrl_c_ends_a_simulation_quietly() -> None:
    with process(*SIMULATE) as simulate:
        (folder,) = disks(simulate.popen.pid)
        assert (simulate.press_ctrl_c(), simulate.lines) == (130, [])
        assert not folder.exists()


def disks(process: int) -> set[Path]:
    """Wait until a process has stores of simulated peers open; returns the folder of all."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        mapped = re.findall(r"(/\S+?/meteor-\w+)/\S*profiles", maps(process))
        if mapped:
            return set(map(Path, mapped))
        assert time.monotonic() < give_up
        time.sleep(0.05)


def maps(process: int) -> str:
    return Path(f"/proc/{process}/maps").read_text()


def test_ctrl_c_ends_a_benchmark_quietly() -> None:
    with process("bench", "ring", "--alone", "--messages", "1000000") as bench:
        bench.wait_for("meteor durable, pipelined (1/3)")
        found = workers(bench, 3)  # a peer, the watcher and the publisher
        time.sleep(0.5)  # until that one has begun, if the machine is not busy
        assert bench.press_ctrl_c() == 130
        assert [line for line in bench.lines if line.strip() and "(1/3)" not in line] == []
        assert_gone(found)
