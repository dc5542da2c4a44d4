"""Spaces: read from TOML, wrong in every way they can be, and used to make regions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squid import (
    Absent,
    Anything,
    Bare,
    CodecError,
    Dimension,
    Interval,
    Keyword,
    Prefix,
    Space,
    SpaceError,
    number,
)
from squid.codecs import KeywordCodec
from squid.space import CODECS

LAB = """
name = "lab"
version = 1

[[dimension]]
name = "type"
codec = "keyword"

[[dimension]]
name = "degree"
codec = "number"
min = -40
max = 150
scale = "linear"

[[dimension]]
name = "unit"
codec = "keyword"
"""
ONE = '[[dimension]]\nname = "a"\ncodec = "keyword"\n'
HEAD = 'name = "lab"\nversion = 1\n'


@pytest.fixture
def lab():
    return Space.from_toml(LAB)


def test_a_space_with_its_defaults(lab):
    assert (lab.name, lab.version, lab.curve_name, lab.bits) == ("lab", 1, "hilbert-1", 21)
    assert [dimension.name for dimension in lab.dimensions] == ["type", "degree", "unit"]
    assert lab.shift == 0
    assert Space.from_toml(HEAD + ONE).bits == 32
    assert Space.from_toml(HEAD + ONE).shift == 31
    assert Space.from_toml(HEAD + ONE + ONE.replace('"a"', '"b"')).bits == 31


def test_the_paper_s_data_and_interest_meet(lab):
    data = lab.point_region(
        {"type": [Keyword("temperature")], "degree": [number(91)], "unit": [Keyword("Fahrenheit")]}
    )
    interest = lab.region(
        [{"type": [Keyword("temperature")], "degree": [Interval(80, 120)], "unit": [Prefix("Fa")]}]
    )
    assert data.is_point
    assert data.lowest in interest
    assert interest.intersect(data) == data
    elsewhere = lab.region([{"degree": [Interval(0, 50)]}])
    assert not elsewhere.intersect(data)


def test_what_an_interest_leaves_out_is_the_whole_axis_and_what_data_leave_out_is_absent(lab):
    last = (1 << 21) - 1
    (box,) = lab.region([{"degree": [Anything()]}]).boxes
    assert box == ((0, last), (1, last), (0, last))
    (box,) = lab.region([{"degree": [Bare()]}], missing=Absent()).boxes
    assert box == ((0, 0), (1, 1), (0, 0))
    assert lab.point_region({"note": [Keyword("no dimension")]}).boxes == (((0, 0),) * 3,)


def test_all_patterns_of_an_attribute_must_hold(lab):
    both = lab.region([{"degree": [Interval(0, None), Interval(None, 50)]}])
    assert both == lab.region([{"degree": [Interval(0, 50)]}])
    assert not lab.region([{"degree": [Interval(None, 0), Interval(50, None)]}])
    assert not lab.region([{"degree": [Interval(5, 4)]}])
    assert not lab.region([])


def test_alternatives_are_boxes_and_equal_ones_are_one(lab):
    fan, window = {"type": [Keyword("fan")]}, {"type": [Keyword("window")]}
    assert len(lab.region([fan, window, fan]).boxes) == 2
    assert lab.region([fan, {}]) == lab.region([{}])


def test_data_with_a_range_are_more_than_a_point(lab):
    region = lab.point_region({"type": [Keyword("error")], "degree": [Interval(None, 0.01)]})
    assert not region.is_point
    assert len(region.boxes) == 1
    assert not lab.point_region({"degree": [Interval(2, 1)]})


@given(st.integers(-60, 200), st.integers(-60, 200), st.floats(-60, 200), st.sampled_from("abc"))
@settings(max_examples=100, deadline=None)
def test_data_within_an_interest_lie_in_its_region(low, high, degree, kind):
    lab = Space.from_toml(LAB)
    interest = lab.region([{"degree": [Interval(low, high)]}, {"type": [Keyword("a")]}])
    data = lab.point_region({"degree": [number(degree)], "type": [Keyword(kind)]})
    if low <= degree <= high or kind == "a":
        assert data.lowest in interest
        assert interest.meets(data.lowest, data.lowest)


def test_errors_name_the_attribute(lab):
    with pytest.raises(CodecError, match="degree: is a number here, and the text 'warm' is not"):
        lab.region([{"degree": [Keyword("warm")]}])
    with pytest.raises(CodecError, match="degree: is a number"):
        lab.point_region({"degree": [Keyword("warm")]})


def test_identifiers_fill_the_ring():
    space = Space.from_toml(HEAD + "bits = 4\n" + ONE)
    assert space.identifier((15,)) == 15 << 59
    assert space.region([{}]).next((15 << 59) + 1) is None


def test_the_definition_round_trips_and_has_a_fingerprint(lab):
    again = Space.from_toml(lab.to_toml())
    assert again == lab
    assert hash(again) == hash(lab)
    assert again.fingerprint() == lab.fingerprint()
    assert len(lab.fingerprint()) == 16
    for old, new in [("150", "151"), ('"linear"', '"linear"\n#'), ("version = 1", "version = 2")]:
        other = Space.from_toml(LAB.replace(old, new))
        assert (other.fingerprint() == lab.fingerprint()) == ("#" in new)
    closed = HEAD + 'closed = true\nattributes = ["note", "a.b-c"]\n' + ONE
    assert Space.from_toml(Space.from_toml(closed).to_toml()) == Space.from_toml(closed)


def test_the_fingerprint_is_what_peers_already_compare(lab):
    assert lab.fingerprint() == "0a8941e875e0d142"


def test_a_closed_space_knows_its_dimensions_and_attributes():
    closed = Space.from_toml(HEAD + 'closed = true\nattributes = ["note"]\n' + ONE)
    assert closed.knows("a")
    assert closed.knows("note")
    assert not closed.knows("b")
    assert Space.from_toml(HEAD + ONE).knows("b")


WRONG = {
    "not TOML": ("name = \nversion = 1", "defined in TOML, and this is not: .*line 1"),
    "unknown key": (HEAD + "colour = 1\n" + ONE, "unknown key 'colour'; a space has name"),
    "no name": ("version = 1\n" + ONE, "^name is missing$"),
    "no version": ('name = "lab"\n' + ONE, "^version is missing$"),
    "no dimension": (HEAD, "^dimension is missing$"),
    "empty dimensions": (HEAD + "dimension = []", "1 to 8 dimensions, not 0"),
    "nine dimensions": (
        HEAD + "".join(ONE.replace('"a"', f'"a{i}"') for i in range(9)),
        "^a space has 1 to 8 dimensions, not 9$",
    ),
    "name of a wrong type": ("name = 3\nversion = 1\n" + ONE, "^name must be a text, not 3$"),
    "name with spaces": ('name = "my lab"\nversion = 1\n' + ONE, "name 'my lab' must be a letter"),
    "version true": (
        'name = "lab"\nversion = true\n' + ONE,
        "^version must be a whole number, not",
    ),
    "version 0": ('name = "lab"\nversion = 0\n' + ONE, "^version must be 1 or more, not 0$"),
    "curve": (
        HEAD + 'curve = "z-order"\n' + ONE,
        "^unknown curve 'z-order'; there is \"hilbert-1\"",
    ),
    "curve of a wrong type": (HEAD + "curve = 1\n" + ONE, "^curve must be a text, not 1$"),
    "closed": (HEAD + "closed = 1\n" + ONE, "^closed must be true or false, not 1$"),
    "attributes": (HEAD + "attributes = [1]\n" + ONE, "^attributes must be a list of texts$"),
    "attribute name": (
        HEAD + 'attributes = ["1a"]\n' + ONE,
        "^attribute name '1a' must be a letter",
    ),
    "attribute twice": (
        HEAD + 'attributes = ["x", "x"]\n' + ONE,
        "^attribute 'x' is there 2 times",
    ),
    "bits of a wrong type": (HEAD + "bits = 2.5\n" + ONE, "^bits must be a whole number, not 2.5$"),
    "no bits": (HEAD + "bits = 0\n" + ONE, "^bits must be 1 to 63 with 1 dimensions, not 0$"),
    "too many bits": (LAB.replace("[[", "bits = 22\n[[", 1), "^bits must be 1 to 21 with 3 dim"),
    "dimension no table": (HEAD + "dimension = 1", "^dimension must be a list of tables"),
    "dimension twice": (HEAD + ONE + ONE, "^dimension 'a' is there 2 times$"),
    "dimension name": (
        HEAD + ONE.replace('"a"', '"a b"'),
        "^dimension name 'a b' must be a letter",
    ),
    "dimension without name": (
        HEAD + '[[dimension]]\ncodec = "keyword"',
        "^dimension 1: name is m",
    ),
    "dimension name type": (
        HEAD + ONE.replace('"a"', "1"),
        "^dimension 1: name must be a text, not 1",
    ),
    "no codec": (
        HEAD + '[[dimension]]\nname = "a"',
        "^dimension a: codec is missing; there are key",
    ),
    "codec": (
        HEAD + ONE.replace("keyword", "key"),
        "a: unknown codec 'key'; there are keyword, num",
    ),
    "codec type": (HEAD + ONE.replace('"keyword"', "1"), "^dimension a: unknown codec 1"),
    "keyword with min": (HEAD + ONE + "min = 1", "^dimension a: a keyword codec has no 'min'$"),
    "number with unit": (
        LAB.replace("scale", "unit"),
        "^dimension degree: a number codec has no 'unit",
    ),
    "no min": (LAB.replace("min = -40", ""), "^dimension degree: a number codec needs min$"),
    "no max": (LAB.replace("max = 150", ""), "^dimension degree: a number codec needs max$"),
    "min of a wrong type": (
        LAB.replace("-40", "true"),
        "^dimension degree: min must be a number, not",
    ),
    "min is max": (LAB.replace("-40", "150"), "degree: min must be less than max, but 150 is not"),
    "NaN": (LAB.replace("-40", "nan"), "degree: min and max must be finite numbers, not nan"),
    "infinity": (LAB.replace("150", "inf"), "degree: min and max must be finite numbers, not -40"),
    "log of less than 0": (LAB.replace("linear", "log"), "degree: a log scale needs a min above 0"),
    "scale": (
        LAB.replace("linear", "cubic"),
        'degree: scale must be "linear" or "log", not \'cubic',
    ),
    "scale type": (LAB.replace('"linear"', "[]"), 'degree: scale must be "linear" or "log", not'),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_way_a_space_can_be_wrong_has_its_message(case):
    text, message = WRONG[case]
    with pytest.raises(SpaceError, match=message) as caught:
        Space.from_toml(text)
    assert len(caught.value.problems) == 1


def test_all_that_is_wrong_is_said_at_once():
    text = 'version = 0\ncolour = 1\n[[dimension]]\nname = "a"\ncodec = "number"\nmin = "x"\n'
    with pytest.raises(SpaceError) as caught:
        Space.from_toml(text)
    keys = "name, version, dimension, curve, bits, closed, attributes"
    assert str(caught.value).splitlines() == [
        f"unknown key 'colour'; a space has {keys}",
        "name is missing",
        "version must be 1 or more, not 0",
        "dimension a: min must be a number, not 'x'",
        "dimension a: a number codec needs max",
    ]


def test_a_space_made_by_hand_is_checked_too():
    with pytest.raises(SpaceError) as caught:
        Space("my lab", 1, (Dimension("a", KeywordCodec(8)),) * 2, 40)
    assert len(caught.value.problems) == 3


def test_another_codec_needs_one_entry(monkeypatch):
    monkeypatch.setitem(CODECS, "word", KeywordCodec.from_table)
    assert Space.from_toml(HEAD + ONE.replace("keyword", "word")).dimensions[0].name == "a"
