"""`within` and `overlaps` between any two patterns, against samples of concrete values."""

from __future__ import annotations

import sys
from math import inf, nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squid.patterns import (
    Absent,
    Anything,
    Bare,
    Interval,
    Keyword,
    Pattern,
    Prefix,
    number,
    number_text,
    overlaps,
    within,
)

LAST = chr(sys.maxunicode)


def contains(pattern: Pattern, value: str | float) -> bool:
    """The oracle: is this one text or number a value of the pattern?"""
    match pattern:
        case Anything():
            return True
        case Keyword(text):
            return value == text
        case Prefix(text):
            written = value if isinstance(value, str) else number_text(value)
            return written.startswith(text)
        case Interval(low, high, low_open, high_open):
            if pattern.of_text != isinstance(value, str):
                return False
            above = low is None or low < value or (low == value and not low_open)
            below = high is None or value < high or (high == value and not high_open)
            return above and below
    return False


# A small alphabet makes patterns meet often; its ends are the first and the last code point.
short_texts = st.text("\0ab9" + LAST, max_size=3)
small_numbers = st.one_of(
    st.integers(-12, 120),
    st.sampled_from([0.5, 0.25, 8.0, 8.5, 9.75, -0.5, 0.0001, 0.00001, 9e-07, 1e16, 9e20, 2.5e-9]),
)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    ends = draw(st.sampled_from([short_texts, small_numbers]))
    low, high = draw(
        st.tuples(st.none() | ends, st.none() | ends).filter(lambda e: e != (None,) * 2)
    )
    return Interval(low, high, draw(st.booleans()), draw(st.booleans()))


prefixes = short_texts | st.sampled_from(
    ["8", "9", "-", "-1", "0.", "8.", "9e", "9e-", "1e+1", "0.0"]
)
valued = st.one_of(
    short_texts.map(Keyword), prefixes.map(Prefix), intervals(), small_numbers.map(number)
) | st.just(Anything())
patterns = valued | st.sampled_from([Bare(), Absent()])


def samples(*several: Pattern) -> list[str | float]:
    """Return values at, just beside and inside the ends of the patterns."""
    found: set[str | float] = {
        "",
        "\0",
        "a",
        "b",
        "zz",
        LAST,
        0,
        1,
        8,
        9,
        80,
        0.5,
        -1,
        1e300,
        -1e300,
    }
    for pattern in several:
        if isinstance(pattern, Keyword | Prefix):
            found |= {pattern.text + tail for tail in ("", "\0", "a", LAST, LAST * 4)}
            if stem := pattern.text.rstrip(LAST):
                found.add(stem[:-1] + chr(ord(stem[-1]) + 1))
        if isinstance(pattern, Interval):
            for end in (pattern.low, pattern.high):
                if isinstance(end, str):
                    found |= {end, end + "\0", end + "a", end + LAST, end[:-1]}
                elif end is not None:
                    found |= {end, end + 1, end - 1, nextafter(end, inf), nextafter(end, -inf)}
            if _two_numbers(pattern):
                found.add((pattern.low + pattern.high) / 2)
    found |= {text + "\0" for text in list(found) if isinstance(text, str)}
    return list(found)


def _two_numbers(pattern: Interval) -> bool:
    return not (pattern.of_text or pattern.low is None or pattern.high is None)


@given(valued, valued)
def test_within_agrees_with_concrete_values(value: Pattern, wanted: Pattern) -> None:
    inside = [v for v in samples(value, wanted) if contains(value, v)]
    if within(value, wanted):
        assert all(contains(wanted, v) for v in inside)


@given(short_texts.map(Keyword) | intervals().filter(lambda i: i.of_text), valued)
def test_texts_that_are_not_within_have_a_witness(value: Pattern, wanted: Pattern) -> None:
    inside = [v for v in samples(value, wanted) if contains(value, v)]
    assert within(value, wanted) == (inside != [] and all(contains(wanted, v) for v in inside))


@given(small_numbers, valued)
def test_one_number_is_within_what_contains_it(value: float, wanted: Pattern) -> None:
    assert within(number(value), wanted) == contains(wanted, value)
    assert overlaps(number(value), wanted) == contains(wanted, value)


@given(intervals(), intervals())
def test_number_ranges_that_are_not_within_have_a_witness(one: Interval, other: Interval) -> None:
    inside = [v for v in samples(one, other) if contains(one, v)]
    if inside and not within(one, other):
        assert not all(contains(other, v) for v in inside)


@given(valued, valued)
def test_overlaps_is_what_some_concrete_value_shows(one: Pattern, other: Pattern) -> None:
    shared = [v for v in samples(one, other) if contains(one, v) and contains(other, v)]
    assert overlaps(one, other) == overlaps(other, one)
    if shared:
        assert overlaps(one, other)
    elif not any(isinstance(p, Interval) and not p.of_text for p in (one, other)):
        assert not overlaps(one, other)


