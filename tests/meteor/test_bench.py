"""Benchmark reports: what they say of measurements, to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from arms.profile import Profile
from meteor.bench import own_ring, store
from meteor.bench.flow import MATCHED, Flow
from meteor.bench.match_workload import workload
from meteor.bench.others import absent
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
        (Spread(434, 434, 434), "434"),
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


def test_bars_keep_their_names(tmp_path: Path) -> None:
    picture = tmp_path / "bars.svg"
    draw([Plot("t", "", "y", bars={"apples": 1234.0, "pears": 2.0})], picture)
    drawn = picture.read_text(encoding="utf-8")
    assert "<!-- apples -->" in drawn
    assert "<!-- 1,234 -->" in drawn


def test_a_plot_that_can_not_be_written_is_said_in_words(tmp_path: Path) -> None:
    plot = Plot("t", "x", "y", series={"s": [(1, 2), (0, 1)]}, levels={"goal": 3.0})
    with pytest.raises(InputError, match="can't write the plot to"):
        draw([plot], tmp_path / "no" / "such.svg")
    with pytest.raises(InputError, match="nothing to plot"):
        draw(Report("none").plots, tmp_path / "out.svg")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no/such.svg", "there is no folder"),
        ("out.doc", "has to end in .svg, .png, .pdf"),
        ("out", "has to end in .svg, .png, .pdf"),
        ("none.svg", "plots need matplotlib"),
    ],
)
def test_a_plot_that_can_not_be_drawn_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.setattr("meteor.bench.curve.run", lambda *_: pytest.fail("it was measured"))
    if name == "none.svg":
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    result = CliRunner().invoke(cli, ["bench", "curve", "--plot", str(tmp_path / name)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr


def test_what_has_no_plot_is_not_measured_for_one(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["bench", "start", "--plot", str(tmp_path / "out.svg")])
    assert result.exit_code == 2
    assert "nothing to plot" in result.stderr


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_figures_are_printed_even_if_the_plot_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    report = Report("curve", {"points": 1234}, plots=[Plot("t", "x", "y")])
    monkeypatch.setattr("meteor.bench.curve.run", lambda *_: report)
    name = "x" * 300 + ".svg"  # longer than any file system takes
    command = ["bench", "curve", "--plot", str(tmp_path / name), *options]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 1
    assert "1234" in result.stdout
    assert "can't write the plot to" in result.stderr


def test_matching_is_reported_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meteor.bench.match.CHANGES", 300)
    monkeypatch.setattr("meteor.bench.match.REPEATS", 2)
    command = ["bench", "match", "--sizes", "200", "--dimensions", "3,6", "--seconds", "0.01"]
    result = CliRunner().invoke(cli, [*command, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    forward, backward, changes, opening, peer = report["sections"]
    for section in (forward, backward):
        assert [row["case"].split(",")[1] for row in section["rows"]] == [
            " 3d",
            " 3d",
            " 6d",
            " 6d",
        ]
        assert all(row["x scan"]["least"] > 0 for row in section["rows"])
        assert [row["R*Tree"] is None for row in section["rows"]] == [False, False, True, True]
    assert all(row["x one"]["least"] > 0 for row in forward["rows"])
    assert all(row["longest step ms"]["most"] > 0 for row in changes["rows"])
    assert len(opening["rows"]) == len(peer["rows"]) == 2


@pytest.mark.parametrize("sizes", ["", "many", "0", "1e3,-5"])
def test_sizes_that_are_none_are_refused_in_words(sizes: str) -> None:
    result = CliRunner().invoke(cli, ["bench", "match", "--sizes", sizes])
    assert result.exit_code == 2
    assert "numbers above 0" in result.output


def test_interests_of_the_workload_are_met_as_often_as_they_should() -> None:
    load = workload(2_000, 500, 3, 0.01, seed=7)
    inside = (load.lows[:, None] <= load.points) & (load.points <= load.highs[:, None])
    assert 0.007 < inside.all(axis=2).mean() < 0.013
    selected = [
        [Profile.parse(interest).selects(Profile.parse(data)) for data in load.data[:50]]
        for interest in load.interests[:200]
    ]
    boxes = inside.all(axis=2)[:200, :50]
    assert (boxes >= selected).all()  # the boxes may meet a little more
    assert boxes.sum() - sum(map(sum, selected)) <= 0.1 * boxes.sum() + 2


def test_a_store_is_measured_beside_bare_sqlite() -> None:
    report = store.run(messages=1_000, repeats=1, groups=(10, 100))
    full, normal = report.sections
    assert "full" in full.title
    assert "normal" in normal.title
    for section in report.sections:
        assert [row[0] for row in section.rows] == [10, 100]
        assert all(
            isinstance(cell, Spread) and cell.least > 0 for row in section.rows for cell in row[1:]
        )


def test_many_watches_match_ten_times_each() -> None:
    for watches in (10, 100, 1_000, 10_000):
        flow = Flow(50, watches=watches)
        wanted = [Profile.parse(text) for text in own_ring.interests(flow)]
        assert len(wanted) <= watches
        if watches == 10_000:
            assert len(wanted) == 10_000
            for name, place, degree in flow.readings():
                data = Profile.parse(f"type={name}, location=room{place}, degree={degree}")
                assert sum(interest.selects(data) for interest in wanted) == MATCHED


def test_what_is_not_installed_is_said() -> None:
    assert "no-such-program is not installed" in absent("no-such-program", "os", "os")
    assert "Python package none is not installed" in absent("", "no_such_module", "none")
    assert absent("", "os", "os") == ""
