"""One simulation, from its seed to its report."""

from __future__ import annotations

import gc
import logging
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from meteor.errors import MeteorError
from meteor.simulation.checks import Checks, Violation
from meteor.simulation.determinism import deterministic
from meteor.simulation.faults import FAULTS
from meteor.simulation.nemesis import Nemesis
from meteor.simulation.workload import Log, Worker, query, read
from meteor.simulation.world import World

CLIENTS = 3
"""Programs that use the simulated ring."""

READER = "reader"
"""The program that has a reliable watch."""

READ_SECONDS_MAX = 120.0
"""Until then, after the last fault, the reader must have been told of everything."""

GARBAGE_THRESHOLDS = (100_000, 20, 20)
"""A simulation makes garbage by the second and keeps little: looking for it rarely saves a tenth of
its time."""

LOOK_SECONDS = 0.5
"""How often the ring is looked at as a whole."""

LAST_QUERY_ATTEMPTS = 5
"""How often a client may ask at the end until its answer is complete."""


@dataclass(frozen=True)
class Settings:
    """What to simulate."""

    peers: int
    minutes: float
    seed: int
    faults: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that simulates this."""
        faults = "all" if self.faults == tuple(FAULTS) else ",".join(self.faults) or "none"
        return (
            f"meteor simulate --peers {self.peers} --minutes {self.minutes:g} "
            f"--seed {self.seed} --faults {faults}"
        )


@dataclass
class Report:
    """What happened and what was checked."""

    settings: Settings
    history: str = ""
    """The digest of all that happened: the same seed gives the same one."""
    seconds: float = 0.0
    """How long it took, in our time."""
    events: dict[str, int] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)
    violation: str = ""
    checker: str = ""
    at_seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def memory_folder() -> Path | None:
    """Return where files are kept in memory; None where the system has no such folder."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None


def simulate(
    settings: Settings,
    progress: Callable[[float], None] = lambda _: None,
    *,
    folder: Path | None = None,
) -> Report:
    """Run a simulation; `progress` hears the share that is done.

    The peers' disks are in `folder`, else in memory.
    """
    report, started = Report(settings), time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="meteor-", dir=folder or memory_folder()))
    errors = _Errors()
    logger = logging.getLogger("meteor")
    before = (logger.propagate, logger.level)
    logger.addHandler(errors)
    logger.propagate = False
    thresholds = gc.get_threshold()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    try:
        with deterministic(settings.seed):
            trio.run(
                _Simulation(settings, report, folder, progress, errors).run,
                clock=MockClock(autojump_threshold=0),
            )
    finally:
        gc.set_threshold(*thresholds)
        logger.removeHandler(errors)
        logger.propagate, logger.level = before
        shutil.rmtree(folder)
    report.seconds = round(time.perf_counter() - started, 1)
    return report