@given(patterns, patterns)
def test_within_implies_overlaps(one: Pattern, other: Pattern) -> None:
    assert not within(one, other) or overlaps(one, other)


@given(patterns, patterns, patterns)
def test_within_is_transitive(one: Pattern, two: Pattern, three: Pattern) -> None:
    if within(one, two) and within(two, three):
        assert within(one, three)


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1)


@given(numbers, st.integers(0, 24), st.floats(0, 10) | st.floats(0, 1e300))
def test_a_range_around_a_number_meets_every_prefix_of_it(
    value: float, length: int, width: float
) -> None:
    around = Interval(value - width, value + width)
    if contains(around, value) and not around.is_number:
        assert overlaps(Prefix(number_text(value)[:length]), around)


@given(small_numbers, small_numbers, prefixes)
def test_a_prefix_meets_a_range_only_where_a_number_is_written_so(
    low: float, high: float, prefix: str
) -> None:
    whole = [n for n in range(-13, 121) if low <= n <= high and number_text(n).startswith(prefix)]
    if whole:
        assert overlaps(Interval(low, high), Prefix(prefix))


@pytest.mark.parametrize(
    ("prefix", "low", "high", "expected"),
    [
        ("8", 80, 120, True),
        ("8", 90, 120, False),
        ("8", 90, 800, True),
        ("8", 90, 799, False),
        ("8", 1e-7, 7e-7, False),
        ("8", 1e-7, 9e-7, True),
        ("8.", 7, 8, False),  # 8 is written 8
        ("8.", 8, 8.5, True),
        ("8.10", 8.05, 8.1, False),
        ("-8", -89, -81, True),
        ("-", 0, 5, False),
        ("-0", -1, 0, True),
        ("0.0001", 0, 0.0001, True),
        ("0.00001", 0, 1, False),  # written 1e-05
        ("1e-0", 0, 1e-9, True),
        ("1e-0", 0, 1e-10, False),
        ("1e+", 0, 9e15, False),
        ("comp", 0, 1e300, False),
        ("00", 0, 1e300, False),
        ("9" * 5_000, 0, 1e300, False),
        ("", 3, 4, True),
    ],
)
def test_prefixes_of_numbers(prefix: str, low: float, high: float, expected: bool) -> None:
    assert overlaps(Prefix(prefix), Interval(low, high)) is expected


def test_the_words_of_the_language() -> None:
    assert within(Keyword("computer"), Prefix("comp"))
    assert within(number(91), Prefix("9"))
    assert within(number(91.0), Prefix("91"))
    assert within(Interval(None, 0.01, high_open=True), Interval(None, 0.1, high_open=True))
    assert within(Interval(None, 5, high_open=True), Interval(None, 5))
    assert not within(Interval(None, 5), Interval(None, 5, high_open=True))
    assert not within(Keyword("91"), number(91))
    assert not within(number(91), Keyword("91"))
    assert not overlaps(Keyword("91"), number(91))
    assert not within(Interval(90, 99), Prefix("9"))
    assert within(Interval(90, 99), Prefix(""))
    assert within(Anything(), Prefix(""))
    assert not within(Anything(), Interval("", None))


def test_prefix_in_a_range_of_texts_is_exact() -> None:
    assert within(Prefix("comp"), Interval("comp", "comq", high_open=True))
    assert not within(Prefix("comp"), Interval("comp", "comp" + LAST * 9))
    assert within(Prefix("a" + LAST), Interval("a", "b"))
    assert within(Prefix(LAST), Interval("a", None))
    assert not within(Prefix("9"), Interval("9", None))  # 9* also takes the number 9
    assert not within(Prefix(""), Interval("", None))


def test_bare_and_absent_are_only_themselves() -> None:
    everything = [Keyword(""), Prefix(""), number(0), Interval("", None), Anything()]
    for alone, other in ((Bare(), Absent()), (Absent(), Bare())):
        assert within(alone, alone)
        assert overlaps(alone, alone)
        for pattern in (*everything, other):
            assert not within(alone, pattern)
            assert not within(pattern, alone)
            assert not overlaps(alone, pattern)
            assert not overlaps(pattern, alone)


@pytest.mark.parametrize(
    "empty",
    [
        Interval(5, 5, low_open=True, high_open=True),
        Interval(5, 5, low_open=True),
        Interval(6, 5),
        Interval("b", "a"),
        Interval("a", "a\0", low_open=True, high_open=True),
        Interval(None, "", high_open=True),
    ],
)
def test_empty_intervals_overlap_nothing(empty: Interval) -> None:
    for pattern in (empty, Anything(), Prefix(""), Interval(0, 9), Interval("", None)):
        assert not overlaps(empty, pattern)
        assert not overlaps(pattern, empty)
        assert not within(empty, pattern)


def test_large_integers_are_not_rounded() -> None:
    assert not within(number(2**53 + 1), number(float(2**53)))
    assert within(number(2**53 + 1), Interval(float(2**53), None, low_open=True))
