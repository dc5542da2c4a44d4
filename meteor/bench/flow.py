"""A flow of messages from one program to another, through any system: what is sent and measured.

Every system under test is used by two programs in processes of their own, through its own Python
client library. A message carries the time at which it was handed to the library; the monotonic
clock is the same for all processes of a machine.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

from meteor.workers import deaf_to_interrupts, end_with_parent

PAYLOAD_BYTES = 100
STAMP = struct.Struct("!Q")

TYPES = ("temperature", "humidity", "pressure", "smoke", "light", "noise", "motion", "power")
PLACES = 125
"""Types times places are the topics of systems that have topics."""

VARIATION = 10
"""Different readings of one sensor."""


@dataclass(frozen=True)
class Flow:
    """What one publisher sends and one watcher gets."""

    messages: int
    mode: str = "transient"
    """`transient`: nothing is kept; `durable`: acknowledged when on disk (or by the broker)."""
    awaited: bool = False
    """Every post is awaited on its own, by many tasks; else posts are pipelined."""
    per_second: float = 0.0
    """The pace; 0 is flat out."""
    watches: int = 0
    """Watches in place of which each message matches MATCHED; 0: one watch for everything."""
    seed: int = 7

    def readings(self) -> Iterator[tuple[str, int, int]]:
        """Give the readings that are sent: a type, a place, and degrees.

        Any of the 1,000 sensors is as likely; each has its own level, around which it varies.
        """
        random = Random(f"flow {self.seed}")
        for _ in range(self.messages):
            kind, place = random.randrange(len(TYPES)), random.randrange(PLACES)
            level = (31 * kind + 7 * place) % 140
            yield TYPES[kind], place, level + random.randrange(VARIATION)

    @property
    def deliveries(self) -> int:
        """How many notifications there are in all."""
        return self.messages * (MATCHED if self.watches else 1)


MATCHED = 10
"""Watches that each message matches where there are many."""

TASKS = 200
"""Tasks that post when each post is awaited on its own."""


@dataclass
class Watched:
    """What the watcher saw."""

    count: int = 0
    last: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def take(self, payload: bytes, times: int = 1) -> None:
        """Note a delivery."""
        now = time.monotonic_ns()
        self.count += times
        self.latencies.append((now - STAMP.unpack_from(payload)[0]) / 1e3)

    def end(self) -> Watched:
        """Note when the last one came."""
        self.last = time.monotonic()
        return self


class System(Protocol):
    """Something that carries messages."""

    name: str

    def missing(self) -> str:
        """Say why it can't be measured here; nothing if it can."""
        ...

    def running(self, folder: str) -> AbstractContextManager[str]:
        """Run its servers, if it has any; gives the address for its clients."""
        ...

    def watch(self, address: str, flow: Flow, ready: Callable[[], None]) -> Watched:
        """Take all deliveries of a flow; `ready` is called when all watches are in place."""
        ...

    def post(self, address: str, flow: Flow, begin: Callable[[], None]) -> None:
        """Send all messages of a flow; `begin` is called when all is ready for the first."""
        ...


def payload() -> bytes:
    """Return the data of a message that is sent now."""
    return STAMP.pack(time.monotonic_ns()).ljust(PAYLOAD_BYTES, b".")


def topic(reading: tuple[str, int, int]) -> str:
    """Return the topic of a reading, for systems that have topics."""
    return f"{reading[0]}/room{reading[1]}"


def topics() -> list[str]:
    """Return all topics."""
    return [f"{name}/room{place}" for name in TYPES for place in range(PLACES)]


def pause(flow: Flow, started: float, sent: int) -> float:
    """Return how long to wait before the next message."""
    return max(0.0, started + sent / flow.per_second - time.monotonic()) if flow.per_second else 0.0


WATCH_SECONDS_MAX = 120.0
"""A flow that takes longer has failed."""


def measure(system: System, address: str, flow: Flow) -> dict[str, Any]:
    """Run one flow in two processes; returns messages a second and latencies in microseconds."""
    from multiprocessing import get_context

    context = get_context("spawn")
    near, far = context.Pipe()
    watcher = context.Process(target=_watch, args=(system, address, flow, far), daemon=True)
    mine, theirs = context.Pipe()
    publisher = context.Process(target=_post, args=(system, address, flow, theirs), daemon=True)
    try:
        with deaf_to_interrupts():
            watcher.start()
        far.close()
        _expect(near, "ready")
        # The publisher says when it begins: starting a process is not what is measured.
        with deaf_to_interrupts():
            publisher.start()
        theirs.close()
        begun = _expect(mine, "begun")
        watched: Watched = _expect(near, "watched")
        _expect(mine, "done")
    finally:
        for process in (watcher, publisher):
            if process.pid is not None:
                process.terminate()
                process.join(5)
    latencies = sorted(watched.latencies)
    return {
        "delivered": watched.count,
        "per_second": flow.messages / max(1e-9, watched.last - begun),
        "p50_us": latencies[len(latencies) // 2] if latencies else float("nan"),
        "p99_us": latencies[int(len(latencies) * 0.99)] if latencies else float("nan"),
    }


class FlowFailed(Exception):  # noqa: N818 - it reads as what it is
    """A flow did not come to its end."""


def _expect(pipe: Any, what: str) -> Any:
    if not pipe.poll(WATCH_SECONDS_MAX):
        raise FlowFailed(f"no word for {WATCH_SECONDS_MAX:.0f} s, waiting for {what!r}")
    try:
        said, value = pipe.recv()
    except EOFError:
        raise FlowFailed(f"a process ended, waiting for {what!r}") from None
    if said != what:
        raise FlowFailed(f"{said}: {value}")
    return value


def _watch(system: System, address: str, flow: Flow, pipe: Any) -> None:
    end_with_parent()
    watched = system.watch(address, flow, lambda: pipe.send(("ready", None)))
    pipe.send(("watched", replace(watched)))


def _post(system: System, address: str, flow: Flow, pipe: Any) -> None:
    end_with_parent()
    system.post(address, flow, lambda: pipe.send(("begun", time.monotonic())))
    pipe.send(("done", None))
