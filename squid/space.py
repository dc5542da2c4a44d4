"""Information spaces: which attributes are routed by, and how their values become cells."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from squid import quantile
from squid.codecs import Cells, Codec, KeywordCodec, NumberCodec, one_of
from squid.curve import CURVE_NAME, Curve
from squid.errors import CodecError, SpaceError
from squid.grid import Grid
from squid.limits import DIMENSIONS_MAX, RING_BITS, SINGLE_DIMENSION_BITS
from squid.patterns import Absent, Bare, Interval, Keyword, Pattern, number_text
from squid.region import Box, Region

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
NAME_WORDS = "a letter or _, then letters, digits, _, . or -"

T = TypeVar("T")

CODECS: dict[str, Callable[[Mapping[str, object], int], Codec]] = {
    "keyword": KeywordCodec.from_table,
    "number": NumberCodec.from_table,
    "quantile": quantile.from_table,
}
"""Every codec that a space can name, with what builds it from its table and bits."""


@dataclass(frozen=True)
class Dimension:
    """One axis of a space: an attribute and the codec of its values."""

    name: str
    codec: Codec

    @cached_property
    def salt(self) -> bytes:
        """Makes positions on two axes have nothing to do with each other."""
        return self.name.encode() + b"="


@dataclass(frozen=True, eq=False)
class Space:
    """An information space; peers of one ring all have the same."""

    name: str
    version: int
    dimensions: tuple[Dimension, ...]
    bits: int
    curve_name: str = CURVE_NAME
    closed: bool = False
    attributes: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        problems = _problems(self.name, self.version, self.curve_name, self.attributes)
        problems += _size_problems(len(self.dimensions), self.bits)
        problems += _name_problems("dimension", [dimension.name for dimension in self.dimensions])
        if problems:
            raise SpaceError(problems)

    @classmethod
    def from_toml(cls, text: str) -> Space:
        """Read a space's definition; a SpaceError says all that is wrong with it."""
        try:
            table = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise SpaceError([f"a space is defined in TOML, and this is not: {error}"]) from None
        return _Reader(table).space()

    @cached_property
    def curve(self) -> Curve:
        """The curve through this space."""
        return Curve(len(self.dimensions), self.bits)

    @cached_property
    def grid(self) -> Grid:
        """The finer cells, for comparing in memory."""
        return Grid([dimension.codec for dimension in self.dimensions])

    @cached_property
    def shift(self) -> int:
        """Bits that an identifier is shifted left by, so that the curve fills the whole ring."""
        return RING_BITS - len(self.dimensions) * self.bits

    def identifier(self, point: Sequence[int]) -> int:
        """Return the identifier on the ring of a point of cells."""
        return self.curve.encode(point) << self.shift

    def region(
        self,
        alternatives: Sequence[Mapping[str, Sequence[Pattern]]],
        missing: Pattern | None = None,
    ) -> Region:
        """Return where any of the alternatives may be met, one box for each.

        An alternative has, by attribute, patterns that must all hold. A dimension that it does not
        mention is the whole axis (an interest), or what `missing` says (data: `Absent()`).
        """
        known = [(one, box) for one in alternatives if (box := self._box(one, missing)) is not None]
        return Region(
            self.curve,
            [box for _, box in known],
            self.shift,
            lambda: [self.fine_box(one, missing) for one, _ in known],
        )

    def point_region(self, values: Mapping[str, Sequence[Pattern]], salt: bytes = b"") -> Region:
        """Return where data with these values live: one cell, unless a value is a range.

        The salt chooses among the cells of a value that owns several.
        """
        box = self.point_box(values, salt)
        boxes = [] if box is None else [box]
        return Region(
            self.curve, boxes, self.shift, lambda: [self.fine_box(values, Absent())] * len(boxes)
        )

    def point_box(self, values: Mapping[str, Sequence[Pattern]], salt: bytes = b"") -> Box | None:
        """Return the cells of the same; None when a value is an empty range."""
        return self._box(values, Absent(), salt)

    def fine_box(self, values: Mapping[str, Sequence[Pattern]], missing: Pattern | None) -> Box:
        """Return the cells of the grid of one alternative (or of data) that is not empty."""
        absent = () if missing is None else (missing,)
        return tuple(
            [
                self.grid.interval(axis, values.get(dimension.name) or absent)
                for axis, dimension in enumerate(self.dimensions)
            ]
        )

    def cell(self, dimension: Dimension, cells: Cells, salt: bytes) -> int:
        """Return one of the cells that a value owns on an axis: the salt chooses."""
        return one_of(cells, dimension.salt + salt)

    def knows(self, attribute: str) -> bool:
        """Return whether profiles may use this attribute; an open space knows all."""
        if not self.closed or attribute in self.attributes:
            return True
        return any(dimension.name == attribute for dimension in self.dimensions)

    def to_toml(self) -> str:
        """Return the definition; `from_toml` reads it back."""
        return self._definition

    @cached_property
    def _definition(self) -> str:
        lines = [
            f'name = "{self.name}"',
            f"version = {self.version}",
            f'curve = "{self.curve_name}"',
            f"bits = {self.bits}",
            f"closed = {'true' if self.closed else 'false'}",
            f"attributes = {json.dumps(sorted(self.attributes))}",
        ]
        for dimension in self.dimensions:
            lines += ["", "[[dimension]]", f'name = "{dimension.name}"']
            for key, value in dimension.codec.describe().items():
                lines.append(f"{key} = {_toml_value(value)}")
        return "\n".join(lines) + "\n"

    def fingerprint(self) -> str:
        """Return 16 hex digits that differ when anything in the definition does."""
        return hashlib.sha256(self.to_toml().encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Space):
            return NotImplemented
        return self.to_toml() == other.to_toml()

    def __hash__(self) -> int:
        # Equal spaces have these equal; the whole definition would take 100 times as long, and
        # every region that is looked up asks.
        return hash((self.name, self.version, self.bits))

    def _box(
        self,
        values: Mapping[str, Sequence[Pattern]],
        missing: Pattern | None,
        salt: bytes | None = None,
    ) -> Box | None:
        """Return the cells of one alternative; data, which have a salt, live at one if they can."""
        box = []
        for dimension in self.dimensions:
            patterns = values.get(dimension.name) or ([] if missing is None else [missing])
            try:
                cells = self._cells(dimension, patterns, salt)
            except CodecError as error:
                raise CodecError(f"{dimension.name}: {error}") from None
            if cells is None:
                return None
            box.append(cells)
        return tuple(box)

    def _cells(
        self, dimension: Dimension, patterns: Sequence[Pattern], salt: bytes | None
    ) -> Cells | None:
        if salt is not None and len(patterns) == 1 and _is_concrete(patterns[0]):
            cell = self.cell(dimension, dimension.codec.owned(patterns[0]), salt)
            return cell, cell
        low, high = 0, (1 << self.bits) - 1
        for pattern in patterns:
            cells = dimension.codec.interval(pattern)
            if cells is None:
                return None
            low, high = max(low, cells[0]), min(high, cells[1])
        return (low, high) if low <= high else None


