"""The grid tells apart what the ring does not, and puts nothing apart that shares a value."""

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from squid import Anything, Interval, Keyword, Prefix, Region, RegionError, Space, number
from squid.codecs import KeywordCodec
from squid.grid import Grid
from squid.patterns import Absent, Bare, overlaps, within
from tests.squid import test_codecs as plain
from tests.squid import test_quantile as learnt

text_codecs = st.one_of(plain.bits.map(KeywordCodec), learnt.keyword_codecs)
number_codecs = st.one_of(plain.number_codecs, learnt.number_codecs)
dimensions = st.integers(1, 8)

LAB = Space.from_toml(
    """
    name = "lab"
    version = 1
    [[dimension]]
    name = "type"
    codec = "keyword"
    [[dimension]]
    name = "location"
    codec = "keyword"
    [[dimension]]
    name = "degree"
    codec = "number"
    min = -40
    max = 150
    """
)


def assert_meet(grid, some, others):
    (low, high), (other_low, other_high) = grid.interval(0, some), grid.interval(0, others)
    assert 0 <= low <= high < 1 << grid.bits
    assert max(low, other_low) <= min(high, other_high)


@given(text_codecs, dimensions, plain.all_patterns, plain.all_patterns)
@example(KeywordCodec(21), 3, number(10**20), number(1e20))
@example(KeywordCodec(21), 3, Prefix("1e"), number(1e20))
@settings(max_examples=1500, deadline=None)
def test_patterns_that_share_a_value_share_a_cell_on_an_axis_of_texts(codec, count, one, other):
    if overlaps(one, other):
        assert_meet(Grid([codec] * count), [one], [other])


@given(number_codecs, dimensions, plain.number_patterns, plain.number_patterns)
@settings(max_examples=1500, deadline=None)
def test_patterns_that_share_a_value_share_a_cell_on_an_axis_of_numbers(codec, count, one, other):
    if overlaps(one, other):
        assert_meet(Grid([codec] * count), [one], [other])


@given(text_codecs, plain.all_patterns, st.lists(plain.all_patterns, min_size=1, max_size=4))
@settings(max_examples=500, deadline=None)
def test_a_value_lies_where_all_patterns_that_it_is_within_are_asked_for(codec, value, patterns):
    around = [pattern for pattern in patterns if within(value, pattern)]
    if around:
        assert_meet(Grid([codec] * 3), [value], around)


@given(text_codecs, st.lists(plain.all_patterns, min_size=1, max_size=4))
@settings(max_examples=500, deadline=None)
def test_patterns_without_a_common_value_are_all_covered(codec, patterns):
    grid = Grid([codec] * 3)
    patterns = [pattern for pattern in patterns if overlaps(pattern, pattern)]
    assume(all(not overlaps(one, other) for one in patterns for other in patterns if one != other))
    for pattern in patterns:
        assert_meet(grid, patterns, [pattern])


def test_words_that_begin_alike_are_told_apart():
    rooms = [Keyword(f"building.floor.room{i}") for i in range(125)]
    ring = {LAB.region([{"location": [room]}]).boxes for room in rooms}
    grid = {LAB.region([{"location": [room]}]).fine_boxes for room in rooms}
    assert len(ring) == 1
    assert len(grid) > 110
    (everything,) = LAB.region([{"location": [Prefix("build")]}]).fine_boxes
    for ((_, (low, high), _),) in grid:
        assert everything[1][0] <= low == high <= everything[1][1]


def test_numbers_are_told_apart_that_share_a_cell_of_the_ring():
    degrees = [20 + i / 1e6 for i in range(100)]
    ring = {LAB.region([{"degree": [number(degree)]}]).boxes for degree in degrees}
    grid = {LAB.region([{"degree": [number(degree)]}]).fine_boxes for degree in degrees}
    assert (len(ring), len(grid)) == (2, 100)


@pytest.mark.parametrize("count", range(1, 9))
def test_a_grid_is_never_coarser_than_the_ring(count):
    codecs = "".join(f'[[dimension]]\nname = "d{i}"\ncodec = "keyword"\n' for i in range(count))
    space = Space.from_toml(f'name = "many"\nversion = 1\n{codecs}')
    for length in range(1, 7):
        prefix = Prefix("abcdef"[:length])
        low, high = space.dimensions[0].codec.interval(prefix)
        fine_low, fine_high = space.grid.interval(0, [prefix])
        share = (fine_high - fine_low + 1) / (1 << space.grid.bits)
        assert share <= (high - low + 1) / (1 << space.bits) * 1.001


def test_what_is_not_asked_for_is_the_whole_axis_and_what_is_not_there_one_cell_of_the_ring():
    grid = LAB.grid
    whole = (1 << grid.bits) - 1
    assert [grid.interval(axis, []) for axis in range(3)] == [(0, whole)] * 3
    assert [grid.interval(axis, [Anything()]) for axis in (1, 2)] == [(1024, whole), (1, whole)]
    assert [grid.interval(axis, [Absent()]) for axis in (1, 2)] == [(0, 1023), (0, 0)]
    assert [grid.interval(axis, [Bare()]) for axis in (1, 2)] == [(1024, 2047), (1, 1)]


def test_every_alternative_has_a_fine_box_as_long_as_the_ring_has_one():
    rooms = [{"location": [Keyword(f"room{i}")]} for i in range(20)]
    region = LAB.region([*rooms, rooms[0], {"degree": [Interval(5, 4)]}])
    assert len(region.boxes) == 1
    assert len(region.fine_boxes) == 20
    assert LAB.region([{"degree": [Interval(5, 4)]}]).fine_boxes == ()
    assert LAB.point_region({"degree": [Interval(5, 4)]}).fine_boxes == ()
    with pytest.raises(RegionError, match="not made of patterns"):
        _ = Region(LAB.curve, region.boxes).fine_boxes
