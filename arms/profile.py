"""Profiles: what data are about and what interests ask for, and which data an interest selects.

The selection follows section 2.1 of the paper: a profile is a path of levels, each level an
expression over attributes; an interest selects data when every element that it asks for is there
and the data's value lies within what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, product
from math import inf, prod
from typing import NamedTuple

from arms.errors import ProfileError
from arms.grammar import And, Axis, Element, Expression, Level, Or, levels_text, parse_levels
from arms.limits import PARSED_PROFILES_KEPT, PROFILE_ALTERNATIVES_MAX
from squid.patterns import Anything, Bare, Interval, Keyword, Pattern, Prefix, overlaps, within

__all__ = ["And", "Axis", "Element", "Expression", "Level", "Or", "Path", "Profile", "Step"]

Selection = Callable[["Profile"], bool]


class Step(NamedTuple):
    """One level of a path without alternatives: all of these elements."""

    axis: Axis
    elements: tuple[Element, ...]


Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """A path of levels. `str(profile)` is its canonical text; equal profiles have equal texts."""

    levels: tuple[Level, ...]
    text: str = field(init=False, repr=False)
    _selects: Selection | None = field(default=None, init=False, repr=False)
    _could_select: Selection | None = field(default=None, init=False, repr=False)
    _placed: tuple[_Placed, ...] | None = field(default=None, init=False, repr=False)

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

    def selects(self, data: Profile) -> bool:
        """Return whether this interest selects these data.

        Given another interest, return whether all that it asks for is asked for here too: each of
        its alternatives has to be selected, and its `//` steps by `//` steps.
        """
        return (self._selects or self.compile())(data)

    def could_select(self, advertisement: Profile) -> bool:
        """Return whether some data that fit the advertisement would be selected."""
        if self._could_select is None:
            object.__setattr__(self, "_could_select", _compiled(self, overlaps, any))
        assert self._could_select is not None
        return self._could_select(advertisement)

    def compile(self) -> Selection:
        """Return `selects` as a quick function, made once."""
        if self._selects is None:
            object.__setattr__(self, "_selects", _compiled(self, within, all))
        assert self._selects is not None
        return self._selects

    def alternatives(self) -> tuple[Path, ...]:
        """Return the paths that remain when every `|` is multiplied out."""
        count = prod(_count(level.expression) for level in self.levels)
        if count > PROFILE_ALTERNATIVES_MAX:
            raise ProfileError(
                f"this profile has {count:,} alternatives once every '|' is multiplied out; "
                f"at most {PROFILE_ALTERNATIVES_MAX} can be asked for in one profile"
            )
        steps = (
            [Step(level.axis, elements) for elements in _conjunctions(level.expression)]
            for level in self.levels
        )
        return tuple(dict.fromkeys(product(*steps)))

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
        for level in self.levels:
            if level.axis is Axis.DESCENDANT:
                raise ProfileError(
                    f"data can't carry '// {level.expression}': '//' leaves open where it is; "
                    "join the levels of data by '/'"
                )
            self._check_concrete(level.expression)
        return self.alternatives()[0]

    def _check_concrete(self, expression: Expression) -> None:
        seen: dict[str, Element] = {}
        for element in expression.items if isinstance(expression, And) else (expression,):
            if not isinstance(element, Element):
                raise ProfileError(
                    f"data can't carry '{element}': '|' leaves open which one holds; "
                    "join the elements of data by ','"
                )
            earlier = seen.setdefault(element.attribute, element)
            if earlier is not element:
                raise ProfileError(
                    f"data can't carry both '{earlier}' and '{element}': "
                    "an attribute has one value in a level"
                )

    def by_attribute(self) -> tuple[dict[str, tuple[Pattern, ...]], ...]:
        """Return, for each alternative, the patterns that this interest asks of each attribute.

        A bare attribute asks that it be there: `Anything`.
        """
        return tuple(
            _by_attribute(
                (e.attribute, Anything() if isinstance(e.pattern, Bare) else e.pattern)
                for step in path
                for e in step.elements
            )
            for path in self.alternatives()
        )

    def data_by_attribute(self) -> dict[str, tuple[Pattern, ...]]:
        """Return the patterns of each attribute of data (or an advertisement), as they are."""
        steps = self.as_advertisement()
        return _by_attribute((e.attribute, e.pattern) for step in steps for e in step.elements)

    def attributes(self) -> frozenset[str]:
        """Return every attribute that is named, on any level."""
        return frozenset(e.attribute for level in self.levels for e in _elements(level.expression))

    def placed(self) -> tuple[_Placed, ...]:
        """Return the alternatives as a compiled selection looks at them, made once."""
        if self._placed is None:
            object.__setattr__(self, "_placed", tuple(map(_place, self.alternatives())))
        assert self._placed is not None
        return self._placed


@lru_cache(maxsize=PARSED_PROFILES_KEPT)
def _parsed(text: str) -> Profile:
    return Profile(parse_levels(text))


def _elements(expression: Expression) -> Iterable[Element]:
    if isinstance(expression, Element):
        yield expression
    else:
        for item in expression.items:
            yield from _elements(item)


def _by_attribute(pairs: Iterable[tuple[str, Pattern]]) -> dict[str, tuple[Pattern, ...]]:
    patterns: dict[str, tuple[Pattern, ...]] = {}
    for attribute, pattern in pairs:
        known = patterns.get(attribute, ())
        if pattern not in known:
            patterns[attribute] = (*known, pattern)
    return patterns


# Disjunctive normal form


def _count(expression: Expression) -> int:
    match expression:
        case Or(items):
            return sum(map(_count, items))
        case And(items):
            return prod(map(_count, items))
    return 1


def _conjunctions(expression: Expression) -> list[tuple[Element, ...]]:
    match expression:
        case Or(items):
            return [elements for item in items for elements in _conjunctions(item)]
        case And(items):
            joined = (sum(parts, ()) for parts in product(*map(_conjunctions, items)))
            return [tuple(dict.fromkeys(elements)) for elements in joined]
        case Element():
            return [(expression,)]


# The side that is selected: a dict for each level. A text or a number stands there as itself,
# because nearly all data are such, and comparing those is quick.


class _Joint(NamedTuple):
    """Several patterns on one attribute of one level, as only interests have them."""

    patterns: tuple[Pattern, ...]

    def stands_to(self, wanted: Pattern, relation: Relation) -> bool:
        if relation is overlaps:
            return all(overlaps(pattern, wanted) for pattern in self.patterns)
        if any(within(pattern, wanted) for pattern in self.patterns):
            return True
        common = _intersection(self.patterns)
        return common is not None and within(common, wanted)


Value = str | int | float | Pattern | _Joint
Levels = tuple[dict[str, Value], ...]
Relation = Callable[[Pattern, Pattern], bool]


class _Placed(NamedTuple):
    levels: Levels
    floating: frozenset[int]  # the levels that are `//` steps; data have none


def _place(path: Path) -> _Placed:
    levels: list[dict[str, Value]] = []
    for step in path:
        patterns = _by_attribute((e.attribute, e.pattern) for e in step.elements)
        levels.append({attribute: _value(several) for attribute, several in patterns.items()})
    floating = (at for at, step in enumerate(path) if step.axis is Axis.DESCENDANT)
    return _Placed(tuple(levels), frozenset(floating))


def _value(patterns: tuple[Pattern, ...]) -> Value:
    if len(patterns) > 1:
        valued = tuple(pattern for pattern in patterns if not isinstance(pattern, Bare))
        return _Joint(valued) if len(valued) > 1 else _value(valued)
    pattern = patterns[0]
    if isinstance(pattern, Keyword):
        return pattern.text
    if isinstance(pattern, Interval) and pattern.is_number and pattern.low is not None:
        return pattern.low
    return pattern


def _intersection(patterns: tuple[Pattern, ...]) -> Interval | None:
    intervals = [pattern for pattern in patterns if isinstance(pattern, Interval)]
    if len(intervals) < len(patterns) or len({i.of_text for i in intervals}) > 1:
        return None
    # An open end is the tighter one of two that are equal.
    lows = [(i.low, i.low_open) for i in intervals if i.low is not None]
    highs = [(i.high, not i.high_open) for i in intervals if i.high is not None]
    low, low_open = max(lows) if lows else (None, False)
    high, high_closed = min(highs) if highs else (None, True)
    return Interval(low, high, low_open, not high_closed)


# The side that selects: closures, made once.

Test = Callable[[dict[str, Value]], bool]
Match = Callable[[Levels, frozenset[int]], bool]


def _compiled(
    interest: Profile, relation: Relation, quantifier: Callable[[Iterable[bool]], bool]
) -> Selection:
    """Return whether all (or any) alternatives of a profile are met by one of the interest's."""
    tests: dict[Element, Test] = {}
    matches: list[Match] = []
    for path in interest.alternatives():
        if relation is overlaps and any(_contradicts(step) for step in path):
            continue
        steps = []
        for axis, elements in path:
            for element in elements:
                if element not in tests:
                    tests[element] = _element_test(element, relation)
            steps.append((axis, _all_of([tests[element] for element in elements])))
        matches.append(_path_match(steps))

    match = matches[0] if len(matches) == 1 else _any_of(matches)

    def selection(data: Profile) -> bool:
        placed = data._placed or data.placed()
        if len(placed) == 1:
            levels, floating = placed[0]
            return match(levels, floating)
        return quantifier(match(levels, floating) for levels, floating in placed)

    return selection


