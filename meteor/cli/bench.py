"""Measurements: `meteor bench`."""

from __future__ import annotations

import sys
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
            callback=_drawable,
            help="Draw the figures into a file, such as out.svg.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _drawable(context: click.Context, option: click.Parameter, plot: Path | None) -> Path | None:
    """Refuse a plot that could not be drawn in the end, before anything is measured."""
    if plot is not None:
        from meteor.bench.report import check_plot

        check_plot(plot)
    return plot


def show(report: Report, as_json: bool, plot: Path | None) -> None:
    """Print a report; then draw its plots, if they are wanted: that may fail."""
    from meteor.bench.report import draw

    if sys.stderr.isatty():
        click.echo("\r\033[2K", err=True, nl=False)  # what `say` said last
    if as_json:
        print_json(report.as_dict())
    else:
        _print(report)
    if plot is not None:
        draw(report.plots, plot)
        click.echo(f"drawn: {plot}", err=True)


def _print(report: Report) -> None:
    from meteor.bench.report import cell_text

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


def say(words: str) -> None:
    """Say on standard error what is being measured: on a terminal in one line, else in many."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[2K{words} ...", err=True, nl=False)
    else:
        click.echo(words, err=True)


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


def numbers(context: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    """Read whole numbers with commas between; 1e5 is one too."""
    try:
        read = tuple(int(float(part)) for part in value.split(","))
    except (ValueError, OverflowError):
        read = ()
    if not read or min(read) < 1:
        raise click.BadParameter(f"{value!r} are no numbers above 0 with commas between: 1e3,1e5")
    return read


@bench.command()
@click.option(
    "--sizes",
    callback=numbers,
    metavar="N,N,...",
    default="1e3,1e4,1e5",
    show_default=True,
    help="Stored profiles; 1e6 takes some minutes.",
)
@click.option(
    "--dimensions",
    callback=numbers,
    metavar="N,N,...",
    default="3,5",
    show_default=True,
    help="Of the space: 2 to 8.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=0.25,
    show_default=True,
    help="Time for each contender of each case.",
)
@reporting
def match(
    sizes: tuple[int, ...],
    dimensions: tuple[int, ...],
    seconds: float,
    seed: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Compare matching at one peer with a full scan in SQL and with SQLite's R*Tree.

    Example:
      meteor bench match --sizes 1e5 --dimensions 3
    """
    if not all(2 <= count <= 8 for count in dimensions):
        raise click.BadParameter("a space that is measured has 2 to 8 dimensions")
    from meteor.bench.match import run

    show(run(sizes, dimensions, seconds, seed), as_json, plot)


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
    default=200_000,
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
      meteor bench route --profiles 1000000 --plot routing.svg
    """
    from meteor.bench.route import run

    show(run(peers, profiles, queries, seed, fingers, say), as_json, plot)


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
    if plot is not None:
        raise click.UsageError("this benchmark has nothing to plot: leave --plot out")
    from meteor.bench.start import run

    show(run(repeats), as_json, plot)


@bench.command()
@click.option(
    "--messages", type=click.IntRange(1_000), default=20_000, show_default=True, help="Posts."
)
@click.option(
    "--repeats", type=click.IntRange(1), default=3, show_default=True, help="How often to measure."
)
@reporting
def store(messages: int, repeats: int, seed: int, as_json: bool, plot: Path | None) -> None:
    """Measure durable posts at one store, against bare sqlite3 doing the same inserts.

    By the number of posts that share a transaction, with each post synced to the disk (full) and
    without (normal).

    Example:
      meteor bench store --plot store.svg
    """
    from meteor.bench.store import run

    show(run(messages, repeats, seed=seed), as_json, plot)


@bench.command()
@click.option(
    "--messages",
    type=click.IntRange(1_000),
    default=50_000,
    show_default=True,
    help="Messages of a flow.",
)
@click.option(
    "--repeats", type=click.IntRange(1), default=3, show_default=True, help="How often to measure."
)
@click.option(
    "--peers",
    type=click.IntRange(1, 64),
    multiple=True,
    default=(1, 3, 8),
    show_default=True,
    help="Peers of a ring; repeat it for several rings.",
)
@click.option(
    "--watches",
    type=click.IntRange(0, 100_000),
    multiple=True,
    default=(0, 1_000, 10_000),
    show_default=True,
    help="Watches in place; repeat it for several.",
)
@click.option("--alone", is_flag=True, help="Leave out what other people made.")
@reporting
def ring(
    messages: int,
    repeats: int,
    peers: tuple[int, ...],
    watches: tuple[int, ...],
    alone: bool,
    seed: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Measure posts and notifications of real processes, beside what people use today.

    Messages a second and latency between two programs on this machine: through rings of peers, and
    through Mosquitto, NATS and Zenoh where they are installed.

    Example:
      meteor bench ring
      meteor bench ring --messages 200000 --repeats 5 --plot ring.svg
    """
    from meteor.bench.ring import run

    show(run(messages, repeats, peers, watches, seed, not alone, say), as_json, plot)
