"""Codecs: from the patterns of one attribute to the cells of its axis, keeping order.

Cell 0 of every axis is for data without the attribute; values have cells 1 and up. The law of all
codecs: when two patterns share a value, their intervals share a cell; and the cell of data lies in
the interval of every pattern that their value is within. Routing may reach a cell too many, never
one too few, because matching is exact at the peers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

from squid.errors import CodecError, SpaceError
from squid.patterns import Absent, Anything, Bare, Interval, Keyword, Number, Pattern, Prefix
from squid.patterns import number_text as written

Cells = tuple[int, int]
"""From low to high, both included."""

Definition = dict[str, str | float | Sequence[str] | Sequence[float]]
"""A codec's part of a space's definition, by key."""

ABSENT_CELL = 0
BARE_CELL = 1


class Codec(Protocol):
    """What a dimension needs to know about its values."""

    def interval(self, pattern: Pattern) -> Cells | None:
        """Return the cells where values of the pattern may lie; None when it has no value."""

    def owned(self, pattern: Pattern) -> Cells:
        """Return the cells that one concrete value owns."""

    def cell(self, pattern: Pattern, salt: bytes = b"") -> int:
        """Return the cell of one concrete value; a salt may choose among cells that it owns."""

    def with_bits(self, bits: int) -> Codec:
        """Return the same codec for an axis of so many bits."""

    def describe(self) -> Definition:
        """Return the codec as the space's definition has it."""


class Axis(ABC):
    """What all codecs have in common: the cells of what is not there, and dither."""

    def cell(self, pattern: Pattern, salt: bytes = b"") -> int:
        """Return the cell of one concrete value; the salt chooses among those that it owns."""
        return one_of(self.owned(pattern), salt)

    def owned(self, pattern: Pattern) -> Cells:
        """Return the cells that one concrete value owns."""
        match pattern:
            case Absent():
                return ABSENT_CELL, ABSENT_CELL
            case Bare():
                return BARE_CELL, BARE_CELL
        return self._owned(pattern)

    @abstractmethod
    def _owned(self, pattern: Pattern) -> Cells:
        """Return the cells that a text or a number owns; `CodecError` for what is not one value."""


class TextAxis(Axis):
    """Text in code point order; a prefix is an interval, a number counts as it is written."""

    def __init__(self, bits: int) -> None:
        self._last = (1 << bits) - 1

    @abstractmethod
    def describe(self) -> Definition:
        """Return the codec as the space's definition has it."""

    @abstractmethod
    def _text_cells(self, text: str) -> Cells:
        """Return the cells that a text owns; both ends grow with the text."""

    @abstractmethod
    def _prefix_cells(self, text: str) -> Cells:
        """Return the cells of every text that starts so."""

    def interval(self, pattern: Pattern) -> Cells | None:
        """Return the cells where values of the pattern may lie; None when it has no value."""
        match pattern:
            case Absent():
                return ABSENT_CELL, ABSENT_CELL
            case Bare():
                return BARE_CELL, BARE_CELL
            case Keyword(text):
                return self._text_cells(text)
            case Prefix(text):
                return self._prefix_cells(text)
            case Interval() if _is_empty(pattern):
                return None
            case Interval(low=float() | int() as low) if pattern.is_number:
                cells = [self._text_cells(text) for text in _writings(low)]
                return min(cells)[0], max(cells)[1]
            case Interval(low, high) if pattern.of_text:
                return (
                    self._text_cells(low)[0] if isinstance(low, str) else BARE_CELL,
                    self._text_cells(high)[1] if isinstance(high, str) else self._last,
                )
        return BARE_CELL, self._last

    def _owned(self, pattern: Pattern) -> Cells:
        match pattern:
            case Keyword(text):
                return self._text_cells(text)
            case Interval(low=float() | int() as low) if pattern.is_number:
                return self._text_cells(written(low))
        raise CodecError(f"{pattern} is not one value")