class _Reader:
    """Reads a definition and gathers all that is wrong with it."""

    REQUIRED = ("name", "version", "dimension")
    KEYS = (*REQUIRED, "curve", "bits", "closed", "attributes")

    def __init__(self, table: dict[str, object]) -> None:
        self._table = table
        self._problems: list[str] = []

    def space(self) -> Space:
        """Return the space, or raise a SpaceError with all problems."""
        for key in sorted(self._table.keys() - set(self.KEYS)):
            self._problems.append(f"unknown key {key!r}; a space has {', '.join(self.KEYS)}")
        for key in self.REQUIRED:
            if key not in self._table:
                self._problems.append(f"{key} is missing")
        # What is missing or of a wrong type gets a harmless stand-in, so that the rest is checked.
        name = self._value("name", "space", "a text")
        version = self._value("version", 1, "a whole number")
        curve = self._value("curve", CURVE_NAME, "a text")
        closed = self._value("closed", False, "true or false")
        attributes = self._list("attributes", str, "texts")
        tables = self._list("dimension", dict, "tables, each begun with [[dimension]]")
        bits = self._value("bits", _default_bits(len(tables)), "a whole number")
        self._problems += _problems(name, version, curve, attributes)
        if tables or self._table.get("dimension") == []:
            self._problems += _size_problems(len(tables), bits)
        names = [table["name"] for table in tables if isinstance(table.get("name"), str)]
        self._problems += _name_problems("dimension", names)
        usable = min(max(bits, 1), RING_BITS)
        dimensions = [self._dimension(i, table, usable) for i, table in enumerate(tables, start=1)]
        if self._problems:
            raise SpaceError(self._problems)
        known = tuple(dimension for dimension in dimensions if dimension is not None)
        return Space(name, version, known, bits, curve, closed, frozenset(attributes))

    def _value(self, key: str, default: T, words: str) -> T:
        value = self._table.get(key, default)
        # type() and not isinstance(): true is no whole number.
        if type(value) is type(default):
            return value
        self._problems.append(f"{key} must be {words}, not {value!r}")
        return default

    def _list(self, key: str, kind: type[T], words: str) -> list[T]:
        values = self._table.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            self._problems.append(f"{key} must be a list of {words}")
            return []
        return values

    def _dimension(self, place: int, table: Mapping[str, object], bits: int) -> Dimension | None:
        name, codec = table.get("name"), table.get("codec")
        where = f"dimension {name}" if isinstance(name, str) else f"dimension {place}"
        problems = []
        if name is None:
            problems.append("name is missing")
        elif not isinstance(name, str):
            problems.append(f"name must be a text, not {name!r}")
        if codec is None:
            problems.append(f"codec is missing; there are {', '.join(CODECS)}")
        elif not isinstance(codec, str) or codec not in CODECS:
            problems.append(f"unknown codec {codec!r}; there are {', '.join(CODECS)}")
        else:
            rest = {key: value for key, value in table.items() if key not in ("name", "codec")}
            try:
                built = CODECS[codec](rest, bits)
            except SpaceError as error:
                problems += error.problems
        self._problems += [f"{where}: {problem}" for problem in problems]
        return None if problems else Dimension(str(name), built)


