"""What a benchmark reports: tables of measurements with their spread, the machine, and plots."""

from __future__ import annotations

import importlib.util
import os
import platform
import sqlite3
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meteor.errors import InputError
from meteor.version import VERSION


@dataclass(frozen=True, slots=True)
class Spread:
    """One thing measured several times."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of some measurements."""
        measured = sorted(values)
        return cls(statistics.median(measured), measured[0], measured[-1])

    @classmethod
    def of_ratios(cls, ours: Sequence[float], theirs: Sequence[float]) -> Spread:
        """Return the spread of ours/theirs, pair by pair: the pairs were measured side by side."""
        return cls.of(a / b for a, b in zip(ours, theirs, strict=True))


Cell = str | int | float | Spread | None
"""None: not measured, or it does not apply."""


@dataclass(slots=True)
class Section:
    """One table; column names say the unit."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        """Add a row."""
        assert len(cells) == len(self.columns), f"{len(cells)} cells, {len(self.columns)} columns"
        self.rows.append(cells)


@dataclass(slots=True)
class Plot:
    """One picture: lines through measured points, or bars, and levels to compare them with."""

    title: str
    x_label: str
    y_label: str
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    bars: dict[str, float] = field(default_factory=dict)
    levels: dict[str, float] = field(default_factory=dict)
    x_log: bool = False
    y_log: bool = False


@dataclass(slots=True)
class Report:
    """All that one run of a benchmark found."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    sections: list[Section] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What a reader must know besides: what was skipped and why, what missed its goal."""
    plots: list[Plot] = field(default_factory=list)
    machine: Mapping[str, str] = field(default_factory=lambda: machine())

    def section(self, title: str, *columns: str) -> Section:
        """Begin a table."""
        self.sections.append(Section(title, columns))
        return self.sections[-1]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON: each row is a map by column."""
        return {
            "benchmark": self.name,
            "machine": dict(self.machine),
            "settings": dict(self.settings),
            "sections": [
                {
                    "title": section.title,
                    "rows": [
                        dict(zip(section.columns, map(_plain, row), strict=True))
                        for row in section.rows
                    ],
                }
                for section in self.sections
            ],
            "notes": list(self.notes),
        }


def _plain(cell: Cell) -> Any:
    if isinstance(cell, Spread):
        return {"median": cell.median, "least": cell.least, "most": cell.most}
    return cell


def cell_text(cell: Cell) -> str:
    """Return a cell for people: three digits that count, and the spread behind the median."""
    match cell:
        case None:
            return "-"
        case str():
            return cell
        case Spread(median, least, most):
            if least == most:
                return number_text(median)
            return f"{number_text(median)}  ({number_text(least)} .. {number_text(most)})"
        case _:
            return number_text(cell)


def number_text(value: float) -> str:
    """Return a number with three digits that count, and no exponent."""
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    digits = 2 if abs(value) < 10 else 1
    return f"{value:.{digits}f}" if abs(value) >= 0.1 else f"{value:.2g}"


def interleaved(works: Sequence[Callable[[], float]], repeats: int) -> list[list[float]]:
    """Measure several things in turns, so that whatever else the machine does falls on all.

    Each work returns its own measurement. Returns one list a work, in the order of the repeats.
    """
    measured: list[list[float]] = [[] for _ in works]
    for turn in range(repeats):
        for i in range(len(works)):
            at = (i + turn) % len(works)  # nobody is always the first
            measured[at].append(works[at]())
    return measured


def machine() -> dict[str, str]:
    """Say what this was measured on."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "meteor": VERSION,
    }


def _processor() -> str:
    return proc_field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def _memory() -> str:
    total = proc_field("/proc/meminfo", "MemTotal")
    return f"{int(total.split()[0]) / 2**20:.0f} GiB" if total else "unknown"


def proc_field(path: str, name: str) -> str:
    """Return a field of one of Linux's own reports; other systems have none."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "")


PLOT_ENDINGS = (".svg", ".png", ".pdf")


def check_plot(path: Path) -> None:
    """Say that a plot can't be drawn into a file before anything is measured for it."""
    if path.suffix.lower() not in PLOT_ENDINGS:
        raise InputError(f"{path} has to end in {', '.join(PLOT_ENDINGS)}: that is its format")
    if not path.parent.is_dir():
        raise InputError(f"can't write the plot to {path}: there is no folder {path.parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(NO_MATPLOTLIB)


NO_MATPLOTLIB = "plots need matplotlib: pip install 'meteor-rendezvous[bench]', or leave --plot out"


def draw(plots: Sequence[Plot], path: Path) -> None:
    """Draw plots side by side into one file that `check_plot` has nothing against."""
    if not plots:
        raise InputError("this benchmark has nothing to plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4 * len(plots), 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, plot in zip(figure.subplots(1, len(plots), squeeze=False)[0], plots, strict=True):
        for name, points in plot.series.items():
            axes.plot(*zip(*sorted(points), strict=True), marker="o", label=name)
        if plot.bars:
            bars = axes.bar(list(plot.bars), list(plot.bars.values()))
            axes.bar_label(bars, [number_text(value) for value in plot.bars.values()])
            axes.tick_params(axis="x", labelsize="small")
        for name, level in plot.levels.items():
            axes.axhline(level, linestyle="--", color="grey", linewidth=1)
            axes.annotate(name, (0.99, level), xycoords=("axes fraction", "data"), ha="right",
                          va="bottom", fontsize="small", color="grey")  # fmt: skip
        axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
        if plot.x_log:  # setting it to linear would take the names of bars away
            axes.set_xscale("log")
        if plot.y_log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if plot.series:
            axes.legend(fontsize="small")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"can't write the plot to {path}: {error}") from error