class KeywordCodec(TextAxis):
    """Any text at all, by its first characters."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits)
        # Enough symbols to tell every cell apart.
        self._symbols = 1
        while BASE**self._symbols < self._last:
            self._symbols += 1
        self._scale: int = BASE**self._symbols

    @classmethod
    def from_table(cls, table: Mapping[str, object], bits: int) -> KeywordCodec:
        """Build it from its part of a space's definition."""
        if table:
            raise SpaceError([f"a keyword codec has no {quoted(table)}"])
        return cls(bits)

    def with_bits(self, bits: int) -> KeywordCodec:
        """Return the same codec for an axis of so many bits."""
        return KeywordCodec(bits)

    def describe(self) -> Definition:
        """Return the codec as the space's definition has it."""
        return {"codec": "keyword"}

    def _text_cells(self, text: str) -> Cells:
        cell = self._cell_of(text_number(text, self._symbols))
        return cell, cell

    def _prefix_cells(self, text: str) -> Cells:
        last = text_number(text, self._symbols, filler=BASE - 1)
        return self._text_cells(text)[0], self._cell_of(last)

    def _cell_of(self, number: int) -> int:
        return 1 + number * self._last // self._scale


class NumberAxis(Axis):
    """Numbers in their order; texts are refused."""

    def __init__(self, bits: int) -> None:
        self._last = (1 << bits) - 1

    @abstractmethod
    def describe(self) -> Definition:
        """Return the codec as the space's definition has it."""

    @abstractmethod
    def _number_cells(self, value: Number) -> Cells:
        """Return the cells that a number owns; both ends grow with the number."""

    def interval(self, pattern: Pattern) -> Cells | None:
        """Return the cells where values of the pattern may lie; None when it has no value."""
        match pattern:
            case Interval(low=low, high=high) if not pattern.of_text:
                if _is_empty(pattern):
                    return None
                return (
                    BARE_CELL
                    if low is None or isinstance(low, str)
                    else self._number_cells(low)[0],
                    self._last
                    if high is None or isinstance(high, str)
                    else self._number_cells(high)[1],
                )
            case Prefix() | Anything():
                # A number counts as it is written, and that order is not the numbers' own.
                return BARE_CELL, self._last
        cell = self.cell(pattern)
        return cell, cell

    def _owned(self, pattern: Pattern) -> Cells:
        match pattern:
            case Keyword(text):
                raise CodecError(f"is a number here, and the text {text!r} is not")
            case Interval() if pattern.of_text:
                end = pattern.low if pattern.low is not None else pattern.high
                raise CodecError(f"is a number here, and the text {end!r} is not")
            case Interval(low=float() | int() as low) if pattern.is_number:
                return self._number_cells(low)
        raise CodecError(f"{pattern} is not one value")


class NumberCodec(NumberAxis):
    """Numbers between two bounds; those outside fall into the edge cells, and so still meet."""

    def __init__(self, bits: int, minimum: Number, maximum: Number, scale: str = "linear") -> None:
        if scale not in ("linear", "log"):
            raise CodecError(f'the scale is "linear" or "log", not {scale!r}')
        try:
            self._minimum, self._maximum = float(minimum), float(maximum)
        except OverflowError:
            raise CodecError("min and max must be finite numbers that a float can hold") from None
        if not (math.isfinite(self._minimum) and math.isfinite(self._maximum)):
            raise CodecError(f"min and max must be finite numbers, not {minimum} and {maximum}")
        if self._minimum >= self._maximum:
            raise CodecError(f"min must be less than max, but {minimum} is not less than {maximum}")
        if scale == "log" and self._minimum <= 0:
            raise CodecError(f"a log scale needs a min above 0, not {minimum}")
        super().__init__(bits)
        self._scale = scale
        self._position: Callable[[float], float] = _octaves if scale == "log" else float
        self._origin = self._position(self._minimum)
        self._span = self._position(self._maximum) - self._origin
        if not 0 < self._span < math.inf:
            raise CodecError(f"{minimum} and {maximum} are too close together or too far apart")

    @classmethod
    def from_table(cls, table: Mapping[str, object], bits: int) -> NumberCodec:
        """Build it from its part of a space's definition."""
        problems = []
        unknown = table.keys() - {"min", "max", "scale"}
        if unknown:
            problems.append(f"a number codec has no {quoted(unknown)}, only min, max and scale")
        ends: list[Number] = []
        for key in ("min", "max"):
            value = table.get(key)
            if value is None:
                problems.append(f"a number codec needs {key}")
            elif isinstance(value, bool) or not isinstance(value, int | float):
                problems.append(f"{key} must be a number, not {value!r}")
            else:
                ends.append(value)
        scale = table.get("scale", "linear")
        if scale not in ("linear", "log"):
            problems.append(f'scale must be "linear" or "log", not {scale!r}')
        if len(ends) == 2:
            try:
                codec = cls(bits, ends[0], ends[1], "log" if scale == "log" else "linear")
            except CodecError as error:
                problems.append(str(error))
        if problems:
            raise SpaceError(problems)
        return codec

    def with_bits(self, bits: int) -> NumberCodec:
        """Return the same codec for an axis of so many bits."""
        return NumberCodec(bits, self._minimum, self._maximum, self._scale)

    def describe(self) -> Definition:
        """Return the codec as the space's definition has it."""
        return {
            "codec": "number",
            "min": self._minimum,
            "max": self._maximum,
            "scale": self._scale,
        }

    def _number_cells(self, value: Number) -> Cells:
        cell = self._number_cell(value)
        return cell, cell

    def _number_cell(self, value: Number) -> int:
        if value <= self._minimum:
            return 1
        if value >= self._maximum:
            return self._last
        # Every operation rounds monotonically, so order is kept; all are exact IEEE arithmetic, so
        # every machine agrees.
        share = (self._position(float(value)) - self._origin) / self._span
        return min(1 + int(share * self._last), self._last)


