"""The quantile codec keeps the law and order, spreads what it was learnt from, and is a table."""

import tomllib
from collections import Counter

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from squid import Absent, Anything, Bare, Interval, Keyword, Prefix, Space, SpaceError, number
from squid.errors import CodecError
from squid.learning import learn_keywords, learn_numbers, learn_space
from squid.limits import SPLIT_POINTS_MAX
from squid.patterns import number_text, within
from squid.quantile import QuantileKeywords, QuantileNumbers
from tests.squid.test_codecs import (
    all_patterns,
    assert_law,
    bits,
    number_patterns,
    numbers,
    texts,
)

weights = st.integers(0, 40) | st.integers(0, 1 << 40)
words = texts | numbers.map(number_text)
finite = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-50, 200).map(float)


@st.composite
def codecs(draw, build, values):
    points = sorted(draw(st.sets(values, min_size=1, max_size=12)))
    gaps = draw(st.lists(weights, min_size=len(points) + 1, max_size=len(points) + 1))
    own = draw(st.lists(weights, min_size=len(points), max_size=len(points)))
    assume(sum(gaps) + sum(own))
    return build(draw(bits), points, own, gaps)


keyword_codecs = codecs(QuantileKeywords, words)
number_codecs = codecs(QuantileNumbers, finite)
salts = st.binary(max_size=4)
TWO = QuantileKeywords(8, ["fan", "temperature"], [1, 1], [1, 1, 1])


@given(keyword_codecs, all_patterns, all_patterns)
@example(TWO, number(10**20), number(1e20))
@settings(max_examples=400, deadline=None)
def test_patterns_that_share_a_value_share_a_cell_on_a_keyword_axis(codec, one, other):
    assert_law(codec, one, other)


@given(number_codecs, number_patterns, number_patterns)
@settings(max_examples=400, deadline=None)
def test_patterns_that_share_a_value_share_a_cell_on_a_number_axis(codec, one, other):
    assert_law(codec, one, other)


def assert_found(codec, data, interest, salt):
    try:
        cell = codec.cell(data, salt)
        cells = codec.interval(interest)
    except CodecError:
        assume(False)
    assert 0 <= cell <= codec._last
    if within(data, interest):
        assert cells[0] <= cell <= cells[1]


@given(keyword_codecs, all_patterns, all_patterns, salts)
@settings(max_examples=400, deadline=None)
def test_data_lie_where_every_interest_that_selects_them_looks(codec, data, interest, salt):
    assert_found(codec, data, interest, salt)


@given(number_codecs, number_patterns, number_patterns, salts)
@settings(max_examples=400, deadline=None)
def test_the_same_for_numbers(codec, data, interest, salt):
    assert_found(codec, data, interest, salt)


@given(keyword_codecs, texts, texts, salts)
@settings(max_examples=200, deadline=None)
def test_a_prefix_covers_every_text_that_starts_so(codec, prefix, rest, salt):
    low, high = codec.interval(Prefix(prefix))
    assert low <= codec.cell(Keyword(prefix + rest), salt) <= high


@given(keyword_codecs, st.lists(words, min_size=2, max_size=6), salts)
@settings(max_examples=200, deadline=None)
def test_keywords_are_in_code_point_order(codec, values, salt):
    assert_in_order(codec, [Keyword(value) for value in sorted(values)], salt)


@given(number_codecs, st.lists(numbers, min_size=2, max_size=6), salts)
@settings(max_examples=200, deadline=None)
def test_numbers_are_in_order(codec, values, salt):
    assert_in_order(codec, [number(value) for value in sorted(values)], salt)


def assert_in_order(codec, patterns, salt):
    lows, highs = zip(*map(codec.interval, patterns), strict=True)
    assert list(lows) == sorted(lows)
    assert list(highs) == sorted(highs)
    for low, high, pattern in zip(lows, highs, patterns, strict=True):
        assert 1 <= low <= codec.cell(pattern, salt) <= high <= codec._last


