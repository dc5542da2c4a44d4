"""Profiles: what data are about and what interests ask for, and which data an interest selects.

The selection follows section 2.1 of the paper: a profile is a path of levels, each level an
expression over attributes; an interest selects data when every element that it asks for is there
and the data's value lies within what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod

from arms.errors import ProfileError
from arms.expression import (
    And,
    Axis,
    Element,
    Expression,
    Level,
    Or,
    Path,
    Step,
    by_attribute,
    levels_text,
)
from arms.grammar import parse_levels
from arms.limits import PARSED_PROFILES_KEPT, PROFILE_ALTERNATIVES_MAX
from arms.selection import Placed, Selected, Selection, compiled, place
from squid.patterns import Anything, Bare, Pattern, Prefix, overlaps, within

__all__ = ["And", "Axis", "Element", "Expression", "Level", "Or", "Path", "Profile", "Step"]


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """A path of levels. `str(profile)` is its canonical text; equal profiles have equal texts."""

    levels: tuple[Level, ...]
    text: str = field(init=False, repr=False)
    _selects: Selection | None = field(default=None, init=False, repr=False)
    _could_select: Selection | None = field(default=None, init=False, repr=False)
    _placed: tuple[Placed, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", levels_text(self.levels))

    @staticmethod
    def parse(text: str) -> Profile:
        """Return the profile that a text stands for; a `ProfileError` points at what is wrong."""
        if not isinstance(text, str):
            raise ProfileError(f"a profile is a text, not {type(text).__name__}")
        return _parsed(text)

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Profile) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[Callable[[str], Profile], tuple[str]]:
        return Profile.parse, (self.text,)

    def selects(self, data: Selected) -> bool:
        """Return whether this interest selects these data.

        Given another interest, return whether all that it asks for is asked for here too: each of
        its alternatives has to be selected, and its `//` steps by `//` steps.
        """
        return (self._selects or self.compile())(data)

    def could_select(self, advertisement: Selected) -> bool:
        """Return whether some data that fit the advertisement would be selected."""
        if self._could_select is None:
            object.__setattr__(self, "_could_select", compiled(self.alternatives(), overlaps, any))
        assert self._could_select is not None
        return self._could_select(advertisement)

    def compile(self) -> Selection:
        """Return `selects` as a quick function, made once."""
        if self._selects is None:
            object.__setattr__(self, "_selects", compiled(self.alternatives(), within, all))
        assert self._selects is not None
        return self._selects

    def alternatives(self) -> tuple[Path, ...]:
        """Return the paths that remain when every `|` is multiplied out."""
        count = prod([_count(level.expression) for level in self.levels])
        if count > PROFILE_ALTERNATIVES_MAX:
            raise ProfileError(
                f"this profile has {count:,} alternatives once every '|' is multiplied out; "
                f"at most {PROFILE_ALTERNATIVES_MAX} can be asked for in one profile"
            )
        paths = product(*map(_steps, self.levels))
        return tuple(paths if count == 1 else dict.fromkeys(paths))

    def as_data(self) -> Path:
        """Return the path of a data profile, or raise `ProfileError` when it is not concrete."""
        path = self.as_advertisement()
        for step in path:
            for element in step.elements:
                if isinstance(element.pattern, Prefix | Anything):
                    raise ProfileError(
                        f"data can't carry '{element}': '*' stands for many values; "
                        "write the one that these data have"
                    )
        return path

    def as_advertisement(self) -> Path:
        """Return the path of an advertisement: like data, but `comp*` and `*` are allowed."""
        steps = []
        for level in self.levels:
            if level.axis is Axis.DESCENDANT:
                raise ProfileError(
                    f"data can't carry '// {level.expression}': '//' leaves open where it is; "
                    "join the levels of data by '/'"
                )
            steps.append(Step(level.axis, _concrete(level.expression)))
        return tuple(steps)

    def by_attribute(self) -> tuple[dict[str, tuple[Pattern, ...]], ...]:
        """Return, for each alternative, the patterns that this interest asks of each attribute.

        A bare attribute asks that it be there: `Anything`.
        """
        return tuple(
            by_attribute(
                (e.attribute, Anything() if isinstance(e.pattern, Bare) else e.pattern)
                for step in path
                for e in step.elements
            )
            for path in self.alternatives()
        )

    def data_by_attribute(self) -> dict[str, tuple[Pattern, ...]]:
        """Return the patterns of each attribute of data (or an advertisement), as they are."""
        steps = self.as_advertisement()
        return by_attribute((e.attribute, e.pattern) for step in steps for e in step.elements)

    def attributes(self) -> frozenset[str]:
        """Return every attribute that is named, on any level."""
        return frozenset(element.attribute for element in self.elements())

    def elements(self) -> Iterable[Element]:
        """Give every element, on any level."""
        for level in self.levels:
            yield from _elements(level.expression)

    def placed(self) -> tuple[Placed, ...]:
        """Return the alternatives as a compiled selection looks at them, made once."""
        if self._placed is None:
            object.__setattr__(self, "_placed", tuple(map(place, self.alternatives())))
        assert self._placed is not None
        return self._placed


@lru_cache(maxsize=PARSED_PROFILES_KEPT)
def _parsed(text: str) -> Profile:
    return Profile(parse_levels(text))


def _concrete(expression: Expression) -> tuple[Element, ...]:
    """Return the elements of a level of data: no alternatives, each attribute once."""
    elements: dict[str, Element] = {}
    for element in expression.items if isinstance(expression, And) else (expression,):
        if not isinstance(element, Element):
            raise ProfileError(
                f"data can't carry '{element}': '|' leaves open which one holds; "
                "join the elements of data by ','"
            )
        earlier = elements.setdefault(element.attribute, element)
        if earlier is not element:
            raise ProfileError(
                f"data can't carry both '{earlier}' and '{element}': "
                "an attribute has one value in a level"
            )
    return tuple(elements.values())


def _elements(expression: Expression) -> Iterable[Element]:
    if isinstance(expression, Element):
        yield expression
    else:
        for item in expression.items:
            yield from _elements(item)


# Disjunctive normal form


def _count(expression: Expression) -> int:
    if isinstance(expression, Element):
        return 1
    counts = [_count(item) for item in expression.items]
    return sum(counts) if isinstance(expression, Or) else prod(counts)


def _steps(level: Level) -> list[Step]:
    return [Step(level.axis, elements) for elements in _conjunctions(level.expression)]


def _conjunctions(expression: Expression) -> list[tuple[Element, ...]]:
    if isinstance(expression, Element):
        return [(expression,)]
    parts = [_conjunctions(item) for item in expression.items]
    if isinstance(expression, Or):
        return [elements for part in parts for elements in part]
    return [_distinct(sum(elements, ())) for elements in product(*parts)]


def _distinct(elements: tuple[Element, ...]) -> tuple[Element, ...]:
    # Elements of different attributes differ, and hashing names alone is quick.
    if len({element.attribute for element in elements}) == len(elements):
        return elements
    return tuple(dict.fromkeys(elements))
