"""Measurements: `meteor bench`."""

from __future__ import annotations

import click

from meteor.cli.display import console, print_json, table
from meteor.cli.group import Commands


@click.group(cls=Commands)
def bench() -> None:
    """Measure how fast things are on this machine.

    Example:
      meteor bench curve
    """


@bench.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=0.5,
    show_default=True,
    help="Time for each case.",
)
@click.option("--seed", type=int, default=7, show_default=True, help="Chooses the points.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def curve(seconds: float, seed: int, as_json: bool) -> None:
    """Compare the Hilbert curve with the hilbertcurve package.

    Both work on the same points and take turns, so that whatever else the machine does falls on
    both. The ratio says how many times faster Meteor's curve is: median, and least to most.

    Example:
      meteor bench curve --seconds 2
    """
    from meteor.bench.curve import run

    report = run(seconds, seed)
    if as_json:
        print_json(report.as_dict())
        return
    numbers = ("hilbertcurve ns", "meteor ns", "ratio", "least .. most")
    grid = table("case", *numbers, right=numbers)
    for row in report.rows:
        grid.add_row(
            row.case,
            f"{row.package_ns:,.0f}",
            f"{row.squid_ns:,.1f}",
            f"{row.ratio:,.0f}x",
            f"{row.ratio_min:,.0f} .. {row.ratio_max:,.0f}",
        )
    out = console()
    out.print(f"Nanoseconds a point, {report.dimensions} dimensions of {report.bits} bits:")
    out.print(grid)
