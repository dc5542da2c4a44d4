"""The simulator: `meteor simulate`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meteor.cli.display import console, duration, print_json, table
from meteor.cli.failures import FAILED, INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from meteor.simulation.run import Report, Settings

PLAIN_PROGRESS_SHARE = 0.1
"""The share of a simulation between two lines of progress that do not go to a terminal."""


@click.command()
@click.option(
    "--peers",
    type=click.IntRange(5, 1024),
    default=16,
    show_default=True,
    help="Peers that the ring begins with.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    help="Virtual time under load and faults.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Decides everything.")
@click.option(
    "--faults",
    default="all",
    show_default=True,
    help="all, none, or a list such as loss,crash,partition.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Simulate so many seeds, one after the other from --seed on.",
)
@click.option(
    "--jobs", type=click.IntRange(1), help="Processes for --seeds.  [default: one a core]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def simulate(
    peers: int,
    minutes: float,
    seed: int,
    faults: str,
    seeds: int,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Run a whole ring in this process, on virtual time, with faults.

    One seed is one history: the same seed does the same again, and prints the same digest. Ends
    with 1 when something that must hold did not, and says how to see it again.

    Example:
      meteor simulate --peers 64 --minutes 30 --seed 7 --faults all
      meteor simulate --seeds 100 --faults crash,power,partition
    """
    from meteor.simulation.faults import parse_faults
    from meteor.simulation.run import Settings

    chosen = parse_faults(faults)
    settings = [Settings(peers, minutes, number, chosen) for number in range(seed, seed + seeds)]
    if seeds == 1:
        failed = not _one(settings[0], as_json)
    else:
        failed = not _many(settings, jobs or os.cpu_count() or 1, as_json)
    if failed:
        sys.exit(FAILED)


def _one(settings: Settings, as_json: bool) -> bool:
    from meteor.simulation.run import simulate as run

    with _progress() as progress:
        report = run(settings, progress)
    if as_json:
        print_json(report.as_dict() | _version())
        return not report.violation
    out = console()
    for title, counts in (
        ("what happened", report.events),
        ("what clients did", report.operations),
        ("what was checked", report.checks),
    ):
        grid = table(title, "times", right=("times",))
        for kind, number in sorted(counts.items()):
            grid.add_row(kind, f"{number:,}")
        out.print(grid)
    took = f"{duration(settings.minutes * 60)} of virtual time in {duration(report.seconds)}"
    click.echo(f"{took}; history {report.history or 'cut short'}")
    click.echo(_words(report) if report.violation else "no violation")
    return not report.violation


def _many(settings: list[Settings], jobs: int, as_json: bool) -> bool:
    """Simulate many seeds in processes of their own; print each that fails, and how many passed."""
    passed = done = 0
    with _simulated(settings, jobs) as reports:
        try:
            for report in reports:
                done += 1
                passed += not report.violation
                if as_json:
                    print_json(report.as_dict() | _version())
                elif report.violation:
                    click.echo(_words(report))
        except KeyboardInterrupt:
            words = f"stopped after {done:,} of {len(settings):,} seeds, of which {passed:,} passed"
            click.echo(f"meteor: {words}", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
    if not as_json:
        click.echo(f"{passed:,} of {len(settings):,} seeds passed")
    return passed == len(settings)


@contextmanager
def _simulated(settings: list[Settings], jobs: int) -> Iterator[Iterator[Report]]:
    """Give the reports of many seeds; an error in the block ends all that still runs."""
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    from multiprocessing import active_children, get_context
    from tempfile import TemporaryDirectory

    from meteor.simulation.run import memory_folder
    from meteor.workers import deaf_to_interrupts, end_with_parent

    with (
        TemporaryDirectory(prefix="meteor-", dir=memory_folder()) as folder,
        ProcessPoolExecutor(jobs, get_context("spawn"), end_with_parent, (folder,)) as pool,
    ):
        with deaf_to_interrupts():
            reports = pool.map(partial(_report_of, Path(folder)), settings)
        try:
            yield reports
        except BaseException:
            for process in active_children():
                process.terminate()
            raise


def _report_of(folder: Path, settings: Settings) -> Report:
    from meteor.simulation.run import simulate as run

    return run(settings, folder=folder)


def _words(report: Report) -> str:
    version = _version()
    commit = f", commit {version['commit']}" if version["commit"] else ""
    seen = "\n".join(f"  {line}" for line in report.violation.splitlines())
    return (
        f"violated at {report.at_seconds:.3f} s: {report.checker}\n{seen}\n"
        f"again, with Meteor {version['version']}{commit}:\n  {report.settings.command}"
    )


def _version() -> dict[str, Any]:
    """Return what replays a seed: the version, and the commit of a checkout."""
    import subprocess

    from meteor.version import VERSION

    root = Path(__file__).parent.parent.parent
    commit = ""
    if (root / ".git").exists():
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False
        )
        commit = asked.stdout.strip()
    return {"version": VERSION, "commit": commit}


@contextmanager
def _progress() -> Iterator[Callable[[float], None]]:
    """Give what shows progress on standard error: a bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        said = 0.0

        def say(share: float) -> None:
            nonlocal said
            if share >= said + PLAIN_PROGRESS_SHARE:
                said = share
                click.echo(f"{share:.0%} done", err=True)

        yield say
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=1.0)
        yield lambda share: bar.update(task, completed=share)
