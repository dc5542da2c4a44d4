"""Aggregates: parts combine in any grouping to what the whole has."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rendezvous_point import Point, post

from arms.aggregate import Aggregate, aggregate_of
from arms.errors import MessageError
from arms.profile import Profile

values = st.lists(st.integers(-1000, 1000))


def of(numbers: list[int]) -> Aggregate:
    whole = Aggregate()
    for value in numbers:
        whole = whole.add(value)
    return whole


@given(values)
def test_an_aggregate_is_what_the_values_have(numbers: list[int]) -> None:
    whole = of(numbers)
    assert whole.result("count") == len(numbers)
    assert whole.result("sum") == sum(numbers)
    assert whole.result("min") == min(numbers, default=None)
    assert whole.result("max") == max(numbers, default=None)
    average = whole.result("avg")
    assert average == (pytest.approx(sum(numbers) / len(numbers)) if numbers else None)


@given(values, values, values)
def test_parts_combine_in_any_grouping(one: list[int], two: list[int], three: list[int]) -> None:
    a, b, c = of(one), of(two), of(three)
    assert a.merge(b).merge(c) == a.merge(b.merge(c)) == c.merge(a).merge(b)
    assert a.merge(b).merge(c) == of(one + two + three)
    assert a.merge(Aggregate()) == a


@given(values)
def test_an_aggregate_comes_over_the_wire(numbers: list[int]) -> None:
    wire = msgpack.unpackb(msgpack.packb(of(numbers).to_wire()))
    assert Aggregate.from_wire(wire) == of(numbers)


@pytest.mark.parametrize("wire", [None, [], [1, 2, 3], ["1", 0, 0, 0], [1, None, 0, 0]])
def test_what_is_no_aggregate_is_refused(wire: object) -> None:
    with pytest.raises(MessageError, match="not an aggregate"):
        Aggregate.from_wire(wire)


def test_an_unknown_aggregate_is_refused() -> None:
    with pytest.raises(MessageError, match="no aggregate 'median'"):
        Aggregate().result("median")


@pytest.mark.parametrize(
    ("profile", "attribute", "expected"),
    [
        ("type=a, degree=21.5", "degree", Aggregate(1, 21.5, 21.5, 21.5)),
        ("type=a / degree=-3", "degree", Aggregate(1, -3, -3, -3)),
        ("degree=high / degree=4", "degree", Aggregate(1, 4, 4, 4)),
        ("type=a, degree=21.5", None, Aggregate(1)),
        ("type=a, degree=21.5", "type", Aggregate()),
        ("type=a, degree<5", "degree", Aggregate()),
        ("type=a, degree", "degree", Aggregate()),
        ("type=a", "degree", Aggregate()),
    ],
)
def test_only_numbers_are_taken(profile: str, attribute: str | None, expected: Aggregate) -> None:
    assert aggregate_of(Profile.parse(profile), attribute) == expected


def test_a_retrieval_can_ask_for_an_aggregate_instead_of_the_matches(tmp_path: Path) -> None:
    point = Point(tmp_path / "store.db")
    for degree in range(10):
        point.post(post("store", f"type=temperature, degree={degree}", data=b"x" * 1000))
    point.post(post("store", "type=temperature, degree=2..4"))
    point.post(post("store", "type=humidity, degree=50"))
    for rows_max in (1, 3, 100):
        for name, expected in {"count": 10, "sum": 45, "min": 0, "max": 9, "avg": 4.5}.items():
            question = post("retrieve", "type=temp*", aggregate=name, attribute="degree")
            found, aggregate, pages = point.pages(question, bytes_max=1, rows_max=rows_max)
            assert found == []
            assert aggregate.result(name) == expected
            assert (pages == 1) == (rows_max == 100)  # no data, so bytes don't count
    _, aggregate, _ = point.pages(post("retrieve", "type=temp*", aggregate="count"))
    assert aggregate.result("count") == 11
