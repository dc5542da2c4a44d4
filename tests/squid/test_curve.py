"""The curve: the package's own, a bijection without jumps, the same for points and arrays."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hilbertcurve.hilbertcurve import HilbertCurve
from hypothesis import given, settings
from hypothesis import strategies as st

from squid import Curve, CurveError

SIZES = [(d, b) for d in range(1, 9) for b in (1, 2, 3, 4, 7, 12, 15, 21, 31, 63) if d * b <= 63]


@st.composite
def curves_and_points(draw):
    dimensions, bits = draw(st.sampled_from(SIZES))
    coordinate = st.integers(0, (1 << bits) - 1)
    point = draw(st.tuples(*[coordinate] * dimensions))
    return dimensions, bits, point


@given(curves_and_points())
@settings(max_examples=600, deadline=None)
def test_the_curve_is_that_of_the_package(case):
    dimensions, bits, point = case
    expected = HilbertCurve(bits, dimensions).distance_from_point(point)
    curve = Curve(dimensions, bits)
    assert curve.encode(point) == expected
    assert curve.decode(expected) == point


@pytest.mark.parametrize(("dimensions", "bits"), SIZES)
def test_arrays_give_what_single_points_give(dimensions, bits):
    curve = Curve(dimensions, bits)
    random = np.random.default_rng(dimensions * 64 + bits)
    points = random.integers(0, (1 << bits) - 1, (300, dimensions), endpoint=True)
    points[0], points[1] = 0, (1 << bits) - 1
    identifiers = curve.encode_many(points)
    assert identifiers.dtype == np.int64
    assert identifiers.tolist() == [curve.encode(point) for point in points.tolist()]
    assert curve.decode_many(identifiers).tolist() == points.tolist()
    assert [list(curve.decode(place)) for place in identifiers.tolist()] == points.tolist()


def test_arrays_of_several_blocks():
    curve = Curve(2, 10)
    identifiers = np.arange(250_000) % (1 << 20)
    assert (curve.encode_many(curve.decode_many(identifiers)) == identifiers).all()


@pytest.mark.parametrize(
    ("dimensions", "bits"),
    [(1, 8), (2, 1), (2, 5), (3, 1), (3, 4), (4, 3), (5, 2), (6, 2), (7, 1), (7, 2), (8, 1)],
)
def test_the_curve_visits_every_cell_and_moves_one_step_at_a_time(dimensions, bits):
    curve = Curve(dimensions, bits)
    points = [curve.decode(place) for place in range(1 << dimensions * bits)]
    assert len(set(points)) == len(points)
    assert [curve.encode(point) for point in points] == list(range(len(points)))
    for before, after in itertools.pairwise(points):
        assert sum(abs(a - b) for a, b in zip(before, after, strict=True)) == 1


@given(st.integers(0, 2**56 - 2))
@settings(max_examples=200, deadline=None)
def test_neighbours_in_eight_dimensions_differ_by_one(place):
    curve = Curve(8, 7)
    pair = curve.decode(place), curve.decode(place + 1)
    assert sum(abs(a - b) for a, b in zip(*pair, strict=True)) == 1


def test_numpy_integers_are_integers():
    curve = Curve(3, 21)
    point = np.array([5, 6, 7])
    assert curve.encode(point) == curve.encode((5, 6, 7))
    assert curve.decode(np.int64(12345)) == curve.decode(12345)


@pytest.mark.parametrize(("dimensions", "bits"), [(0, 3), (9, 3), (3, 0), (3, 22), (2, -1)])
def test_sizes_that_do_not_fit(dimensions, bits):
    with pytest.raises(CurveError, match="a curve"):
        Curve(dimensions, bits)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 6])
@pytest.mark.parametrize("warm", [False, True])
def test_wrong_points_and_identifiers_are_refused_in_words(dimensions, warm):
    curve = Curve(dimensions, 5)
    if warm:
        curve.decode(curve.encode((1,) * dimensions))
    with pytest.raises(CurveError, match=f"has {dimensions} coordinates"):
        curve.encode((1,) * (dimensions + 1))
    for wrong in (-1, -32, 32, 1 << 70):
        with pytest.raises(CurveError, match="a coordinate is 0 to 31 here, not"):
            curve.encode((0,) * (dimensions - 1) + (wrong,))
    with pytest.raises(CurveError, match="integers"):
        curve.encode((0.5,) * dimensions)
    for wrong in (-1, 1 << 5 * dimensions):
        with pytest.raises(CurveError, match="an identifier on this curve is 0 to"):
            curve.decode(wrong)
    with pytest.raises(CurveError, match="an identifier is an integer"):
        curve.decode(1.0)


def test_wrong_arrays_are_refused_in_words():
    curve = Curve(3, 5)
    with pytest.raises(CurveError, match=r"shape \(n, 3\), not \(4, 2\)"):
        curve.encode_many(np.zeros((4, 2), np.int64))
    with pytest.raises(CurveError, match="0 to 31 here, not 32"):
        curve.encode_many(np.full((4, 3), 32))
    with pytest.raises(CurveError, match="not -1"):
        curve.encode_many(np.full((4, 3), -1))
    with pytest.raises(CurveError, match="float64"):
        curve.encode_many(np.zeros((4, 3)))
    with pytest.raises(CurveError, match=r"shape \(n,\)"):
        curve.decode_many(np.zeros((4, 3), np.int64))
    with pytest.raises(CurveError, match="0 to 32767 here, not 32768"):
        curve.decode_many(np.array([32768]))
    assert curve.encode_many(np.zeros((0, 3), np.int64)).shape == (0,)
    assert curve.decode_many(np.zeros(0, np.int64)).shape == (0, 3)


def test_importing_squid_leaves_numpy_alone():
    code = "import sys, squid; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
