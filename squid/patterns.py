"""What a value may be, in data or in an interest: the words profiles and codecs share.

Data mostly carry keywords and numbers (a number is an interval of one point); interests also use
prefixes, intervals and `Anything`. Two relations between patterns are all that matching needs:
`within` (every value of this one is a value of that one) and `overlaps` (they share a value).
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeGuard

Number = int | float


@dataclass(frozen=True, slots=True)
class Keyword:
    """One exact text."""

    text: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """Every text that starts so: `comp*`. A number counts by the way it is written."""

    text: str


@dataclass(frozen=True, slots=True)
class Interval:
    """A range of numbers, or of texts by code point; `None` leaves an end open-ended."""

    low: Number | str | None
    high: Number | str | None
    low_open: bool = False
    high_open: bool = False

    def __post_init__(self) -> None:
        ends = [end for end in (self.low, self.high) if end is not None]
        if not ends:
            raise ValueError("an interval needs at least one end; Anything() has none")
        if len({isinstance(end, str) for end in ends}) > 1:
            raise ValueError(
                f"an interval can't mix a text and a number: {self.low!r}..{self.high!r}"
            )
        if any(isinstance(end, float) and math.isnan(end) for end in ends):
            raise ValueError("an interval can't end at NaN")

    @property
    def of_text(self) -> bool:
        """True when the ends are texts."""
        return isinstance(self.low, str) or isinstance(self.high, str)

    @property
    def is_number(self) -> bool:
        """True for exactly one number."""
        return self.low is not None and self.low == self.high and not self.of_text


@dataclass(frozen=True, slots=True)
class Anything:
    """Any value at all, as long as there is one: `attr=*`."""


@dataclass(frozen=True, slots=True)
class Bare:
    """The attribute alone, without a value: `temperature`."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The attribute is not there."""


Pattern = Keyword | Prefix | Interval | Anything | Bare | Absent


def number(value: Number) -> Interval:
    """Return the pattern for one number."""
    return Interval(value, value)


