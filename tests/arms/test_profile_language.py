"""The profile language: what can be written, what it means, and how slips are explained."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arms import And, Axis, Element, Level, Or, Profile, ProfileError
from arms.limits import (
    PROFILE_ALTERNATIVES_MAX,
    PROFILE_CHARACTERS_MAX,
    PROFILE_ELEMENTS_MAX,
    PROFILE_LEVELS_MAX,
    PROFILE_NESTING_MAX,
)
from squid.patterns import Absent, Anything, Bare, Interval, Keyword, Pattern, Prefix, number

parse = Profile.parse


def only_pattern(text: str) -> Pattern:
    (level,) = parse(text).levels
    assert isinstance(level.expression, Element)
    return level.expression.pattern


# What can be written


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("temperature", Bare()),
        ("unit=Fahrenheit", Keyword("Fahrenheit")),
        ("unit = Fahrenheit", Keyword("Fahrenheit")),
        ("unit=Fa*", Prefix("Fa")),
        ("unit=*", Anything()),
        ("degree=91", number(91)),
        ('degree="91"', Keyword("91")),
        ("degree=9*", Prefix("9")),
        ('name="two words"*', Prefix("two words")),
        ('name=""*', Prefix("")),
        ('name=""', Keyword("")),
        ("error<0.01", Interval(None, 0.01, high_open=True)),
        ("error<=0.01", Interval(None, 0.01)),
        ("degree>80", Interval(80, None, low_open=True)),
        ("degree>=-80", Interval(-80, None)),
        ("name>=m", Interval("m", None)),
        ('name<"91"', Interval(None, "91", high_open=True)),
        ("degree=80..120", Interval(80, 120)),
        ("degree=80 .. 120", Interval(80, 120)),
        ("degree=80..", Interval(80, None)),
        ("degree=..120", Interval(None, 120)),
        ("degree=-3.5..1e3", Interval(-3.5, 1000)),
        ("degree=.5..1.5", Interval(0.5, 1.5)),
        ("degree=-5..-3", Interval(-5, -3)),
        ("name=a..m", Interval("a", "m")),
        ("day=2026-01-01..2026-02-01", Interval("2026-01-01", "2026-02-01")),
        ('code="5".."7"', Interval("5", "7")),
        ("time=2026-01-01T12:30:00+01:00", Keyword("2026-01-01T12:30:00+01:00")),
        ("mail=a.b@example.org", Keyword("a.b@example.org")),
        ("name=Zoë", Keyword("Zoë")),
        ("name=日本*", Prefix("日本")),
        ("x=nan", Keyword("nan")),
        ("x=inf", Keyword("inf")),
        ("x=-inf", Keyword("-inf")),
        ("x=1e5x", Keyword("1e5x")),
        ("x=9223372036854775807", number(2**63 - 1)),
        ("x=9223372036854775808", number(2.0**63)),
        ("x=1e3", number(1000)),
        (r'x="a \"b\" \\ \n\t\u00e9"', Keyword('a "b" \\ \n\té')),
    ],
)
def test_values(text: str, pattern: Pattern) -> None:
    assert only_pattern(text) == pattern


def test_integers_stay_integers_and_large_ones_become_floats() -> None:
    small, large = only_pattern("x=9007199254740993"), only_pattern("x=" + "9" * 30)
    assert isinstance(small, Interval)
    assert small.low == 2**53 + 1
    assert isinstance(large, Interval)
    assert type(large.low) is float


def test_and_binds_tighter_than_or() -> None:
    a, b, c = Element("a"), Element("b"), Element("c")
    for text in ("a, b | c", "a & b | c", "(a, b) | c", "((a & (b))) | c"):
        assert parse(text).levels == (Level(Axis.CHILD, Or((And((a, b)), c))),)
    assert parse("a, (b | c)").levels == (Level(Axis.CHILD, And((a, Or((b, c))))),)


def test_an_alternative_of_a_value_is_an_attribute() -> None:
    expression = Or((Element("room", Keyword("a")), Element("b")))
    assert parse("room=a|b").levels[0].expression == expression


def test_levels_and_their_axes() -> None:
    axes = [level.axis for level in parse("//site=lab/floor=2//degree>80").levels]
    assert axes == [Axis.DESCENDANT, Axis.CHILD, Axis.DESCENDANT]
    assert parse("/a/b") == parse("a/b") == parse(" a / b ")
    assert parse("//a") != parse("a")


# The canonical text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a&b,c", "a, b, c"),
        ("(a,(b,c))|(d|e)", "a, b, c | d | e"),
        ("(a|b)&c", "(a | b), c"),
        ("/a/b//c", "a / b // c"),
        ("//a", "//a"),
        ("x=5..", "x>=5"),
        ("x=..m", "x<=m"),
        ("x=5..5", "x=5"),
        ("x=5.0", "x=5"),
        ('x="plain"', "x=plain"),
        ('x="91"', 'x="91"'),
        ('x="91"*', "x=91*"),
        ('x="a.".."b"', 'x="a."..b'),
        ('x="a\u2028b"', 'x="a\\u2028b"'),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical
    assert str(parse(canonical)) == canonical


attributes = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_.-]{0,6}\Z").filter(
    lambda name: ".." not in name
)
texts = st.one_of(
    st.text(max_size=8),
    st.text('a9.-+e"\\*/|&,()=<> \n\0\U0010ffff', max_size=6),
    st.integers().map(str),
    st.floats().map(repr),
)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    ends = draw(st.sampled_from([texts, numbers]))
    low, high = sorted((draw(ends), draw(ends)))  # type: ignore[type-var]
    shape = draw(st.sampled_from(["both", "low", "high"]))
    is_open = draw(st.booleans())
    if shape == "low":
        return Interval(low, None, low_open=is_open)
    if shape == "high":
        return Interval(None, high, high_open=is_open and high != "")
    return Interval(low, high)


patterns = st.one_of(
    st.just(Bare()), st.just(Anything()), texts.map(Keyword), texts.map(Prefix), intervals()
)
elements = st.builds(Element, attributes, patterns)


def groups(inner: st.SearchStrategy[And | Or | Element]) -> st.SearchStrategy[And | Or | Element]:
    items = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return items.map(And) | items.map(Or)


expressions = st.recursive(elements, groups, max_leaves=12)
profiles = st.builds(
    Profile,
    st.lists(st.builds(Level, st.sampled_from(Axis), expressions), min_size=1, max_size=4).map(
        tuple
    ),
)


@given(profiles)
def test_the_text_of_every_profile_reads_back_as_that_profile(profile: Profile) -> None:
    again = parse(str(profile))
    assert again == profile
    assert again.levels == profile.levels
    assert hash(again) == hash(profile)
    assert str(again) == str(profile)


def test_profiles_can_be_sent_to_other_processes() -> None:
    profile = parse("a=1, (b | c) // d=x*")
    assert profile.selects(profile)
    assert pickle.loads(pickle.dumps(profile)) == profile


@given(st.text() | st.text('ab19.*=<>&,|()/" \\-', max_size=30))
def test_any_text_is_a_profile_or_a_profile_error(text: str) -> None:
    error = None
    try:
        profile = parse(text)
    except ProfileError as caught:
        error = caught
    if error is None:
        assert parse(str(profile)) == profile
    else:
        assert error.column is None or 1 <= error.column <= len(text) + 1
        assert str(error)


def test_equal_numbers_are_equal_profiles() -> None:
    as_float = Profile((Level(Axis.CHILD, Element("x", number(2.0**60))),))
    assert as_float == parse(f"x={2**60}")
    assert parse("x=-0.0") == parse("x=0")


# Slips


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "can't be empty"),
        ("   ", 4, "can't be empty"),
        ("type=", 5, "a value has to follow '='"),
        ("type=, a", 6, "a value has to follow '=', not ','"),
        ("=5", 1, "an attribute has to stand before '='"),
        ("a, =5", 4, "an attribute has to stand before '='"),
        ("a,", 2, "an element has to follow ','"),
        ("a, , b", 2, "an element has to follow ','"),
        ("a |", 3, "an element has to follow '|'"),
        ("a /", 3, "an element has to follow '/'"),
        ("a///b", 2, "an element has to follow '//'"),
        (", a", 1, "has to come before ','"),
        ("(a, b", 1, "never closed"),
        ("a, b)", 5, "closes no bracket"),
        ("()", 1, "an element has to follow '('"),
        ("(a/b)", 3, "can't stand inside brackets"),
        ("a && b", 3, "one '&'"),
        ("a || b", 3, "one '|'"),
        ("a == b", 3, "one '='"),
        ("a =< 5", 3, "'<='"),
        ("a => 5", 3, "'>='"),
        ("a != b", 3, "no 'not'"),
        ("a; b", 2, "joined by ','"),
        ("a='b'", 3, "double quotes"),
        ("a=[b]", 3, "round"),
        ("a=$", 3, "'$' has no meaning here"),
        ("a=b\u200bc", 4, "U+200B"),
        ('a="b', 3, "never closed"),
        (r'a="b\q"', 5, r"'\q' is no escape"),
        (r'a="\ud800"', 3, "surrogate"),
        ("a=c*p", 4, "only stand at the end"),
        ("a=*p", 3, "at the end of a text"),
        ("a=Fa *", 6, "no space"),
        ("a=120..80", 3, "did you mean 80..120?"),
        ("a=z..b", 3, "did you mean b..z?"),
        ("a=5..x", 4, 'quote both: "5".."x"'),
        ("a=..", 3, "at least one end"),
        ("a=b..c*", 7, "not a prefix"),
        ("a=1..2..3", 7, "two ends"),
        ("a<", 3, "has to follow '<'"),
        ("a<*", 3, "has to follow '<'"),
        ("a<b*", 4, "needs '='"),
        ("a<1..2", 4, "needs '='"),
        ('a<""', 3, "no text comes before"),
        ("a=1e999", 3, "too large"),
        ("a=" + "9" * 5_000, 3, "too large"),
        ("5=a", 1, "can't name an attribute"),
        ('"a"=5', 1, "without quotes"),
        ("*", 1, "put an attribute before it"),
        ("room=living room", 13, '"living room"'),
        ("a 80..120", 3, "expected ','"),
        ("a..b", 2, "a range follows '='"),
        ("a*", 2, "follows '='"),
    ],
)
def test_a_slip_is_pointed_at_and_explained(text: str, column: int, words: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse(text)
    assert caught.value.column == column
    assert words in caught.value.problem


def test_an_error_shows_the_text_and_a_caret() -> None:
    with pytest.raises(ProfileError) as caught:
        parse("type=temperature, degree==80")
    first, shown, caret = str(caught.value).split("\n")
    assert first.startswith("column 25: ")
    assert shown[caret.index("^") :].startswith("==80")


def test_the_caret_stays_right_in_long_texts_of_several_lines() -> None:
    text = "a=1,\n" * 30 + "b==2" + ",\nc=3" * 30
    with pytest.raises(ProfileError) as caught:
        parse(text)
    _, shown, caret = str(caught.value).split("\n")
    assert shown[caret.index("^") :].startswith("==2")
    assert len(shown) < 80


# Bounds


@pytest.mark.parametrize(
    ("fits", "too_much"),
    [
        (
            "a=" + "x" * (PROFILE_CHARACTERS_MAX - 2),
            "a=" + "x" * (PROFILE_CHARACTERS_MAX - 1),
        ),
        (
            "(" * PROFILE_NESTING_MAX + "a" + ")" * PROFILE_NESTING_MAX,
            "(" * (PROFILE_NESTING_MAX + 1) + "a" + ")" * (PROFILE_NESTING_MAX + 1),
        ),
        ("/".join("a" * PROFILE_LEVELS_MAX), "/".join("a" * (PROFILE_LEVELS_MAX + 1))),
        (",".join("a" * PROFILE_ELEMENTS_MAX), ",".join("a" * (PROFILE_ELEMENTS_MAX + 1))),
        ("(" * 4 + "a" + ")" * 4, "(" * 8_000),
    ],
)
def test_a_profile_is_bounded(fits: str, too_much: str) -> None:
    assert parse(fits)
    with pytest.raises(ProfileError, match="at most"):
        parse(too_much)


def test_elements_are_counted_over_all_levels() -> None:
    half = ",".join("a" * (PROFILE_ELEMENTS_MAX // 2))
    assert parse(f"{half}/{half}")
    with pytest.raises(ProfileError, match="at most 256 elements"):
        parse(f"{half}/{half},b")


def test_a_text_that_grows_when_written_out_is_bounded_too() -> None:
    with pytest.raises(ProfileError, match="written out"):
        parse('a="' + "\x01" * 4_000 + '"')


def test_alternatives_are_multiplied_out_up_to_a_bound() -> None:
    pairs = "(a|b), (c|d), (e|f), (g|h), (i|j), (k|l)"
    assert len(parse(pairs).alternatives()) == PROFILE_ALTERNATIVES_MAX
    with pytest.raises(ProfileError, match="128 alternatives"):
        parse(f"{pairs} / m|n").alternatives()
    vast = ", ".join("(a|b)" for _ in range(128))
    with pytest.raises(ProfileError, match="alternatives"):
        parse(vast).alternatives()


@pytest.mark.parametrize(
    ("attribute", "pattern"),
    [
        ("5a", Bare()),
        ("a..b", Bare()),
        ("", Bare()),
        ("a\n", Bare()),
        ("a", Absent()),
        ("a", number(2**63)),
        ("a", number(float("inf"))),
        ("a", number(True)),
        ("a", Interval(6, 5)),
        ("a", Interval(1, 2, high_open=True)),
        ("a", Interval(1, None, high_open=True)),
        ("a", Keyword("\ud800")),
    ],
)
def test_what_could_not_be_written_can_not_be_built(attribute: str, pattern: Pattern) -> None:
    with pytest.raises(ProfileError):
        Element(attribute, pattern)


def test_trees_can_not_outgrow_the_bounds() -> None:
    a = Element("a")
    with pytest.raises(ProfileError, match="two or more"):
        And((a,))
    with pytest.raises(ProfileError, match="1 to 16 levels"):
        Profile(())
    deep: And | Or | Element = a
    for _ in range(PROFILE_NESTING_MAX):
        deep = And((a, Or((a, deep))))
    with pytest.raises(ProfileError, match="deep"):
        And((a, Or((a, deep))))
    wide = And((a,) * PROFILE_ELEMENTS_MAX)
    with pytest.raises(ProfileError, match="at most 256 elements"):
        Or((wide, a))


def test_only_a_text_can_be_parsed() -> None:
    with pytest.raises(ProfileError, match="not bytes"):
        parse(b"a=1")  # type: ignore[arg-type]


# Views


def test_alternatives_are_paths_of_conjunctions() -> None:
    paths = parse("a, (b | c) // d | e").alternatives()
    names = [[[e.attribute for e in step.elements] for step in path] for path in paths]
    assert names == [
        [["a", "b"], ["d"]],
        [["a", "b"], ["e"]],
        [["a", "c"], ["d"]],
        [["a", "c"], ["e"]],
    ]
    assert {path[1].axis for path in paths} == {Axis.DESCENDANT}
    assert len(parse("a | a").alternatives()) == 1


def test_an_interest_by_attribute_is_what_a_region_is_made_of() -> None:
    assert parse("temperature, degree>80, degree<90 / unit=Fa* | degree=*").by_attribute() == (
        {
            "temperature": (Anything(),),
            "degree": (Interval(80, None, low_open=True), Interval(None, 90, high_open=True)),
            "unit": (Prefix("Fa"),),
        },
        {
            "temperature": (Anything(),),
            "degree": (
                Interval(80, None, low_open=True),
                Interval(None, 90, high_open=True),
                Anything(),
            ),
        },
    )


def test_data_by_attribute_are_as_they_are() -> None:
    assert parse("temperature, degree=100 / degree=5").data_by_attribute() == {
        "temperature": (Bare(),),
        "degree": (number(100), number(5)),
    }
    assert parse("a=*, b=x*").data_by_attribute() == {"a": (Anything(),), "b": (Prefix("x"),)}


def test_attributes() -> None:
    assert parse("a, (b=1 | c) / a // d").attributes() == {"a", "b", "c", "d"}


def test_data_are_a_conjunction_on_a_path() -> None:
    path = parse("site=lab / temperature, degree=100, error<0.01").as_data()
    assert [len(step.elements) for step in path] == [1, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a | b", r"'a \| b'.*leaves open which"),
        ("x, (a | b)", r"'a \| b'.*leaves open which"),
        ("a // b=1", "'// b=1'.*leaves open where"),
        ("//a", "'// a'.*leaves open where"),
        ("unit=Fa*", r"'unit=Fa\*'.*many values"),
        ("a / unit=*", r"'unit=\*'.*many values"),
        ("a=1, b, a=2", "both 'a=1' and 'a=2'"),
    ],
)
def test_what_data_can_not_be(text: str, words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        parse(text).as_data()


def test_an_advertisement_may_have_prefixes_and_stars() -> None:
    assert len(parse("type=temp*, degree=* / unit").as_advertisement()) == 2
    for text in ("a | b", "a // b", "a=1, a=2"):
        with pytest.raises(ProfileError):
            parse(text).as_advertisement()
