"""Profiles as trees: elements, what joins them, and the canonical way to write them.

The trees keep one normal form (no And in an And, no Or in an Or, whole floats as integers), so
equal profiles have equal texts. What could not be written can't be built.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from arms.errors import ProfileError
from arms.limits import (
    PROFILE_CHARACTERS_MAX,
    PROFILE_ELEMENTS_MAX,
    PROFILE_LEVELS_MAX,
    PROFILE_NESTING_MAX,
)
from squid.patterns import (
    Absent,
    Anything,
    Bare,
    Interval,
    Keyword,
    Number,
    Pattern,
    Prefix,
    number_text,
)

# The words of the language, for writing here and for reading in the grammar.
ATTRIBUTE = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_-]++|\.(?!\.))*")
WORD = re.compile(r"(?:[A-Za-z0-9_\-:+@#%]++|[^\x00-\x7f\s]|\.(?!\.))+")
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


class Axis(enum.Enum):
    """How a level lies under the one before it."""

    CHILD = "/"
    DESCENDANT = "//"


@dataclass(frozen=True, slots=True)
class Element:
    """An attribute and what is asked of it: `degree>80`, or `temperature` alone (`Bare`)."""

    attribute: str
    pattern: Pattern = field(default_factory=Bare)
    size: ClassVar[int] = 1
    nesting: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not ATTRIBUTE.fullmatch(self.attribute):
            raise ProfileError(
                f"{self.attribute!r} can't name an attribute: "
                "a letter or _ first, then letters, digits, _ - and single dots"
            )
        normal = _normal_pattern(self.pattern)
        if normal is not self.pattern:
            object.__setattr__(self, "pattern", normal)

    def __str__(self) -> str:
        return self.attribute + _pattern_text(self.pattern)


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more items of one level."""

    items: tuple[Expression, ...]
    size: int = field(init=False, repr=False, compare=False)
    nesting: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _settle(self)

    def __str__(self) -> str:
        return ", ".join([f"({x})" if isinstance(x, Or) else str(x) for x in self.items])


@dataclass(frozen=True, slots=True)
class Or:
    """Any of two or more items of one level."""

    items: tuple[Expression, ...]
    size: int = field(init=False, repr=False, compare=False)
    nesting: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _settle(self)

    def __str__(self) -> str:
        return " | ".join(map(str, self.items))


Expression = And | Or | Element


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a profile's path."""

    axis: Axis
    expression: Expression


class Step(NamedTuple):
    """One level of a path without alternatives: all of these elements."""

    axis: Axis
    elements: tuple[Element, ...]


Path = tuple[Step, ...]


def levels_text(levels: tuple[Level, ...]) -> str:
    """Return the canonical text of levels."""
    if not 1 <= len(levels) <= PROFILE_LEVELS_MAX:
        raise ProfileError(f"a profile has 1 to {PROFILE_LEVELS_MAX} levels, not {len(levels)}")
    size = sum([level.expression.size for level in levels])
    if size > PROFILE_ELEMENTS_MAX:
        raise ProfileError(f"a profile has at most {PROFILE_ELEMENTS_MAX} elements, not {size:,}")
    text = "//" if levels[0].axis is Axis.DESCENDANT else ""
    text += str(levels[0].expression)
    for level in levels[1:]:
        text += f" {level.axis.value} {level.expression}"
    if len(text) > PROFILE_CHARACTERS_MAX:
        raise ProfileError(
            f"a profile has at most {PROFILE_CHARACTERS_MAX:,} characters; "
            f"written out, this has {len(text):,}"
        )
    return text


def by_attribute(pairs: Iterable[tuple[str, Pattern]]) -> dict[str, tuple[Pattern, ...]]:
    """Return the different patterns of each attribute, in order."""
    patterns: dict[str, tuple[Pattern, ...]] = {}
    for attribute, pattern in pairs:
        known = patterns.get(attribute, ())
        if pattern not in known:
            patterns[attribute] = (*known, pattern)
    return patterns


# Normal form