def _contradicts(step: Step) -> bool:
    """Tell whether a step asks for values that nothing has, such as `a<5, a>10`.

    Two by two is enough: intervals that meet two by two have a value in common.
    """
    return any(
        one.attribute == other.attribute
        and not isinstance(one.pattern, Bare)
        and not isinstance(other.pattern, Bare)
        and not overlaps(one.pattern, other.pattern)
        for one, other in combinations(step.elements, 2)
    )


def _path_match(steps: list[tuple[Axis, Test]]) -> Match:
    axis, test = steps[0]
    if len(steps) == 1 and axis is Axis.CHILD:
        return lambda levels, floating: test(levels[0]) and 0 not in floating

    def match(levels: Levels, floating: frozenset[int]) -> bool:
        # All places where the step before can be, in order: no backtracking over `//`.
        places = [-1]
        for axis, test in steps:
            if axis is Axis.DESCENDANT:
                options: Iterable[int] = range(places[0] + 1, len(levels))
            else:
                options = [at + 1 for at in places if at + 1 < len(levels)]
                options = [at for at in options if at not in floating]
            places = [at for at in options if test(levels[at])]
            if not places:
                return False
        return True

    return match


def _any_of(matches: list[Match]) -> Match:
    return lambda levels, floating: any(match(levels, floating) for match in matches)