def test_a_keyword_owns_an_interval_as_wide_as_its_weight_and_data_lie_anywhere_in_it():
    codec = QuantileKeywords(16, ["fan", "light", "temperature"], [10, 20, 60], [1, 3, 3, 3])
    widths = {}
    for word in ("fan", "light", "temperature"):
        low, high = codec.interval(Keyword(word))
        widths[word] = high - low + 1
        cells = [codec.cell(Keyword(word), b"%d" % i) for i in range(1000)]
        quarters = Counter((cell - low) * 4 // (high - low + 1) for cell in cells)
        assert min(quarters[quarter] for quarter in range(4)) > 180
    assert widths["fan"] == pytest.approx((1 << 16) / 10, rel=0.01)
    assert widths["temperature"] == pytest.approx((1 << 16) * 0.6, rel=0.01)


def test_unseen_words_have_cells_of_their_own_between_those_that_were_seen():
    codec = QuantileKeywords(16, ["fan", "light", "temperature"], [10, 20, 60], [2, 2, 3, 3])
    for unseen in (["garage", "hall", "lamp"], ["ape", "bee"], ["window", "zebra"]):
        cells = [codec.interval(Keyword(word)) for word in unseen]
        assert all(low == high for low, high in cells)
        assert cells == sorted(set(cells))
    low, high = codec.interval(Prefix("l"))
    assert low > codec.interval(Keyword("hall"))[1]
    assert high < codec.interval(Keyword("temperature"))[0]


def test_numbers_between_and_outside_what_was_seen():
    codec = QuantileNumbers(16, [0, 10, 100], [1, 1, 1], [1, 5, 5, 1])
    cells = [codec.cell(number(x)) for x in (-1e300, -50, -1, 3, 5, 8, 20, 60, 101, 500, 10**400)]
    assert cells == sorted(set(cells))
    five, ten = codec.interval(Interval(5, 5)), codec.interval(number(10))
    assert five[0] == five[1]
    assert ten[1] - ten[0] > (1 << 16) / 20
    assert codec.interval(Interval(None, 5))[0] == 1
    assert codec.interval(Interval(5, None))[1] == (1 << 16) - 1


def test_the_cells_that_are_set_aside():
    for codec in (TWO, QuantileNumbers(8, [1], [1], [1, 1])):
        assert codec.interval(Absent()) == (0, 0)
        assert codec.interval(Bare()) == (1, 1)
        assert codec.interval(Anything()) == (1, 255)
        assert codec.interval(Interval(5, 4)) is None
        assert codec.cell(Absent(), b"salt") == 0
        assert codec.cell(Bare(), b"salt") == 1
    with pytest.raises(CodecError, match="is a number here"):
        QuantileNumbers(8, [1], [1], [1, 1]).interval(Keyword("warm"))


# -- learning ------------------------------------------------------------------------------------


@given(st.dictionaries(words, st.integers(1, 50), min_size=1), st.integers(2, 20))
@settings(max_examples=200, deadline=None)
def test_learning_has_a_bound_and_keeps_hot_words_as_points(counts, points):
    codec = learn_keywords(21, counts, points)
    learnt = codec.describe()
    assert len(learnt["points"]) <= max(2, points)
    total = sum(counts.values())
    for word, count in counts.items():
        assert count < total / max(1, points - 2) or word in learnt["points"]
    assert sum(learnt["weights"]) + sum(learnt["gaps"]) >= 16 * total


def test_no_value_between_two_points_is_hot():
    # By Zipf's law 1/1022 of all is rank 100; such a word must not depend on where a gap ends.
    zipf = {f"word{i * 7919 % 10_000:04d}": 100_000 // (i + 1) for i in range(10_000)}
    points = set(learn_keywords(21, zipf, 1024).describe()["points"])
    hottest = max(count for word, count in zipf.items() if word not in points)
    assert hottest < sum(zipf.values()) / 1022 / 4


def test_what_was_learnt_from_spreads_evenly():
    zipf = {f"word{i:04d}": 20_000 // (i + 1) for i in range(2000)}
    codec = learn_keywords(21, zipf, 256)
    arcs = Counter()
    for word, count in zipf.items():
        for copy in range(count):
            arcs[codec.cell(Keyword(word), b"%d" % copy) >> 15] += 1
    assert max(arcs.values()) < 1.5 * sum(zipf.values()) / 64
    skewed = {2.0**i: 1 for i in range(-400, 400)}
    codec = learn_numbers(21, skewed, 256)
    arcs = Counter(codec.cell(number(x * f)) >> 15 for x in skewed for f in (1.0, 1.3, 1.7))
    assert max(arcs.values()) < 1.5 * 3 * len(skewed) / 64


LAB = """
name = "lab"
version = 3

[[dimension]]
name = "type"
codec = "keyword"

[[dimension]]
name = "degree"
codec = "number"
min = -40
max = 150

[[dimension]]
name = "unit"
codec = "keyword"
"""


def test_a_space_is_learnt_from_profiles_whatever_their_order():
    sample = [{"type": [Keyword("fan")], "degree": [number(i % 7)]} for i in range(40)]
    sample += [{"type": [number(42)], "other": [Keyword("x")]}, {"degree": [Interval(0, 5)]}]
    lab = Space.from_toml(LAB)
    learnt = learn_space(lab, sample)
    assert learnt == learn_space(lab, reversed(sample))
    assert (learnt.version, learnt.bits, learnt.name) == (4, lab.bits, "lab")
    kinds = [dimension.codec.describe() for dimension in learnt.dimensions]
    assert kinds[0]["points"] == ("42", "fan")
    assert kinds[1]["points"] == (0, 1, 2, 3, 4, 5, 6)
    assert kinds[2] == {"codec": "keyword"}
    again = learn_space(learnt, sample)
    assert [d.codec.describe() for d in again.dimensions] == kinds


def test_points_are_bounded():
    with pytest.raises(ValueError, match="2 to 4096 points"):
        learn_keywords(21, {"a": 1}, SPLIT_POINTS_MAX + 1)


# -- the definition ------------------------------------------------------------------------------


@given(keyword_codecs, number_codecs)
@settings(max_examples=200, deadline=None)
def test_the_definition_round_trips(keywords, values):
    from squid import Dimension

    pair = (Dimension("type", keywords), Dimension("degree", values))
    space = Space("lab", 2, pair, 8)
    again = Space.from_toml(space.to_toml())
    assert again == space
    assert again.dimensions[0].codec.describe() == keywords.describe()
    assert again.dimensions[1].codec.describe() == values.describe()
    assert tomllib.loads(space.to_toml())["dimension"][0]["points"] == list(
        keywords.describe()["points"]
    )


WRONG = [
    ('kind = "keyword"', 'kind = "colour"', "kind must be 'keyword' or 'number', not 'colour'"),
    ('["a", "b"]', '["b", "a"]', "points must grow, and 'b' stands before 'a'"),
    ('["a", "b"]', '["a", 2]', "points of the kind keyword are texts, and 2 is not one"),
    ('["a", "b"]', "[]", "a quantile codec has 1 to 4,096 points, not 0"),
    ('["a", "b"]', '"a"', "points must be a list"),
    ("[3, 4]", "[3]", "weights must be 2, one for each point, not 1"),
    ("[3, 4]", "[3, -4]", "weights are whole numbers from 0 to"),
    ("[3, 4]", "[3, true]", "weights are whole numbers from 0 to"),
    ("[3, 4]", "7", "weights must be a list of whole numbers, one for each point"),
    ("[1, 2, 1]", "[1, 2]", "gaps must be 3, one more than points, not 2"),
    ("[3, 4]\ngaps = [1, 2, 1]", "[0, 0]\ngaps = [0, 0, 0]", "must be more than 0"),
    ("weights", "wieghts", "a quantile codec has no 'wieghts', only kind, points, weights, gaps"),
]
GOOD = """name = "s"
version = 1
[[dimension]]
name = "a"
codec = "quantile"
kind = "keyword"
points = ["a", "b"]
weights = [3, 4]
gaps = [1, 2, 1]
"""


@pytest.mark.parametrize(("old", "new", "words"), WRONG)
def test_what_is_wrong_with_a_definition_is_said(old, new, words):
    Space.from_toml(GOOD)
    with pytest.raises(SpaceError) as raised:
        Space.from_toml(GOOD.replace(old, new))
    assert words in str(raised.value)


def test_all_that_is_wrong_is_said_at_once():
    wrong = GOOD.replace("[3, 4]", "[]").replace("[1, 2, 1]", "[1]").replace('"keyword"', '"k"')
    with pytest.raises(SpaceError) as raised:
        Space.from_toml(wrong)
    assert len(raised.value.problems) == 3 + 1  # points are not texts of the kind "k" either
    for text in ("[1e400, 2]", "[1, nan]", "[1, true]", f"[{2**60}, {2**60 + 1}]"):
        numbers = GOOD.replace('["a", "b"]', text).replace('"keyword"', '"number"')
        with pytest.raises(SpaceError, match=r"finite numbers|must grow"):
            Space.from_toml(numbers)
