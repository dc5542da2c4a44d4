"""Codecs keep order, and never put two patterns apart that share a value."""

import math

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from squid.codecs import KeywordCodec, NumberCodec
from squid.errors import CodecError
from squid.patterns import (
    Absent,
    Anything,
    Bare,
    Interval,
    Keyword,
    Prefix,
    number,
    number_text,
    overlaps,
    within,
)

bits = st.sampled_from([1, 2, 5, 9, 21, 31, 32, 63])
letters = st.text(st.sampled_from("aAbzZ09-._ /\0~é\U0010ffff"), max_size=6)
texts = letters | st.text(max_size=8)
numbers = (
    st.integers(-50, 200)
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False)
    | st.floats(-50, 200)
    | st.sampled_from([10**20, 1e20, 2**53, float(2**53), -0.0, 0, math.inf, -math.inf])
)
flags = st.booleans()


def intervals(ends):
    whole = st.builds(Interval, ends, ends, flags, flags)
    return (
        whole | st.builds(Interval, ends, st.none(), flags) | st.builds(Interval, st.none(), ends)
    )


number_patterns = st.one_of(
    numbers.map(number),
    intervals(numbers),
    numbers.map(number_text).flatmap(
        lambda text: st.integers(0, len(text)).map(lambda n: Prefix(text[:n]))
    ),
    st.sampled_from([Anything(), Bare(), Absent()]),
)
all_patterns = number_patterns | texts.map(Keyword) | texts.map(Prefix) | intervals(texts)
number_codecs = st.builds(
    NumberCodec,
    bits,
    st.sampled_from([0.001, 1, 20]),
    st.sampled_from([21, 150, 1e30]),
    st.sampled_from(["linear", "log"]),
)


def assert_law(codec, one, other):
    if not overlaps(one, other):
        assert not within(one, other)
        return
    cells, others = codec.interval(one), codec.interval(other)
    assert cells is not None
    assert others is not None
    assert max(cells[0], others[0]) <= min(cells[1], others[1])


@given(bits, all_patterns, all_patterns)
@example(21, number(10**20), number(1e20))
@example(21, Prefix("1e"), number(1e20))
@settings(max_examples=1500, deadline=None)
def test_patterns_that_share_a_value_share_a_cell_on_a_keyword_axis(bits, one, other):
    assert_law(KeywordCodec(bits), one, other)


@given(number_codecs, number_patterns, number_patterns)
@settings(max_examples=1500, deadline=None)
def test_patterns_that_share_a_value_share_a_cell_on_a_number_axis(codec, one, other):
    assert_law(codec, one, other)


@given(bits, st.lists(texts, min_size=2, max_size=6))
@settings(max_examples=500, deadline=None)
def test_keyword_cells_are_in_code_point_order(bits, words):
    codec = KeywordCodec(bits)
    cells = [codec.cell(Keyword(word)) for word in sorted(words)]
    assert cells == sorted(cells)
    assert all(1 <= cell < 1 << bits for cell in cells)


@given(number_codecs, st.lists(numbers, min_size=2, max_size=6))
@settings(max_examples=500, deadline=None)
def test_number_cells_are_in_order(codec, values):
    cells = [codec.cell(number(value)) for value in sorted(values)]
    assert cells == sorted(cells)
    assert cells[0] >= 1


@given(bits, texts, texts)
@settings(max_examples=500, deadline=None)
def test_a_prefix_covers_every_text_that_starts_so(bits, prefix, rest):
    codec = KeywordCodec(bits)
    low, high = codec.interval(Prefix(prefix))
    assert low <= codec.cell(Keyword(prefix + rest)) <= high


@given(bits, all_patterns)
@settings(max_examples=300, deadline=None)
def test_data_live_where_interests_look(bits, pattern):
    codec = KeywordCodec(bits)
    try:
        cell = codec.cell(pattern, salt=b"any")
    except CodecError:
        assume(False)
    if overlaps(pattern, pattern):
        low, high = codec.interval(pattern)
        assert low <= cell <= high


def test_different_words_get_different_cells():
    codec = KeywordCodec(21)
    words = ["fan", "humidity", "light", "temperature", "temporary", "Window", "42"]
    assert len({codec.cell(Keyword(word)) for word in words}) >= len(words) - 1
    low, high = codec.interval(Prefix("te"))
    assert high - low < (1 << 21) / 70**2 * 1.1


def test_the_cells_that_are_set_aside():
    for codec in (KeywordCodec(8), NumberCodec(8, 0, 10)):
        assert codec.interval(Absent()) == (0, 0)
        assert codec.interval(Bare()) == (1, 1)
        assert codec.interval(Anything()) == (1, 255)
        assert codec.interval(Interval(5, 4)) is None
        assert codec.interval(Interval(5, 5, low_open=True)) is None
    assert KeywordCodec(8).interval(Interval("b", "a")) is None


def test_numbers_outside_the_bounds_fall_into_the_edge_cells():
    codec = NumberCodec(8, -40, 150)
    assert codec.cell(number(-40)) == codec.cell(number(-(10**400))) == 1
    assert codec.cell(number(150)) == codec.cell(number(math.inf)) == 255
    assert codec.interval(Interval(100, None))[1] == 255
    assert codec.interval(Interval(None, 100))[0] == 1
    assert codec.interval(Interval(200, 300)) == (255, 255)


def test_a_linear_scale_gives_equal_steps_and_a_log_scale_equal_octaves():
    linear = NumberCodec(16, 0, 100)
    assert linear.cell(number(50)) == pytest.approx(1 << 15, abs=2)
    log = NumberCodec(16, 1, 1 << 16)
    assert log.cell(number(256)) < 300
    log = NumberCodec(16, 1, 1 << 16, "log")
    assert log.cell(number(256)) == pytest.approx(1 << 15, abs=2)


def test_a_text_on_a_number_axis_is_refused_in_words():
    codec = NumberCodec(8, 0, 10)
    for pattern in (Keyword("warm"), Interval("warm", None), Interval(None, "warm")):
        with pytest.raises(CodecError, match="is a number here, and the text 'warm' is not"):
            codec.interval(pattern)
    assert codec.interval(Prefix("warm")) == (1, 255)


def test_a_range_has_no_single_cell():
    for codec in (KeywordCodec(8), NumberCodec(8, 0, 10)):
        with pytest.raises(CodecError, match="not one value"):
            codec.cell(Interval(1, 2))


def test_bounds_that_a_float_can_not_tell_apart():
    with pytest.raises(CodecError, match="less than"):
        NumberCodec(8, 2**60, 2**60 + 1)
    with pytest.raises(CodecError, match="too close"):
        NumberCodec(8, 1e300, math.nextafter(1e300, math.inf), "log")
    with pytest.raises(CodecError, match="too far apart"):
        NumberCodec(8, -1.7e308, 1.7e308)
    with pytest.raises(CodecError, match="finite"):
        NumberCodec(8, 0, 10**400)
    with pytest.raises(CodecError, match="scale"):
        NumberCodec(8, 0, 1, "cubic")