def _default_bits(dimensions: int) -> int:
    if dimensions <= 1:
        return SINGLE_DIMENSION_BITS
    return RING_BITS // min(dimensions, DIMENSIONS_MAX)


def _problems(name: str, version: int, curve: str, attributes: Iterable[str]) -> list[str]:
    problems = []
    if not NAME.fullmatch(name):
        problems.append(f"name {name!r} must be {NAME_WORDS}")
    if version < 1:
        problems.append(f"version must be 1 or more, not {version}")
    if curve != CURVE_NAME:
        problems.append(f'unknown curve {curve!r}; there is "{CURVE_NAME}"')
    return problems + _name_problems("attribute", attributes)


def _size_problems(dimensions: int, bits: int) -> list[str]:
    if not 1 <= dimensions <= DIMENSIONS_MAX:
        return [f"a space has 1 to {DIMENSIONS_MAX} dimensions, not {dimensions}"]
    most = RING_BITS // dimensions
    if not 1 <= bits <= most:
        return [f"bits must be 1 to {most} with {dimensions} dimensions, not {bits}"]
    return []


def _name_problems(what: str, names: Iterable[str]) -> list[str]:
    problems = []
    for name, count in Counter(names).items():
        if not NAME.fullmatch(name):
            problems.append(f"{what} name {name!r} must be {NAME_WORDS}")
        if count > 1:
            problems.append(f"{what} {name!r} is there {count} times")
    return problems


def _is_concrete(pattern: Pattern) -> bool:
    if isinstance(pattern, Interval):
        return pattern.is_number and not (pattern.low_open or pattern.high_open)
    return isinstance(pattern, Keyword | Bare | Absent)


def _toml_value(value: str | float | Sequence[str] | Sequence[float]) -> str:
    if isinstance(value, str):
        # JSON escapes what TOML wants escaped, but for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return number_text(value)
    return f"[{', '.join(map(_toml_value, value))}]"
