"""Which data an interest selects: the paper's claims, and brute force over all placements."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arms import And, Axis, Element, Level, Or, Path, Profile
from squid.patterns import (
    Anything,
    Bare,
    Interval,
    Keyword,
    Pattern,
    Prefix,
    number,
    overlaps,
    within,
)

parse = Profile.parse

SENSOR = parse("temperature, degree=100, unit=Fahrenheit, error<0.01")  # Figure 1 (a)
CLIENT = parse("temperature, degree>80, unit=Fa*, error<0.1")  # Figure 1 (b)


# The paper, sections 2.1 and 2.2


def test_figure_1_the_data_profile_is_selected_by_the_interest_profile() -> None:
    SENSOR.as_data()
    assert CLIENT.selects(SENSOR)
    assert not SENSOR.selects(CLIENT)


@pytest.mark.parametrize(
    "data",
    [
        "degree=100, unit=Fahrenheit, error<0.01",  # the singleton attribute is missing
        "temperature, degree=80, unit=Fahrenheit, error<0.01",
        "temperature, degree=100, unit=Celsius, error<0.01",
        "temperature, degree=100, unit=Fahrenheit, error<0.2",
        "temperature, degree=100, unit=Fahrenheit, error<=0.1",
        "temperature, degree=100, unit=Fahrenheit, error",
        "temperature, degree=100, unit=Fahrenheit",
        'temperature, degree="100", unit=Fahrenheit, error<0.01',
        "temperature / degree=100, unit=Fahrenheit, error<0.01",
    ],
)
def test_figure_1_every_element_is_needed(data: str) -> None:
    assert not CLIENT.selects(parse(data))


def test_number_and_order_of_the_pairs_are_not_restricted() -> None:
    assert CLIENT.selects(
        parse("error<0.01, room=12, unit=Fahrenheit, temperature=outside, degree=100")
    )


def test_a_partial_keyword_selects_the_keyword() -> None:
    assert parse("v=comp*").selects(parse("v=computer"))
    assert not parse("v=computer").selects(parse("v=comp"))


def test_figure_2_a_the_wildcard_interest_is_met_by_the_advertised_data() -> None:
    advertised, wanted = parse("p1=a, p2=b"), parse("p1=a, p2=*")
    advertised.as_advertisement()
    assert wanted.could_select(advertised)


def test_figure_2_b_and_c_the_wildcard_interest_selects_the_data() -> None:
    assert parse("p1=a, p2=*").selects(parse("p1=a, p2=b"))
    assert not parse("p1=a, p2=*").selects(parse("p1=b, p2=b"))


def test_figure_2_d_deleting_needs_the_same_or_a_wider_profile() -> None:
    narrow, wide = parse("p1=a, p2=b"), parse("p1=a, p2=*")
    assert narrow.selects(narrow)
    assert wide.selects(wide)
    assert wide.selects(narrow)
    assert not narrow.selects(wide)


def test_a_level_must_be_true_for_the_evaluation_to_continue() -> None:
    data = parse("site=lab / floor=2 / room=5, degree=91")
    assert parse("site=lab / floor=1..3 / degree>90").selects(data)
    assert not parse("site=lab / floor=3 / degree>90").selects(data)


def test_child_is_adjacent_and_descendant_is_any_level_below() -> None:
    data = parse("site=lab / floor=2 / room=5")
    assert parse("site=lab").selects(data)
    assert parse("site=lab // room=5").selects(data)
    assert parse("site=lab // floor=2").selects(data)
    assert parse("//room=5").selects(data)
    assert parse("//site=lab").selects(data)
    assert not parse("site=lab / room=5").selects(data)
    assert not parse("room=5").selects(data)
    assert not parse("site=lab // site=lab").selects(data)
    assert not parse("site=lab / floor=2 / room=5 / desk").selects(data)
    assert not parse("site=lab / floor=2 / room=5 // desk").selects(data)


def test_a_descendant_is_tried_at_every_level() -> None:
    data = parse("a / b=1 / a / b=2 / c")
    assert parse("//a / b=2").selects(data)
    assert parse("//a / b // a / b // c").selects(data)
    assert not parse("//b=1 / c").selects(data)


def test_presence_with_and_without_a_value() -> None:
    assert parse("a").selects(parse("a"))
    assert parse("a").selects(parse("a=5"))
    assert parse("a=*").selects(parse("a=5"))
    assert parse("a=*").selects(parse("a<5"))
    assert not parse("a=*").selects(parse("a"))
    assert not parse("a=5").selects(parse("a"))


def test_alternatives_and_brackets() -> None:
    interest = parse("(type=smoke | type=heat, degree>60), room=kitchen")
    assert interest.selects(parse("type=smoke, room=kitchen"))
    assert interest.selects(parse("type=heat, degree=70, room=kitchen"))
    assert not interest.selects(parse("type=heat, degree=50, room=kitchen"))
    assert not interest.selects(parse("type=smoke, room=hall"))


def test_several_patterns_on_one_attribute_all_hold() -> None:
    assert parse("a>5, a<10").selects(parse("a=7"))
    assert not parse("a>5, a<10").selects(parse("a=10"))
    assert not parse("a>5, a<10").selects(parse("a=5"))


def test_a_text_is_not_the_number_that_it_looks_like() -> None:
    assert not parse("a=91").selects(parse('a="91"'))
    assert not parse('a="91"').selects(parse("a=91"))
    assert parse("a=9*").selects(parse("a=91"))
    assert parse("a=9*").selects(parse('a="91"'))
    assert parse("a=91").selects(parse("a=91.0"))


# An interest over interests


def test_an_interest_selects_a_narrower_interest() -> None:
    assert parse("a=*").selects(parse("a=1 | a=2"))
    assert not parse("a=1").selects(parse("a=1 | a=2"))
    assert parse("a=5..10").selects(parse("a>5, a<10"))
    assert not parse("a=6..10").selects(parse("a>5, a<10"))
    assert parse("//a").selects(parse("x // a"))
    assert parse("x // a").selects(parse("x // a"))
    assert parse("x // a").selects(parse("x / a"))
    assert not parse("x / a").selects(parse("x // a"))
    assert not parse("a").selects(parse("//a"))


def test_an_advertisement_could_meet_an_interest() -> None:
    advertisement = parse("type=temp*, degree=60..90")
    assert parse("type=temperature, degree>80").could_select(advertisement)
    assert parse("type=t*").could_select(advertisement)
    assert not parse("type=temperature, degree>90").could_select(advertisement)
    assert not parse("type=temperature, room=5").could_select(advertisement)
    assert parse("degree=7*").could_select(advertisement)
    assert not parse("degree=5*").could_select(parse("degree=60..90"))
    assert not parse("degree=*").could_select(parse("degree"))


def test_an_interest_that_contradicts_itself_could_select_nothing() -> None:
    assert not parse("a<5, a>10").could_select(parse("a=*"))
    assert parse("a<5, a>10 | a=7").could_select(parse("a=*"))
    assert parse("a<5, a>10").selects(parse("a<5, a>10"))  # and so it can be deleted


# Brute force

few_patterns: st.SearchStrategy[Pattern] = st.sampled_from(
    [
        Bare(),
        Anything(),
        Keyword("a"),
        Keyword("ab"),
        Keyword("8"),
        Prefix("a"),
        Prefix("8"),
        Prefix(""),
        number(8),
        number(8.5),
        number(80),
        Interval(8, 80),
        Interval(8, None, low_open=True),
        Interval(None, 80),
        Interval(None, 80, high_open=True),
        Interval("a", "b"),
        Interval(None, "ab", high_open=True),
    ]
)
few_elements = st.builds(Element, st.sampled_from("xyz"), few_patterns)


def groups(inner: st.SearchStrategy[And | Or | Element]) -> st.SearchStrategy[And | Or | Element]:
    items = st.lists(inner, min_size=2, max_size=2).map(tuple)
    return items.map(And) | items.map(Or)


few_expressions = st.recursive(few_elements, groups, max_leaves=3)
interests = st.builds(
    Profile,
    st.lists(st.builds(Level, st.sampled_from(Axis), few_expressions), min_size=1, max_size=3).map(
        tuple
    ),
)


@st.composite
def advertisements(draw: st.DrawFn, *, concrete: bool = False) -> Profile:
    levels = []
    for _ in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from("xyz"), min_size=1, unique=True))
        elements = tuple(Element(name, draw(few_patterns)) for name in names)
        if concrete:
            fixed = Keyword("a")
            elements = tuple(
                Element(e.attribute, fixed) if isinstance(e.pattern, Prefix | Anything) else e
                for e in elements
            )
        expression = And(elements) if len(elements) > 1 else elements[0]
        levels.append(Level(Axis.CHILD, expression))
    return Profile(tuple(levels))


def step_fits(wanted: tuple[Element, ...], there: tuple[Element, ...], relation: object) -> bool:
    """The oracle for one level of data or an advertisement, where an attribute is there once."""
    found = {element.attribute: element.pattern for element in there}
    return all(
        element.attribute in found
        and (
            isinstance(element.pattern, Bare) or relation(found[element.attribute], element.pattern)  # type: ignore[operator]
        )
        for element in wanted
    )


def path_fits(wanted: Path, there: Path, relation: object) -> bool:
    """Try every way to put the steps on levels, in order."""
    for places in combinations(range(len(there)), len(wanted)):
        before = -1
        for place, step in zip(places, wanted, strict=True):
            if step.axis is Axis.CHILD and place != before + 1:
                break
            if not step_fits(step.elements, there[place].elements, relation):
                break
            before = place
        else:
            return True
    return False


def satisfiable(path: Path) -> bool:
    return all(
        overlaps(one.pattern, other.pattern)
        for step in path
        for one, other in combinations(step.elements, 2)
        if one.attribute == other.attribute
        and not any(isinstance(e.pattern, Bare) for e in (one, other))
    )


@given(interests, advertisements(concrete=True))
def test_selects_is_what_brute_force_finds(interest: Profile, data: Profile) -> None:
    path = data.as_data()
    expected = any(path_fits(wanted, path, within) for wanted in interest.alternatives())
    assert interest.selects(data) == expected
    assert interest.compile()(data) == expected


@given(interests, advertisements())
def test_could_select_is_what_brute_force_finds(interest: Profile, advertised: Profile) -> None:
    path = advertised.as_advertisement()
    expected = any(
        satisfiable(wanted) and path_fits(wanted, path, overlaps)
        for wanted in interest.alternatives()
    )
    assert interest.could_select(advertised) == expected


@given(interests, advertisements())
def test_what_is_selected_could_be_selected(interest: Profile, advertised: Profile) -> None:
    if interest.selects(advertised):
        assert interest.could_select(advertised)


@given(interests)
def test_every_interest_selects_itself(interest: Profile) -> None:
    assert interest.selects(interest)


@given(interests, interests, advertisements(concrete=True))
def test_a_wider_interest_selects_all_that_a_narrower_one_does(
    wide: Profile, narrow: Profile, data: Profile
) -> None:
    if wide.selects(narrow) and narrow.selects(data):
        assert wide.selects(data)


@given(st.data(), advertisements(concrete=True))
def test_data_are_selected_by_any_part_of_them(draw: st.DataObject, data: Profile) -> None:
    """Leaving out elements and trailing levels, and loosening `/` to `//`, only widens."""
    levels = []
    for step in data.as_data()[: draw.draw(st.integers(1, len(data.levels)))]:
        kept = draw.draw(st.lists(st.sampled_from(step.elements), min_size=1, unique=True))
        expression = And(tuple(kept)) if len(kept) > 1 else kept[0]
        levels.append(Level(draw.draw(st.sampled_from(Axis)), expression))
    assert Profile(tuple(levels)).selects(data)
