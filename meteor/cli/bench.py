"""Measurements: `meteor bench`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from meteor.cli.display import console, print_json, table
from meteor.cli.group import Commands

if TYPE_CHECKING:
    from meteor.bench.report import Report

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(cls=Commands)
def bench() -> None:
    """Measure how fast things are on this machine.

    Each benchmark measures what it compares in turns, in the same run. A figure is the median, with
    the least and the most in brackets. Measure alone: whatever else the machine does is in it.

    Example:
      meteor bench curve
      meteor bench curve --json
    """


def reporting(command: Command) -> Command:
    """Add the options that every benchmark has: --seed, --json and --plot."""
    options = (
        click.option("--seed", type=int, default=7, show_default=True, help="Makes the workload."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs."),
        click.option(
            "--plot",
            type=click.Path(dir_okay=False, writable=True, path_type=Path),
            help="Draw the figures into a file, such as out.svg.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def show(report: Report, as_json: bool, plot: Path | None) -> None:
    """Print a report, and draw its plots if they are wanted."""
    from meteor.bench.report import cell_text, draw

    if plot is not None:
        draw(report.plots, plot)
    if as_json:
        print_json(report.as_dict())
        return
    out = console()
    out.print(", ".join(f"{name} {value}" for name, value in report.machine.items()))
    if report.settings:
        out.print(", ".join(f"{name} {value}" for name, value in report.settings.items()))
    for section in report.sections:
        out.print(f"\n{section.title}:")
        grid = table(*section.columns, right=section.columns[1:])
        for row in section.rows:
            grid.add_row(*map(cell_text, row))
        out.print(grid)
    for note in report.notes:
        out.print(note)
    if plot is not None:
        out.print(f"drawn: {plot}")


@bench.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=0.5,
    show_default=True,
    help="Time for each case.",
)
@reporting
def curve(seconds: float, seed: int, as_json: bool, plot: Path | None) -> None:
    """Compare the Hilbert curve with the hilbertcurve package.

    Example:
      meteor bench curve --seconds 2
    """
    from meteor.bench.curve import run

    show(run(seconds, seed), as_json, plot)


@bench.command()
@click.option(
    "--peers",
    type=click.IntRange(2, 20_000),
    multiple=True,
    default=(100, 500, 1_000, 2_000, 5_000),
    show_default=True,
    help="Peers of a ring; repeat it for several rings.",
)
@click.option(
    "--profiles",
    type=click.IntRange(1, 10_000_000),
    default=1_000_000,
    show_default=True,
    help="Profiles in the largest ring; smaller ones have as many a peer.",
)
@click.option(
    "--queries",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Queries of each kind.",
)
@click.option(
    "--fingers",
    type=click.IntRange(1, 16),
    default=4,
    show_default=True,
    help="Fingers in each octave, as in the configuration of a peer.",
)
@reporting
def route(
    peers: tuple[int, ...],
    profiles: int,
    queries: int,
    fingers: int,
    seed: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Follow queries through simulated rings, beside the paper's Figure 8.

    Whom a query reaches, what that takes, whether it finds everything, and how evenly profiles are
    spread. A step is decided by the code of a live peer; answers are checked by brute force.

    Example:
      meteor bench route
      meteor bench route --peers 5000 --queries 200 --plot routing.svg
    """
    from meteor.bench.route import run

    def progress(words: str) -> None:
        click.echo(words, err=True)

    show(run(peers, profiles, queries, seed, fingers, progress), as_json, plot)


@bench.command()
@click.option(
    "--repeats", type=click.IntRange(1), default=5, show_default=True, help="How often to measure."
)
@reporting
def start(repeats: int, seed: int, as_json: bool, plot: Path | None) -> None:
    """Measure imports, the start of a peer, and what an idle one takes.

    Runs processes as a user would, at free ports of this machine, with empty stores.

    Example:
      meteor bench start
    """
    from meteor.bench.start import run

    show(run(repeats), as_json, plot)
