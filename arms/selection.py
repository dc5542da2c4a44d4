"""Selection: whether what one profile asks for is there in another, compiled to be quick.

The side that is selected becomes a dict for each level; the side that selects becomes closures.
Both are made once for each profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from math import inf
from typing import NamedTuple, Protocol

from arms.expression import Axis, Element, Path, Step, by_attribute
from squid.patterns import Anything, Bare, Interval, Keyword, Pattern, Prefix, overlaps, within

Selection = Callable[["Selected"], bool]
Relation = Callable[[Pattern, Pattern], bool]


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
PLAIN_VALUES = frozenset((str, int, float))
Levels = tuple[dict[str, Value], ...]


class Placed(NamedTuple):
    """One alternative of a profile, as it is looked at by those that may select it."""

    levels: Levels
    floating: frozenset[int]  # the levels that are `//` steps; data have none


def place(path: Path) -> Placed:
    """Return a path as the side that is selected."""
    levels = tuple([_level(step.elements) for step in path])
    floating = [at for at, step in enumerate(path) if step.axis is Axis.DESCENDANT]
    return Placed(levels, frozenset(floating))


def _level(elements: tuple[Element, ...]) -> dict[str, Value]:
    patterns = by_attribute([(element.attribute, element.pattern) for element in elements])
    return {attribute: _value(several) for attribute, several in patterns.items()}


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


def patterns_of(value: Value) -> tuple[Pattern, ...]:
    """Return a value that stands in a level as the patterns that it was made of."""
    if isinstance(value, _Joint):
        return value.patterns
    if isinstance(value, str):
        return (Keyword(value),)
    if isinstance(value, int | float):
        return (Interval(value, value),)
    return (value,)


class Selected(Protocol):
    """What can be selected: a profile, or data of which one knows only this."""

    @property
    def _placed(self) -> tuple[Placed, ...] | None: ...

    def placed(self) -> tuple[Placed, ...]:
        """Return the alternatives, as a compiled selection looks at them."""


# The side that selects: closures, made once.

Test = Callable[[dict[str, Value]], bool]
Match = Callable[[Levels, frozenset[int]], bool]


def compiled(
    alternatives: tuple[Path, ...],
    relation: Relation,
    quantifier: Callable[[Iterable[bool]], bool],
) -> Selection:
    """Return whether all (or any) alternatives of a profile are met by one of the interest's."""
    tests: dict[Element, Test] = {}
    matches: list[Match] = []
    for path in alternatives:
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

    def selection(data: Selected) -> bool:
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
    elif isinstance(wanted, Anything):

        def test(level: dict[str, Value]) -> bool:
            value = level.get(attribute)
            return type(value) in PLAIN_VALUES or slowly(value)
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