def _settle(group: And | Or) -> None:
    """Flatten a group into its own kind and measure it, so that no tree outgrows the bounds."""
    kind = type(group)
    items: list[Expression] = []
    size = nesting = 0
    for item in group.items:
        if isinstance(item, Element):
            items.append(item)
            size += 1
        else:
            items += item.items if isinstance(item, kind) else (item,)
            size += item.size
            nesting = max(nesting, item.nesting + (kind is And and isinstance(item, Or)))
    if len(items) < 2:
        raise ProfileError(f"{kind.__name__} joins two or more items, not {len(items)}")
    if size > PROFILE_ELEMENTS_MAX:
        raise ProfileError(f"a profile has at most {PROFILE_ELEMENTS_MAX} elements, not {size:,}")
    if nesting > PROFILE_NESTING_MAX:
        raise ProfileError(f"brackets nest at most {PROFILE_NESTING_MAX} deep")
    object.__setattr__(group, "items", tuple(items))
    object.__setattr__(group, "size", size)
    object.__setattr__(group, "nesting", nesting)


def _normal_pattern(pattern: Pattern) -> Pattern:
    if isinstance(pattern, (Keyword, Prefix)):
        _check_text(pattern.text)
        return pattern
    if isinstance(pattern, Interval):
        return _normal_interval(pattern)
    if isinstance(pattern, (Anything, Bare)):
        return pattern
    if isinstance(pattern, Absent):
        raise ProfileError("a profile can't ask for an attribute that is not there")
    raise ProfileError(f"{pattern!r} is no pattern")


def _normal_interval(given: Interval) -> Interval:
    low = _normal_end(given.low)
    high = low if given.high is given.low else _normal_end(given.high)
    if (low is None and given.low_open) or (high is None and given.high_open):
        raise ProfileError("an end that is not there can't be open")
    if low is not None and high is not None:
        if given.low_open or given.high_open:
            raise ProfileError("low..high takes in both ends; use < and > for the rest")
        if low > high:  # type: ignore[operator]  # Interval mixes no text and number
            shown, turned = _end_text(low), _end_text(high)
            raise ProfileError(
                f"the range {shown}..{turned} is empty; did you mean {turned}..{shown}?"
            )
    elif high == "" and given.high_open:
        raise ProfileError('no text comes before the empty text ""')
    if low is given.low and high is given.high:
        return given
    return Interval(low, high, given.low_open, given.high_open)


def _normal_end(end: Number | str | None) -> Number | str | None:
    if end is None:
        return None
    if isinstance(end, str):
        _check_text(end)
        return end
    if isinstance(end, bool) or not isinstance(end, (int, float)):
        raise ProfileError(f"{end!r} is no number")
    if not math.isfinite(end):
        raise ProfileError("a number has to be finite")
    if isinstance(end, float):
        # 2.0**60 equals 2**60, so both have to be written alike.
        return int(end) if end.is_integer() and fits_63_bits(end) else float(end)
    if not fits_63_bits(end):
        raise ProfileError(f"the integer {end} does not fit in 63 bits; use a float")
    return end


def fits_63_bits(value: Number) -> bool:
    """Return whether an integer of this size stays one; beyond, numbers are floats."""
    return -(2**63) <= value < 2**63


_SURROGATE = re.compile("[\ud800-\udfff]")


def _check_text(text: str) -> None:
    if not text.isascii() and _SURROGATE.search(text):
        raise ProfileError("half a surrogate pair is no character; write the character itself")


# Writing

_ESCAPES_BY_CHAR = {char: name for name, char in ESCAPES.items()}


def _pattern_text(pattern: Pattern) -> str:
    if isinstance(pattern, Keyword):
        return "=" + _end_text(pattern.text)
    if isinstance(pattern, Interval) and pattern.is_number:
        return "=" + _end_text(pattern.low)
    match pattern:
        case Anything():
            return "=*"
        case Prefix(text):
            return f"={text if _is_plain(text) else _quoted(text)}*"
        case Interval(low, None, low_open):
            return (">" if low_open else ">=") + _end_text(low)
        case Interval(None, high, _, high_open):
            return ("<" if high_open else "<=") + _end_text(high)
        case Interval(low, high):
            return f"={_end_text(low)}..{_end_text(high)}"
    return ""


def _end_text(end: Number | str | None) -> str:
    if not isinstance(end, str):
        assert end is not None
        return number_text(end)
    if end.isidentifier():  # as most are, and it is quick
        return end
    return end if _is_plain(end) and not NUMBER.fullmatch(end) else _quoted(end)


def _is_plain(text: str) -> bool:
    # A dot at an end would run into the two dots of a range.
    return bool(WORD.fullmatch(text)) and text.isprintable() and text.strip(".") == text


def _quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES_BY_CHAR:
        return "\\" + _ESCAPES_BY_CHAR[char]
    return char if char.isprintable() or ord(char) > 0xFFFF else f"\\u{ord(char):04x}"