def _all_of(tests: list[Test]) -> Test:
    if len(tests) == 1:
        return tests[0]

    def test(level: dict[str, Value]) -> bool:
        for each in tests:  # noqa: SIM110 (a generator costs twice the time)
            if not each(level):
                return False
        return True

    return test


def _element_test(element: Element, relation: Relation) -> Test:
    attribute, wanted = element.attribute, element.pattern
    if isinstance(wanted, Bare):
        return lambda level: attribute in level

    def slowly(value: Value | None) -> bool:
        if value is None:
            return False
        if isinstance(value, _Joint):
            return value.stands_to(wanted, relation)
        if isinstance(value, str):
            return relation(Keyword(value), wanted)
        if isinstance(value, int | float):
            return relation(Interval(value, value), wanted)
        return relation(value, wanted)

    if isinstance(wanted, Keyword):
        text = wanted.text

        def test(level: dict[str, Value]) -> bool:
            value = level.get(attribute)
            return value == text if type(value) is str else slowly(value)
    elif isinstance(wanted, Prefix):
        stem = wanted.text

        def test(level: dict[str, Value]) -> bool:
            value = level.get(attribute)
            return value.startswith(stem) if type(value) is str else slowly(value)
    elif isinstance(wanted, Interval) and not wanted.of_text:
        low = -inf if wanted.low is None else wanted.low
        high = inf if wanted.high is None else wanted.high
        assert not isinstance(low, str)
        assert not isinstance(high, str)
        if wanted.low_open or wanted.high_open:  # in a profile: of an interval with one end

            def test(level: dict[str, Value]) -> bool:
                value = level.get(attribute)
                if type(value) is int or type(value) is float:
                    return low < value < high
                return slowly(value)
        else:

            def test(level: dict[str, Value]) -> bool:
                value = level.get(attribute)
                if type(value) is int or type(value) is float:
                    return low <= value <= high
                return slowly(value)
    else:

        def test(level: dict[str, Value]) -> bool:
            return slowly(level.get(attribute))

    return test
