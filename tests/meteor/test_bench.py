"""Benchmark reports: what they say of measurements, to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from meteor.bench.report import Plot, Report, Spread, cell_text, draw, interleaved
from meteor.cli.main import cli
from meteor.errors import InputError


def test_a_spread_is_the_median_the_least_and_the_most() -> None:
    assert Spread.of([3, 1, 2]) == Spread(2, 1, 3)
    assert Spread.of_ratios([10, 30], [5, 10]) == Spread(2.5, 2, 3)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "-"),
        ("mosquitto", "mosquitto"),
        (1234567, "1,234,567"),
        (1234.5, "1,234"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (0.01234, "0.012"),
        (0.0, "0"),
        (Spread(2.5, 2, 30), "2.50  (2 .. 30)"),
    ],
)
def test_cells_show_the_digits_that_count(cell: str | float | Spread | None, text: str) -> None:
    assert cell_text(cell) == text


def test_things_are_measured_in_turns_and_nobody_is_always_the_first() -> None:
    order: list[str] = []

    def work(name: str) -> float:
        order.append(name)
        return len(order)

    measured = interleaved([lambda: work("a"), lambda: work("b")], 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert measured == [[1, 4, 5], [2, 3, 6]]


def test_the_curve_is_reported_to_programs_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "curve.svg"
    result = CliRunner().invoke(
        cli, ["bench", "curve", "--seconds", "0.01", "--json", "--plot", str(picture)]
    )
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["benchmark"] == "curve"
    assert report["machine"]["cores"].isdigit()
    (section,) = report["sections"]
    assert [row["case"] for row in section["rows"]][:1] == ["encode one point"]
    assert all(row["times faster"]["least"] > 0 for row in section["rows"])
    assert "<svg" in picture.read_text(encoding="utf-8")


def test_a_plot_that_can_not_be_written_is_said_in_words(tmp_path: Path) -> None:
    plot = Plot("t", "x", "y", series={"s": [(1, 2), (0, 1)]}, levels={"goal": 3.0})
    with pytest.raises(InputError, match="can't write the plot to"):
        draw([plot], tmp_path / "no" / "such.svg")
    with pytest.raises(InputError, match="nothing to plot"):
        draw(Report("none").plots, tmp_path / "out.svg")