def number_text(value: Number) -> str:
    """Return a number as profiles write it: whole floats without their `.0`."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(value)


def within(value: Pattern, wanted: Pattern) -> bool:
    """Return whether every value of the first pattern is a value of the second.

    A range of several numbers is within a prefix only when that is `""*`, which takes all. An
    empty interval is within nothing, so `within` always implies `overlaps`.
    """
    if isinstance(value, Bare | Absent) or isinstance(wanted, Bare | Absent):
        return type(value) is type(wanted)
    if _is_empty(value):
        return False
    if isinstance(wanted, Anything):
        return True
    if isinstance(value, Anything):
        return wanted == Prefix("")
    if _of_numbers(value):
        if isinstance(wanted, Prefix):
            return not wanted.text or (
                value.is_number and _written(value.low).startswith(wanted.text)
            )
        return _of_numbers(wanted) and _numbers_within(value, wanted)
    if _of_numbers(wanted):
        return False
    if isinstance(value, Prefix) and not isinstance(wanted, Prefix) and _numbers_like(value.text):
        return False
    low, high = text_span(value)
    wanted_low, wanted_high = text_span(wanted)
    return wanted_low <= low and (wanted_high is None or (high is not None and high <= wanted_high))


def overlaps(one: Pattern, other: Pattern) -> bool:
    """Return whether the two patterns share a value; an empty interval shares none.

    Numbers count as dense: an open interval between two neighbouring floats is not empty.
    """
    if isinstance(one, Bare | Absent) or isinstance(other, Bare | Absent):
        return type(one) is type(other)
    if _is_empty(one) or _is_empty(other):
        return False
    if isinstance(one, Anything) or isinstance(other, Anything):
        return True
    if _of_numbers(other):
        one, other = other, one
    if _of_numbers(one):
        if isinstance(other, Prefix):
            return _numbers_meet_prefix(one, other.text)
        return _of_numbers(other) and _numbers_overlap(one, other)
    low, high = text_span(one)
    other_low, other_high = text_span(other)
    return (high is None or other_low < high) and (other_high is None or low < other_high)


def _of_numbers(pattern: Pattern) -> TypeGuard[Interval]:
    return isinstance(pattern, Interval) and not pattern.of_text


def _is_empty(pattern: Pattern) -> bool:
    if not isinstance(pattern, Interval):
        return False
    if pattern.of_text:
        low, high = text_span(pattern)
        return high is not None and low >= high
    return _between_nothing(_ends(pattern))


def text_span(pattern: Pattern) -> tuple[str, str | None]:
    """Return the texts of a pattern as `low <= text < high`; None for no upper end.

    Exact for code points: nothing lies between a text and the same text with a NUL behind it, and
    the texts with a prefix end where its last character that can be raised is raised by one.
    """
    if isinstance(pattern, Keyword):
        return pattern.text, pattern.text + "\0"
    if isinstance(pattern, Prefix):
        stem = pattern.text.rstrip(chr(sys.maxunicode))
        return pattern.text, stem[:-1] + chr(ord(stem[-1]) + 1) if stem else None
    assert isinstance(pattern, Interval)
    low = "" if pattern.low is None else str(pattern.low) + "\0" * pattern.low_open
    high = None if pattern.high is None else str(pattern.high) + "\0" * (not pattern.high_open)
    return low, high


# The ends of a set of numbers: low, low_open, high, high_open. Fractions, because a prefix such as
# `8.1*` begins at exactly 81/10, which is no float.
Ends = tuple[Number | Fraction | None, bool, Number | Fraction | None, bool]


def _ends(interval: Interval) -> Ends:
    assert not isinstance(interval.low, str)
    assert not isinstance(interval.high, str)
    return interval.low, interval.low_open, interval.high, interval.high_open


def _between_nothing(ends: Ends) -> bool:
    low, low_open, high, high_open = ends
    if low is None or high is None:
        return False
    return low > high or (low == high and (low_open or high_open))


def _numbers_within(value: Interval, wanted: Interval) -> bool:
    low, low_open, high, high_open = _ends(value)
    wanted_low, wanted_low_open, wanted_high, wanted_high_open = _ends(wanted)
    if wanted_low is not None and (
        low is None or low < wanted_low or (low == wanted_low and wanted_low_open and not low_open)
    ):
        return False
    return wanted_high is None or not (
        high is None
        or high > wanted_high
        or (high == wanted_high and wanted_high_open and not high_open)
    )


def _numbers_overlap(one: Interval, other: Interval) -> bool:
    return _ends_overlap(_ends(one), _ends(other))


def _ends_overlap(one: Ends, other: Ends) -> bool:
    return not (
        _between_nothing((one[0], one[1], other[2], other[3]))
        or _between_nothing((other[0], other[1], one[2], one[3]))
    )


def _numbers_meet_prefix(interval: Interval, prefix: str) -> bool:
    if interval.is_number:
        return _written(interval.low).startswith(prefix)
    ends = _ends(interval)
    return any(_ends_overlap(ends, like) for like in _numbers_like(prefix))


def _written(end: Number | str | None) -> str:
    assert isinstance(end, int | float)
    return number_text(end)


_NUMBER_START = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]*)?(e.*)?", re.ASCII)
_TINY = range(-324, -4)  # the powers of ten at which a float is written with an exponent
_HUGE = range(16, 309)


@lru_cache(maxsize=256)
def _numbers_like(prefix: str) -> tuple[Ends, ...]:
    """Return where the numbers lie whose `number_text` starts so, up to the largest float."""
    if not prefix:
        return ((None, False, None, False),)
    if prefix == "-":
        return ((None, False, 0, True),)
    if prefix.startswith("-"):
        mirrored = _numbers_like(prefix[1:]) if prefix[1] != "-" else ()
        return tuple(
            (-high, high_open, -low, low_open)
            for low, low_open, high, high_open in mirrored
            if low is not None and high is not None and high != 0
        )
    match = _NUMBER_START.fullmatch(prefix)
    if match is None:
        return ()
    whole, fraction, exponent = match.groups()
    if exponent:
        texts = [f"{whole}{fraction or ''}e{power:+03d}" for power in (*_TINY, *_HUGE)]
        points = [float(text) for text in texts if text.startswith(prefix)]
        return tuple((x, False, x, False) for x in points if repr(x).startswith(prefix))

    digits = (fraction or ".")[1:]
    if len(whole) > 309 or len(digits) > 20:  # longer than any number is written
        return ()
    low = Fraction(f"{whole}.{digits}0")
    high = low + Fraction(1, 10 ** len(digits))
    # 8 is written "8", so it does not start with "8." or "8.0"; whole floats past 2**53 do.
    low_open = fraction is not None and (not digits or digits[-1] == "0") and low < 2**53
    found: list[Ends] = []
    if fraction is not None or whole == "0":
        if fraction is None:
            found.append((0, False, 0, False))
        # Below 0.0001, and from 10**16 on, floats are written with an exponent.
        shortest = Fraction(1, 10_000)
        found.append(
            (max(low, shortest), low_open and low >= shortest, min(high, Fraction(10**16)), True)
        )
    else:
        found += [(low * 10**power, False, high * 10**power, True) for power in range(310)]
    if len(whole) == 1 and whole != "0":
        scales = [Fraction(10) ** power for power in (*_TINY, *_HUGE)]
        found += [(low * scale, low_open, high * scale, True) for scale in scales]
    return tuple(ends for ends in found if not _between_nothing(ends))
