"""Measures squid's curve against the `hilbertcurve` package on the same points."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hilbertcurve.hilbertcurve import HilbertCurve

from meteor.bench.report import Plot, Report, Spread, interleaved
from squid.curve import Curve

DIMENSIONS = 3
BITS = 21
POINTS = 1_000
"""Points for the package and for one at a time: a round takes some 10 ms."""
ARRAY_POINTS = 200_000
"""Points for arrays: two blocks, so that the cost of going from block to block is in."""


def run(seconds_per_case: float = 0.5, seed: int = 7, repeats: int = 5) -> Report:
    """Measure all cases, each for about so many seconds."""
    curve = Curve(DIMENSIONS, BITS)
    package = HilbertCurve(BITS, DIMENSIONS)
    array = np.random.default_rng(seed).integers(0, 1 << BITS, (ARRAY_POINTS, DIMENSIONS))
    identifiers = curve.encode_many(array)
    points: list[tuple[int, ...]] = [tuple(point) for point in array[:POINTS].tolist()]
    places: list[int] = identifiers[:POINTS].tolist()

    def one_by_one(function: Callable[[Any], object], values: Sequence[Any]) -> Callable[[], None]:
        def work() -> None:
            call = function
            for value in values:
                call(value)

        return work

    def at_once(function: Callable[[Any], object], values: Any) -> Callable[[], None]:
        def work() -> None:
            function(values)

        return work

    package_encode = one_by_one(package.distance_from_point, points)
    package_decode = one_by_one(package.point_from_distance, places)
    encode, decode = one_by_one(curve.encode, points), one_by_one(curve.decode, places)
    encode_array = at_once(curve.encode_many, array)
    decode_array = at_once(curve.decode_many, identifiers)
    cases = [
        ("encode one point", package_encode, encode, POINTS),
        ("decode one identifier", package_decode, decode, POINTS),
        ("encode an array", package_encode, encode_array, ARRAY_POINTS),
        ("decode an array", package_decode, decode_array, ARRAY_POINTS),
    ]
    # Half of a repeat's time for either side.
    share = seconds_per_case / repeats / 2
    report = Report("curve", {"seed": seed, "dimensions": DIMENSIONS, "bits": BITS})
    section = report.section(
        "Nanoseconds a point, and how many times faster Meteor's curve is",
        "case",
        "hilbertcurve ns",
        "meteor ns",
        "times faster",
    )
    plot = Plot("Meteor's curve and the hilbertcurve package", "", "times faster", y_log=True)
    report.plots.append(plot)
    for case, theirs, ours, count in cases:
        ours()  # builds the tables
        package_ns, squid_ns = interleaved(
            (_measure(theirs, POINTS, share), _measure(ours, count, share)), repeats
        )
        faster = Spread.of_ratios(package_ns, squid_ns)
        section.add(case, Spread.of(package_ns).median, Spread.of(squid_ns).median, faster)
        plot.bars[case] = faster.median
    return report


def _measure(work: Callable[[], None], points: int, seconds: float) -> Callable[[], float]:
    return lambda: _ns_per_point(work, points, seconds)


def _ns_per_point(work: Callable[[], None], points: int, seconds: float) -> float:
    """Return the mean cost of a point over as many rounds as fit, one at least."""
    rounds, begin = 0, time.perf_counter()
    while True:
        work()
        rounds += 1
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            return elapsed / rounds / points * 1e9
