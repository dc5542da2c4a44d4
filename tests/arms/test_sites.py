"""Sites: the short way from a profile's text to its place gives what the long way gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arms.errors import ArmsError
from arms.message import Action, Header, Message, region_of
from arms.profile import Profile
from arms.sites import Sites
from squid import Space
from squid.errors import SquidError

LAB = Space.from_toml("""
name = "lab"
version = 1
[[dimension]]
name = "type"
codec = "keyword"
[[dimension]]
name = "location"
codec = "quantile"
kind = "keyword"
points = ["hall", "lab"]
weights = [40, 10]
gaps = [1, 1, 1]
[[dimension]]
name = "degree"
codec = "number"
min = -50
max = 150
""")

VALUES = st.one_of(
    st.sampled_from(
        ["temperature", "hall", "lab", "room12", "é", "", "a b", '"q"', "1e3", "-0", "007"]
    ),
    st.sampled_from(
        ["nan", "inf", "2.0", "1.50", "0.1", "-3.25", "1..5", "a*", "*", "5.", ".5", "+4"]
    ),
    st.integers(-(10**17), 10**17).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(max_size=4),
)
NAMES = st.sampled_from(["type", "location", "degree", "unit", "x.y", "_a", "meteor.inbox", "1a"])
TEXTS = st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=4).flatmap(
    lambda pairs: st.sampled_from([", ", ",", " & ", " / ", ",  "]).map(
        lambda joint: joint.join(f"{name}={value}" for name, value in pairs)
    )
)


@given(TEXTS)
def test_the_short_way_is_the_long_way(text: str) -> None:
    sites, expected, problem = Sites(LAB), None, ""
    try:
        expected = Sites(LAB).find(text)
    except (ArmsError, SquidError) as error:
        problem = str(error)
    if problem:
        with pytest.raises((ArmsError, SquidError)) as raised:
            sites.of(text)
        assert str(raised.value) == problem
        return
    for _ in range(2):  # found, and then kept
        site = sites.of(text)
        if expected is None:
            assert site is None
            continue
        assert site is not None
        assert (site.text, site.identifier, site.cells) == (
            expected.text,
            expected.identifier,
            expected.cells,
        )
        assert site.placed() == expected.placed()
        assert site.profile == expected.profile


def test_a_site_is_where_its_message_lies() -> None:
    for text in (
        "type=smoke, location=hall, degree=21.5",
        "degree=7",
        "unit=C",
        "type=a / location=b",
    ):
        site = Sites(LAB).of(text)
        assert site is not None
        message = Message(Header(Profile.parse(text), "i"), Action.STORE)
        assert region_of(LAB, message).lowest == site.identifier


def test_plain_texts_take_the_short_way() -> None:
    sites = Sites(LAB)
    assert sites._plain("type=smoke, location=hall, degree=21.5") is not None
    assert sites._plain("type=smoke, degree=1..5") is None


def test_data_with_a_range_have_no_site() -> None:
    assert Sites(LAB).of("type=smoke, degree=1..5") is None
