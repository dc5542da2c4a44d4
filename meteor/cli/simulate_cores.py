"""Rings of cores without a network: `meteor simulate-cores`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from meteor.cli.display import console, count, print_json, table
from meteor.cli.failures import FAILED

if TYPE_CHECKING:
    from meteor.simulation.growth import CoresReport

CHURN_EVENTS = 1000
"""Events of churn in a small ring: every peer of it is replaced about once."""

SMALL = 64
"""The largest ring that churns unless told."""

LINES = 20
"""Lines of progress where there is no terminal."""


@click.command("simulate-cores")
@click.option(
    "--peers",
    type=click.IntRange(8, 20_000),
    default=64,
    show_default=True,
    help="How many peers the ring grows to.",
)
@click.option("--seed", type=int, default=7, show_default=True, help="Decides everything.")
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Run so many seeds, from --seed on.",
)
@click.option(
    "--churn",
    type=click.IntRange(0),
    help=f"Joins, leaves and crashes afterwards.  [default: {CHURN_EVENTS} up to {SMALL} peers]",
)
@click.option(
    "--loss",
    type=click.FloatRange(0, 0.5),
    default=0.0,
    show_default=True,
    help="The share of messages that are lost.",
)
@click.option(
    "--duplicates",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="The share of notices that come twice.",
)
@click.option(
    "--lookups",
    type=click.IntRange(0),
    default=2000,
    show_default=True,
    help="Random lookups at the end.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs: an object a seed.")
def simulate_cores(
    peers: int,
    seed: int,
    seeds: int,
    churn: int | None,
    loss: float,
    duplicates: float,
    lookups: int,
    as_json: bool,
) -> None:
    """Grow a ring of thousands in one process, and check that it is right.

    Peers join through random members in every order that the seed gives; in a small ring they then
    leave and crash. The ring must keep its invariants, come to rest, and find every owner.

    Example:
      meteor simulate-cores --peers 5000 --seed 7
      meteor simulate-cores --peers 16 --seeds 2000
    """
    from meteor.simulation import growth
    from meteor.simulation.cores import Broken

    events = churn if churn is not None else CHURN_EVENTS if peers <= SMALL else 0
    reports: list[CoresReport] = []
    failed = 0
    with _progress(*((seeds, "seeds") if seeds > 1 else (peers, "peers"))) as told:
        for one in range(seed, seed + seeds):
            try:
                report = growth.simulate_cores(
                    peers,
                    one,
                    events=events,
                    loss=loss,
                    duplicates=duplicates,
                    lookups=lookups,
                    progress=told if seeds == 1 else lambda _: None,
                )
            except Broken as broken:
                failed += 1
                options = f"--churn {events} --loss {loss} --duplicates {duplicates}"
                again = f"--peers {peers} --seed {one} {options} --lookups {lookups}"
                click.echo(f"seed {one}: {broken}\n  meteor simulate-cores {again}", err=True)
                continue
            reports.append(report)
            if as_json:
                print_json(report.as_dict())
            if seeds > 1:
                told(len(reports) + failed)
    if reports and not as_json:
        _show(reports)
    if seeds > 1 and not as_json:
        click.echo(f"{len(reports):,} of {count(seeds, 'seed')} passed")
    if failed:
        click.get_current_context().exit(FAILED)


def _show(reports: list[CoresReport]) -> None:
    """Print what happened; of several seeds, their sums."""
    first = reports[0]
    lookups = sum(report.lookups for report in reports)
    mean = sum(report.hops_mean * report.lookups for report in reports) / max(1, lookups)
    rows: list[tuple[str, str]] = [
        ("peers", f"{sum(report.peers for report in reports):,}"),
        ("joins", f"{sum(report.joins for report in reports):,}"),
        ("crashed or left", f"{sum(report.left for report in reports):,}"),
        ("stabilising rounds", f"{sum(report.rounds for report in reports):,}"),
        ("messages", f"{sum(report.messages for report in reports):,}"),
        ("lookups", f"{lookups:,}"),
        ("hops, mean", f"{mean:.2f}"),
        ("hops, most", f"{max(report.hops_max for report in reports)}"),
        ("half of log2 N", f"{sum(report.half_log2 for report in reports) / len(reports):.2f}"),
        ("checks evaluated", f"{sum(report.checks for report in reports):,}, no violation"),
    ]
    grid = table("seed", str(first.seed), right=(str(first.seed),))
    if len(reports) > 1:
        span = f"{first.seed} .. {reports[-1].seed}"
        grid = table("seeds", span, right=(span,))
    for name, value in rows:
        grid.add_row(name, value)
    console().print(grid)


@contextmanager
def _progress(total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Give what shows how far things are: a bar on a terminal, some lines elsewhere."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(unit, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    shown = 0

    def line(done: int) -> None:
        nonlocal shown
        if done * LINES // total > shown:
            shown = done * LINES // total
            click.echo(f"{done:,} of {total:,} {unit}", err=True)

    yield line