def text_number(text: str, symbols: int, filler: int = 0) -> int:
    """Return the first symbols of a text as one number, which grows with the text.

    With a filler of 71 it is the greatest of all that start so.
    """
    number = place = 0
    for character in text[:symbols]:
        symbol = _symbol(character)
        number = number * BASE + symbol
        place += 1
        if symbol in SHARED:
            # What follows would not be in order any more: z-caron + a < e-acute + b, but both
            # letters have one symbol. So nothing may follow, in prefixes either.
            filler = 0
            break
    for _ in range(symbols - place):
        number = number * BASE + filler
    return number


def only_text(pattern: Pattern) -> str | None:
    """Return the one text that a value of this pattern has on an axis of texts, if it is just one.

    A number counts as it is written.
    """
    match pattern:
        case Keyword(text):
            return text
        case Interval(low=float() | int() as low) if pattern.is_number:
            texts = _writings(low)
            return texts.pop() if len(texts) == 1 else None
    return None


def one_of(cells: Cells, salt: bytes) -> int:
    """Return one of the cells, always the same for the same salt, and any for any salt."""
    low, high = cells
    if low == high:
        return low
    hashed = int.from_bytes(blake2b(salt, digest_size=8).digest())
    return low + (hashed * (high - low + 1) >> 64)


def _ranges() -> list[tuple[int, int]]:
    """Return the alphabet, in code point order: first and last code point of each symbol."""
    alone = sorted(map(ord, "-._0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"))
    ranges, begin = [], 0
    for point in alone:
        if begin < point:
            ranges.append((begin, point - 1))
        ranges.append((point, point))
        begin = point + 1
    return [*ranges, (begin, 0x10FFFF)]


ALPHABET = _ranges()
BASE = len(ALPHABET) + 1
"""One more, the lowest, for the end of the text."""
SHARED = frozenset(i for i, (first, last) in enumerate(ALPHABET, start=1) if first != last)
"""Symbols that stand for several characters."""
ASCII = [next(i for i, (_, last) in enumerate(ALPHABET, start=1) if p <= last) for p in range(128)]


def _symbol(character: str) -> int:
    point = ord(character)
    return ASCII[point] if point < 128 else BASE - 1


def _writings(value: Number) -> set[str]:
    """Return all texts that a number equal to this one may have: 1e20 is also an integer."""
    texts = {written(value)}
    if math.isfinite(value) and abs(value) >= 2**53:
        if value == int(value):
            texts.add(str(int(value)))
        if abs(value) < 2**1023 and float(value) == value:
            texts.add(repr(float(value)))
    return texts


def _is_empty(interval: Interval) -> bool:
    low, high = interval.low, interval.high
    if low is None or high is None:
        return False
    if isinstance(low, str) or isinstance(high, str):
        above, same = str(low) > str(high), low == high
    else:
        above, same = low > high, low == high
    return above or (same and (interval.low_open or interval.high_open))


def _octaves(value: float) -> float:
    """Return the base-2 logarithm, straight between powers of two.

    The C library's logarithm may differ in the last bit between machines; this one can't.
    """
    mantissa, exponent = math.frexp(value)
    return exponent + 2 * mantissa


def quoted(keys: Mapping[str, object] | set[str]) -> str:
    """Return keys as an error names them."""
    return ", ".join(repr(key) for key in sorted(keys))
