"""`meteor up` and other commands as real processes, for tests: what a person does in shells."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PEERS = 3
PATIENCE_SECONDS = 40
"""What has not happened by then never will; tests wait for things to happen, not for time."""

METEOR = (sys.executable, "-m", "meteor")


def plain_environment(**more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("METEOR_")}
    return kept | more


def free_ports(count: int = PEERS) -> int:
    """Return the first of some ports in a row that nobody listens at."""
    for base in random.sample(range(20_000, 32_000, count), 200):
        if all(is_free(base + i) for i in range(count)):
            return base
    raise AssertionError("no free ports")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Process:
    """A `meteor` command that runs on, and its output so far."""

    def __init__(self, *arguments: str, folder: Path | None = None, **environment: str) -> None:
        self.popen = subprocess.Popen(
            [*METEOR, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=plain_environment(**environment),
            process_group=0,
        )
        self.lines: list[str] = []

    def wait_for(self, words: str) -> str:
        """Read on to the line that has these words."""
        with self._patience() as output:
            for line in output:
                self.lines.append(line)
                if words in line:
                    return line
        raise AssertionError(f"{words!r} never came:\n{''.join(self.lines)}")

    def end(self, how: int = signal.SIGINT) -> int:
        """Send a signal and return the exit code."""
        self.popen.send_signal(how)
        return self.wait()

    def press_ctrl_c(self) -> int:
        """Do what a terminal does, to the command and all that it started; returns the code."""
        os.killpg(self.popen.pid, signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        """Return the exit code."""
        with self._patience() as output:
            self.lines += output
            return self.popen.wait()

    @contextmanager
    def _patience(self) -> Iterator[IO[str]]:
        """Give the output; the process is killed, and its output ends, when it takes too long."""
        assert self.popen.stdout is not None
        watchdog = threading.Timer(PATIENCE_SECONDS, self.popen.kill)
        watchdog.start()
        try:
            yield self.popen.stdout
        finally:
            watchdog.cancel()

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        assert self.popen.stdout is not None
        self.popen.stdout.close()


@contextmanager
def process(*arguments: str, folder: Path | None = None, **environment: str) -> Iterator[Process]:
    started = Process(*arguments, folder=folder, **environment)
    try:
        yield started
    finally:
        started.close()


@contextmanager
def ring_up(state: Path, peers: int = PEERS) -> Iterator[tuple[Process, int]]:
    """Run `meteor up` once it is ready; another program may take a port in between: then others."""
    for _ in range(5):
        port = free_ports(peers)
        options = ("--peers", str(peers), "--port", str(port), "--state", str(state))
        with process("up", *options) as up:
            try:
                up.wait_for("Ctrl-C stops it")
            except AssertionError:
                if "the port is in use" in "".join(up.lines):
                    continue
                raise
            yield up, port
            return
    raise AssertionError("ports were taken every time")


def command(port: int, *arguments: str, data: bytes | None = None) -> tuple[int, str, str]:
    """Run a command to its end; returns its exit code, output and messages."""
    done = subprocess.run(
        [*METEOR, *arguments],
        input=data,
        capture_output=True,
        env=plain_environment(METEOR_PEER=f"127.0.0.1:{port}"),
        timeout=PATIENCE_SECONDS,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()
