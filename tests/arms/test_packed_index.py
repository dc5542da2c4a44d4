"""The packed index answers like a look at every box, whatever was added, deleted and tidied."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from arms.matching import PackedIndex, packed, shelves
from squid.curve import Curve

BITS = 4
Box = tuple[tuple[int, int], ...]

SMALL = {
    shelves: {"BLOCK_BITS": 1, "BLOCK": 2, "SHELF_BITS": 1, "SHELF": 2, "SHELF_ROWS": 4},
    packed: {"BLOCK": 2, "SHELF": 2, "SHELF_ROWS": 4, "TAIL_ROWS": 3, "TAILS": 2, "FANOUT": 2},
}
"""Sizes that have a few boxes go through all levels."""


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, values in SMALL.items():
            for name, value in values.items():
                patch.setattr(module, name, value)
        patch.setattr(shelves, "BLOCKS_AT_ONCE", 3)
        patch.setattr(shelves, "MANY_MATCHES", 1)
        patch.setattr(packed, "MERGED_MAX", 2)
        patch.setattr(packed, "FEW", 3)
        patch.setattr(packed, "EVENTS_AT_ONCE", 8)
        yield


ends = st.one_of(
    st.tuples(st.integers(0, 2**BITS - 1), st.integers(0, 2**BITS - 1)).map(sorted).map(tuple),
    st.integers(0, 2**BITS - 1).map(lambda at: (at, at)),
    st.just((0, 2**BITS - 1)),
)


class Interleaved(RuleBasedStateMachine):
    """Adds, deletes and steps of tidying in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes: dict[int, list[Box]] = {}
        self.next = 0

    @initialize(dimensions=st.sampled_from([1, 2, 3]))
    def make(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.index = PackedIndex(dimensions, BITS)

    def draw(self, data: st.DataObject, most: int) -> list[Box]:
        box = st.tuples(*[ends] * self.dimensions)
        return data.draw(st.lists(box, min_size=1, max_size=most))

    @rule(data=st.data())
    def add_several(self, data: st.DataObject) -> None:
        boxes = self.draw(data, 12)
        codes = range(self.next, self.next + len(boxes))
        self.next += len(boxes)
        self.boxes |= {code: [box] for code, box in zip(codes, boxes, strict=True)}
        self.index.add(codes, boxes)

    @rule(data=st.data(), bulk=st.booleans())
    def add_one_with_several_boxes(self, data: st.DataObject, bulk: bool) -> None:
        boxes = list(set(self.draw(data, 3)))
        self.boxes[self.next] = boxes
        codes = [self.next] * len(boxes)
        if bulk:
            array = np.array(boxes)
            self.index.load(np.array(codes), array[:, :, 0], array[:, :, 1])
        else:
            self.index.add(codes, boxes)
        self.next += 1

    @rule(data=st.data(), times=st.integers(1, 5))
    def add_the_same_again(self, data: st.DataObject, times: int) -> None:
        (box,) = self.draw(data, 1)
        self.boxes |= {self.next + i: [box] for i in range(times)}
        self.index.add(range(self.next, self.next + times), [box] * times)
        self.next += times

    @rule(data=st.data(), many=st.booleans())
    def discard(self, data: st.DataObject, many: bool) -> None:
        if self.boxes:
            code = st.sampled_from(sorted(self.boxes))
            chosen = data.draw(st.lists(code, min_size=1, max_size=20 if many else 1, unique=True))
            rows = [(code, box) for code in chosen for box in self.boxes.pop(code)]
            codes, boxes = zip(*rows, strict=True)
            assert self.index.discard(codes, boxes) == len(boxes)
            assert self.index.discard(codes, boxes) == 0

    @rule(steps=st.integers(1, 3))
    def tidy(self, steps: int) -> None:
        for _ in range(steps):
            self.index.tidy()

    @rule()
    def tidy_all(self) -> None:
        for _ in range(1000):
            if not self.index.tidy():
                break
        else:
            pytest.fail("tidying comes to no end")
        for number, level in enumerate(self.index._levels[1:], start=1):
            assert len(level) <= packed.FANOUT**number

    @rule(data=st.data())
    def ask_for_a_box(self, data: st.DataObject) -> None:
        (box,) = self.draw(data, 1)
        low, high = zip(*box, strict=True)
        found = self.index.meeting(low, high)
        assert sorted(found.tolist()) == self.meeting(box)

    @rule(data=st.data())
    def ask_for_points(self, data: st.DataObject) -> None:
        point = st.tuples(*[st.integers(0, 2**BITS - 1)] * self.dimensions)
        points = data.draw(st.lists(point, max_size=8))
        cells = np.array(points, np.int64).reshape(-1, self.dimensions)
        found = self.index.meeting_each(cells, cells)
        for cells, codes in zip(points, found, strict=True):
            assert sorted(codes.tolist()) == self.meeting([(cell, cell) for cell in cells])

    def meeting(self, asked: Box | list[tuple[int, int]]) -> list[int]:
        """Return the codes of what meets a box, by looking at every box."""
        return sorted(
            code
            for code, boxes in self.boxes.items()
            for box in boxes
            if all(a <= d and c <= b for (a, b), (c, d) in zip(box, asked, strict=True))
        )

    @invariant()
    def counts(self) -> None:
        assert len(self.index) == sum(map(len, self.boxes.values()))

    @invariant()
    def levels_are_in_order(self) -> None:
        for level in self.index._levels[1:]:
            for one, other in pairwise(level):
                assert one.first <= one.last <= other.first <= other.last


Interleaved.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
test_any_interleaving_answers_like_a_look_at_every_box = Interleaved.TestCase


def test_boxes_of_one_message_that_share_a_key_are_counted_once_each() -> None:
    """The first of them goes to a sorted shelf with others, the second to the tail behind it."""
    wide, boxes = ((0, 15),), [((0, 12),), ((1, 11),)]
    index = PackedIndex(1, BITS)
    index.add([0, 1], [wide, wide])
    index.add([2, 2], boxes)
    assert index.discard([2, 2], boxes) == 2
    assert len(index) == 2
    assert index.discard([0], [wide]) == 1
    assert index.meeting([3], [3]).tolist() == [1], "its shelf was not taken for empty"


def test_boxes_that_share_no_block_are_tidied_to_an_end() -> None:
    wide, narrow = (0, 2**BITS - 1), (3, 4)
    boxes = list(product((wide, narrow), repeat=3))  # each is alone in its block
    index = PackedIndex(3, BITS)
    array = np.array(boxes)
    index.load(np.arange(len(boxes)), array[:, :, 0], array[:, :, 1])
    assert index.discard([3], [boxes[3]]) == 1
    for _ in range(100):
        if not index.tidy():
            break
    else:
        pytest.fail("tidying comes to no end")
    assert sorted(index.meeting([0] * 3, [15] * 3).tolist()) == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize(("dimensions", "bits"), [(1, 63), (2, 31), (3, 21), (5, 12), (8, 7)])
def test_all_sizes_of_space_fit(dimensions: int, bits: int) -> None:
    rng = np.random.default_rng(dimensions)
    top = (1 << bits) - 1
    one, other = rng.integers(0, top, (2, 200, dimensions), endpoint=True)
    lows, highs = np.minimum(one, other), np.maximum(one, other)
    lows[:3], highs[:3] = [[0], [top], [0]], [[0], [top], [top]]
    index = PackedIndex(dimensions, bits)
    index.load(np.arange(100), lows[:100], highs[:100])
    index.add(range(100, 200), np.stack((lows, highs), axis=2)[100:].tolist())
    points = np.concatenate((lows[:50], highs[:50]))
    each = index.meeting_each(points, points)
    for point, codes in zip(points, each, strict=True):
        wanted = np.flatnonzero(((lows <= point) & (point <= highs)).all(axis=1)).tolist()
        found = index.meeting(point.tolist(), point.tolist())
        assert sorted(found.tolist()) == wanted == sorted(codes.tolist())


def test_points_come_with_their_places_on_the_curve() -> None:
    curve = Curve(3, 21)
    points = np.random.default_rng(7).integers(0, 1 << 21, (500, 3))
    index = PackedIndex(3, 21, of_points=True)
    index.load(np.arange(400), points[:400], points[:400])
    index.add(range(400, 500), np.stack((points, points), axis=2)[400:].tolist())
    found = index.places([0] * 3, [(1 << 20) - 1] * 3, blocks_max=1000)
    assert found is not None
    places = dict(zip(*(array.tolist() for array in found), strict=True))
    assert places == {
        i: curve.encode(point) for i, point in enumerate(points.tolist()) if max(point) < 1 << 20
    }
    assert index.places([0] * 3, [(1 << 21) - 1] * 3, blocks_max=3) is None


@pytest.mark.parametrize("dimensions", [1, 3, 5, 8])
def test_boxes_that_differ_in_their_last_bits_only_are_in_order_too(dimensions: int) -> None:
    bits, size = 31, 6_400
    rng = np.random.default_rng(3)
    cells = np.full((size, dimensions), 1 << bits - 2)
    cells[:, -1] += rng.permutation(size)
    index = PackedIndex(dimensions, bits)
    index.load(np.arange(size), cells, cells)
    for code in range(0, size, 100):
        found = index.places(cells[code], cells[code], blocks_max=1)
        assert found is not None
        assert found[0].tolist() == [code]


class Points(RuleBasedStateMachine):
    """Points that are added, deleted and tidied, and walked in the order of the curve."""

    def __init__(self) -> None:
        super().__init__()
        self.curve = Curve(2, 2)
        self.index = PackedIndex(2, 2, of_points=True)
        self.keys: dict[int, int] = {}
        self.next = 0

    @rule(cells=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=9))
    def add(self, cells: list[tuple[int, int]]) -> None:
        codes = np.arange(self.next, self.next + len(cells))
        self.next += len(cells)
        self.keys |= dict(zip(codes.tolist(), map(self.curve.encode, cells), strict=True))
        self.index.add_points(codes, np.array(cells))

    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        if self.keys:
            code = st.sampled_from(sorted(self.keys))
            codes = data.draw(st.lists(code, min_size=1, max_size=9, unique=True))
            keys = [self.keys.pop(code) for code in codes]
            assert self.index.discard_points(codes, keys) == len(codes)
            assert self.index.discard_points(codes, keys) == 0

    @rule(steps=st.integers(1, 3))
    def tidy(self, steps: int) -> None:
        for _ in range(steps):
            self.index.tidy()

    @rule(first=st.integers(0, 16), last=st.integers(0, 15), count=st.integers(1, 9))
    def walk(self, first: int, last: int, count: int) -> None:
        found: list[tuple[int, int]] = []
        while first <= last:
            codes, keys, upto = self.index.walk(first, last, count)
            part = list(zip(keys.tolist(), codes.tolist(), strict=True))
            assert [key for key, _ in part] == sorted(key for key, _ in part)
            wanted = {(key, code) for code, key in self.keys.items() if first <= key <= upto}
            assert sorted(part) == sorted(wanted)
            assert first <= upto <= last
            found += part
            first = upto + 1


Points.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_a_walk_gives_all_points_in_order_whatever_happened_before = Points.TestCase
