"""Measures squid's curve against the `hilbertcurve` package on the same points.

The two take turns within each repeat, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from hilbertcurve.hilbertcurve import HilbertCurve

from squid.curve import Curve

DIMENSIONS = 3
BITS = 21
POINTS = 1_000
"""Points for the package and for one at a time: a round takes some 10 ms."""
ARRAY_POINTS = 200_000
"""Points for arrays: two blocks, so that the cost of going from block to block is in."""


@dataclass(frozen=True, slots=True)
class CurveRow:
    """One case: nanoseconds a point (medians), and how many times faster squid is."""

    case: str
    package_ns: float
    squid_ns: float
    ratio: float
    ratio_min: float
    ratio_max: float


@dataclass(frozen=True, slots=True)
class CurveReport:
    """All cases of one run."""

    dimensions: int
    bits: int
    rows: tuple[CurveRow, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the report as plain values, for JSON."""
        return asdict(self)


def run(seconds_per_case: float = 0.5, seed: int = 7, repeats: int = 5) -> CurveReport:
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
    rows = []
    for case, theirs, ours, count in cases:
        ours()  # builds the tables
        pairs = [
            (_ns_per_point(theirs, POINTS, share), _ns_per_point(ours, count, share))
            for _ in range(repeats)
        ]
        ratios = [package_ns / squid_ns for package_ns, squid_ns in pairs]
        rows.append(
            CurveRow(
                case,
                statistics.median(package_ns for package_ns, _ in pairs),
                statistics.median(squid_ns for _, squid_ns in pairs),
                statistics.median(ratios),
                min(ratios),
                max(ratios),
            )
        )
    return CurveReport(DIMENSIONS, BITS, tuple(rows))


def _ns_per_point(work: Callable[[], None], points: int, seconds: float) -> float:
    """Return the mean cost of a point over as many rounds as fit, one at least."""
    rounds, begin = 0, time.perf_counter()
    while True:
        work()
        rounds += 1
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            return elapsed / rounds / points * 1e9
