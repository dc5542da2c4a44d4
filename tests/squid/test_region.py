"""Regions against brute force on small grids."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squid import Curve, Region, RegionError
from squid.limits import BOXES_MAX

GRIDS = [(1, 6), (2, 3), (3, 1), (3, 3), (4, 2), (5, 1), (5, 2), (6, 1), (7, 1), (8, 1)]


def boxes_in(dimensions, bits):
    cell = st.integers(0, (1 << bits) - 1)
    side = st.tuples(cell, cell).map(lambda pair: tuple(sorted(pair)))
    return st.tuples(*[side] * dimensions)


@st.composite
def grids(draw, count=1):
    dimensions, bits = draw(st.sampled_from(GRIDS))
    shift = draw(st.sampled_from([0, 1, 4]))
    lists = st.lists(boxes_in(dimensions, bits), max_size=4)
    return Curve(dimensions, bits), shift, [draw(lists) for _ in range(count)]


def members(curve, boxes, shift):
    """Every identifier of the boxes, in order, the long way."""
    cells = {
        cell
        for box in boxes
        for cell in itertools.product(*[range(low, high + 1) for low, high in box])
    }
    return sorted(curve.encode(cell) << shift for cell in cells)


@given(grids(), st.data())
@settings(max_examples=400, deadline=None)
def test_next_and_meets_are_what_a_list_of_all_members_says(grid, data):
    curve, shift, (boxes,) = grid
    region = Region(curve, boxes, shift)
    every = members(curve, boxes, shift)
    end = 1 << curve.dimensions * curve.bits + shift
    assert region.lowest == (every[0] if every else None)
    for _ in range(5):
        low = data.draw(st.integers(-3, end + 3))
        high = low + data.draw(st.integers(-2, end // 8))
        assert region.next(low) == next((one for one in every if one >= low), None)
        assert region.meets(low, high) == any(low <= one <= high for one in every)
        assert (low in region) == (low in every)


@pytest.mark.parametrize(("dimensions", "bits"), GRIDS)
def test_stepping_through_a_region_lists_exactly_its_members(dimensions, bits):
    curve = Curve(dimensions, bits)
    last = (1 << bits) - 1
    boxes = [((0, last // 2),) * dimensions, ((last, last),) * (dimensions - 1) + ((0, last),)]
    region = Region(curve, boxes, shift=2)
    found, place = [], region.next(0)
    while place is not None:
        found.append(place)
        place = region.next(place + 1)
    assert found == members(curve, boxes, 2)


@given(grids(count=2))
@settings(max_examples=200, deadline=None)
def test_the_intersection_has_what_both_have(grid):
    curve, shift, (some, others) = grid
    both = Region(curve, some, shift).intersect(Region(curve, others, shift))
    expected = set(members(curve, some, shift)) & set(members(curve, others, shift))
    assert members(curve, both.boxes, shift) == sorted(expected)
    assert both.lowest == min(expected, default=None)
    assert both.is_point == (len(expected) == 1)


@given(grids())
@settings(max_examples=200, deadline=None)
def test_joining_boxes_keeps_the_cells_and_leaves_no_box_in_another(grid):
    curve, shift, (boxes,) = grid
    region = Region(curve, boxes, shift)
    assert members(curve, region.boxes, shift) == members(curve, boxes, shift)
    for one, other in itertools.permutations(region.boxes, 2):
        assert not all(c <= a and b <= d for (a, b), (c, d) in zip(one, other, strict=True))
    again = Region(curve, list(reversed(boxes)), shift)
    assert members(curve, again.boxes, shift) == members(curve, boxes, shift)


@pytest.mark.parametrize(
    ("dimensions", "bits"), [(1, 63), (2, 31), (3, 21), (4, 15), (5, 12), (6, 10), (7, 9), (8, 7)]
)
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_on_full_size_curves_next_is_a_member_and_nothing_lies_before_it(dimensions, bits, data):
    curve = Curve(dimensions, bits)
    shift = 63 - dimensions * bits
    region = Region(curve, [data.draw(boxes_in(dimensions, bits))], shift)
    start = data.draw(st.integers(0, 2**63 - 1))
    found = region.next(start)
    if found is None:
        assert not region.meets(start, 2**63 - 1)
        assert region.lowest < start
        return
    assert found >= start
    assert found in region
    assert region.next(found) == found
    assert region.meets(start, found)
    assert not region.meets(start, found - 1)
    member = tuple(data.draw(st.integers(low, high)) for low, high in region.boxes[0])
    identifier = curve.encode(member) << shift
    assert not start <= identifier < found


def test_neighbouring_boxes_become_one():
    curve = Curve(2, 4)
    left, right = ((0, 3), (2, 5)), ((4, 9), (2, 5))
    assert Region(curve, [left, right, left]).boxes == (((0, 9), (2, 5)),)


def test_an_empty_region_is_legal():
    nothing = Region(Curve(2, 4), [])
    assert not nothing
    assert nothing.next(0) is None
    assert nothing.lowest is None
    assert not nothing.meets(0, 255)
    assert 0 not in nothing
    assert not nothing.is_point


def test_regions_are_equal_by_what_they_hold():
    one = Region(Curve(1, 4), [((1, 2),), ((5, 6),)])
    same = Region(Curve(1, 4), [((5, 6),), ((1, 2),)])
    assert one == same
    assert hash(one) == hash(same)
    assert one != Region(Curve(1, 4), [((1, 2),)])
    assert one != Region(Curve(1, 4), one.boxes, shift=1)


def test_boxes_that_do_not_fit_are_refused_in_words():
    curve = Curve(2, 4)
    with pytest.raises(RegionError, match="2 intervals, not 1"):
        Region(curve, [((0, 1),)])
    with pytest.raises(RegionError, match=r"not 3\.\.2"):
        Region(curve, [((0, 1), (3, 2))])
    with pytest.raises(RegionError, match="0 to 15"):
        Region(curve, [((0, 1), (3, 16))])
    with pytest.raises(RegionError, match="no common regions"):
        Region(curve, []).intersect(Region(Curve(2, 5), []))


def test_the_number_of_boxes_is_bounded():
    curve = Curve(2, 8)
    apart = [((i * 2, i * 2), (0, 0)) for i in range(BOXES_MAX + 1)]
    assert len(Region(curve, apart[:-1]).boxes) == BOXES_MAX
    with pytest.raises(RegionError, match=f"up to {BOXES_MAX} boxes, not {BOXES_MAX + 1}"):
        Region(curve, apart)


def test_two_legal_regions_always_intersect():
    curve = Curve(2, 8)
    rows = Region(curve, [((i * 2, i * 2), (0, 255)) for i in range(BOXES_MAX)])
    columns = Region(curve, [((0, 255), (i * 2, i * 2)) for i in range(BOXES_MAX)])
    both = rows.intersect(columns)
    assert len(both.boxes) == BOXES_MAX**2
    assert both.lowest == 0