class _Errors(logging.Handler):
    """Keeps the errors that peers log: those are bugs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.found.append(self.format(record))


class _Simulation:
    def __init__(
        self,
        settings: Settings,
        report: Report,
        folder: Path,
        progress: Callable[[float], None],
        errors: _Errors,
    ) -> None:
        self._settings, self._report, self._folder = settings, report, folder
        self._progress, self._errors = progress, errors

    async def run(self) -> None:
        """Run it, and note how it ended."""
        report = self._report
        try:
            async with trio.open_nursery() as nursery:
                await self._run(nursery)
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            violations, others = group.split(Violation)
            if others is not None and others.subgroup((KeyboardInterrupt, SystemExit)):
                raise
            first = _first(violations) if violations is not None else None
            if first is not None:
                report.checker, report.violation = first.checker, str(first)
                report.at_seconds = first.at_seconds
            else:
                report.checker = "no peer or client fails by itself"
                report.violation = "".join(traceback.format_exception(others))
                report.at_seconds = trio.current_time()

    async def _run(self, nursery: trio.Nursery) -> None:
        settings, report = self._settings, self._report
        latency = 0.03 if "latency" in settings.faults else 0.001
        world = World(self._folder, nursery, settings.seed, latency, "drift" in settings.faults)
        log = Log()
        checks = Checks(world, log)
        log.on_query = checks.query
        names = [f"client{i}" for i in range(CLIENTS)]
        nemesis = Nemesis(world, settings.faults, [*names, READER], settings.seed)
        report.events, report.operations = world.history.counts, log.counts
        report.checks = checks.counts
        await self._begin(world, nemesis)
        async with trio.open_nursery() as working:
            finished, told = trio.Event(), trio.Event()
            for name in names:
                worker = Worker(name, log, world.history, settings.seed)
                working.start_soon(self._work, world, worker, checks, finished)
            working.start_soon(self._read, world, log, told)
            with trio.move_on_after(settings.minutes * 60):
                async with trio.open_nursery() as trouble:
                    trouble.start_soon(nemesis.run)
                    await self._look(nemesis, checks)
            await nemesis.end()
            finished.set()
            await trio.sleep(0.5)  # nobody posts any more
            with trio.move_on_after(READ_SECONDS_MAX):
                while checks.unread():  # noqa: ASYNC110 - another task reads
                    await trio.sleep(0.5)
            told.set()
        await nemesis.whole()  # what was asked during the last fault may have timed out since
        checks.ring_is_whole()
        checks.copies_are_made()
        checks.takers()
        checks.reliable_notifications()
        if self._errors.found:
            raise Violation("no peer meets a bug of its own", self._errors.found[0])
        report.history = world.history.digest

    async def _begin(self, world: World, nemesis: Nemesis) -> None:
        """Start the first peer, then all others, and wait for the ring."""
        for i in range(self._settings.peers):
            peer = world.add(f"p{i}")
            world.start(peer)
            while i == 0 and not peer.up:  # noqa: ASYNC110 - it happens in another task
                await trio.sleep(0.1)
            await trio.sleep(0.1)
        await nemesis.whole()

    async def _look(self, nemesis: Nemesis, checks: Checks) -> None:
        """Look at the ring as a whole, again and again."""
        seconds = self._settings.minutes * 60
        began = trio.current_time()
        while True:
            await trio.sleep(LOOK_SECONDS)
            self._progress(min(1.0, (trio.current_time() - began) / seconds))
            if nemesis.calm:
                checks.ring_is_sound()
            checks.takers()
            checks.bounds_hold()

    async def _read(self, world: World, log: Log, told: trio.Event) -> None:
        addresses = [peer.address for peer in world.peers.values()]
        async with (
            world.client(READER, addresses[::-1]) as ring,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(read, ring, log, world.history)
            await told.wait()
            nursery.cancel_scope.cancel()

    async def _work(
        self, world: World, worker: Worker, checks: Checks, finished: trio.Event
    ) -> None:
        """Have a client work until all is over, then ask for everything once more."""
        addresses = [peer.address for peer in world.peers.values()]
        first = int(worker.name.removeprefix("client")) * len(addresses) // CLIENTS
        async with world.client(worker.name, addresses[first:] + addresses[:first]) as ring:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker.run, ring)
                await finished.wait()
                nursery.cancel_scope.cancel()
            for _ in range(LAST_QUERY_ATTEMPTS):
                try:
                    asked = await query(ring, "degree=*", worker.name, checks.log, world.history)
                except MeteorError:
                    continue
                if asked.complete and not asked.doubted:
                    checks.query(asked, last=True)
                    return
            raise Violation("a whole ring answers completely", f"{worker.name} got no answer")


def _first(group: BaseExceptionGroup[Violation]) -> Violation | None:
    for error in group.exceptions:
        if isinstance(error, Violation):
            return error
        if isinstance(error, BaseExceptionGroup) and (found := _first(error)) is not None:
            return found
    return None
