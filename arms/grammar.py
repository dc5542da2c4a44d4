"""Profiles as text and as trees: the grammar, its parser, and the canonical way to write them.

    profile := ['/' | '//'] level (('/' | '//') level)*
    level   := conjunction ('|' conjunction)*
    conjunction := item (('&' | ',') item)*
    item    := '(' level ')' | element
    element := attribute [('=' value) | (('<' | '<=' | '>' | '>=') (text | number))]
    value   := text | number | prefix '*' | '*' | low '..' high | low '..' | '..' high

A text is a plain word or stands in double quotes. The trees keep one normal form (no And in an And,
no Or in an Or, whole floats as integers), so equal profiles have equal texts.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, NoReturn, TypeVar

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
    number,
    number_text,
)

T = TypeVar("T")


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
        if not _ATTRIBUTE.fullmatch(self.attribute):
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
        return ", ".join(f"({x})" if isinstance(x, Or) else str(x) for x in self.items)


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


def parse_levels(text: str) -> tuple[Level, ...]:
    """Return the levels of a profile's text; a `ProfileError` points at what is wrong."""
    if len(text) > PROFILE_CHARACTERS_MAX:
        raise ProfileError(
            f"a profile has at most {PROFILE_CHARACTERS_MAX:,} characters; this has {len(text):,}"
        )
    return _Parser(text).levels()


def levels_text(levels: tuple[Level, ...]) -> str:
    """Return the canonical text of levels."""
    if not 1 <= len(levels) <= PROFILE_LEVELS_MAX:
        raise ProfileError(f"a profile has 1 to {PROFILE_LEVELS_MAX} levels, not {len(levels)}")
    size = sum(level.expression.size for level in levels)
    if size > PROFILE_ELEMENTS_MAX:
        raise ProfileError(f"a profile has at most {PROFILE_ELEMENTS_MAX} elements, not {size:,}")
    text = "//" if levels[0].axis is Axis.DESCENDANT else ""
    text += str(levels[0].expression)
    text += "".join(f" {level.axis.value} {level.expression}" for level in levels[1:])
    if len(text) > PROFILE_CHARACTERS_MAX:
        raise ProfileError(
            f"a profile has at most {PROFILE_CHARACTERS_MAX:,} characters; "
            f"written out, this has {len(text):,}"
        )
    return text


# Normal form


def _settle(group: And | Or) -> None:
    """Flatten a group into its own kind and measure it, so that no tree outgrows the bounds."""
    kind = type(group)
    items = tuple(
        inner
        for item in group.items
        for inner in (item.items if isinstance(item, kind) else (item,))
    )
    if len(items) < 2:
        raise ProfileError(f"{kind.__name__} joins two or more items, not {len(items)}")
    size = sum(item.size for item in items)
    if size > PROFILE_ELEMENTS_MAX:
        raise ProfileError(f"a profile has at most {PROFILE_ELEMENTS_MAX} elements, not {size:,}")
    nesting = max(item.nesting + (kind is And and isinstance(item, Or)) for item in items)
    if nesting > PROFILE_NESTING_MAX:
        raise ProfileError(f"brackets nest at most {PROFILE_NESTING_MAX} deep")
    object.__setattr__(group, "items", items)
    object.__setattr__(group, "size", size)
    object.__setattr__(group, "nesting", nesting)


def _normal_pattern(pattern: Pattern) -> Pattern:
    if isinstance(pattern, Keyword | Prefix):
        _check_text(pattern.text)
        return pattern
    if isinstance(pattern, Interval):
        return _normal_interval(pattern)
    if isinstance(pattern, Anything | Bare):
        return pattern
    if isinstance(pattern, Absent):
        raise ProfileError("a profile can't ask for an attribute that is not there")
    raise ProfileError(f"{pattern!r} is no pattern")


def _normal_interval(given: Interval) -> Interval:
    low, high = _normal_end(given.low), _normal_end(given.high)
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
    if isinstance(end, bool) or not isinstance(end, int | float):
        raise ProfileError(f"{end!r} is no number")
    if not math.isfinite(end):
        raise ProfileError("a number has to be finite")
    if isinstance(end, float):
        # 2.0**60 equals 2**60, so both have to be written alike.
        return int(end) if end.is_integer() and _fits(end) else float(end)
    if not _fits(end):
        raise ProfileError(f"the integer {end} does not fit in 63 bits; use a float")
    return end


def _fits(value: Number) -> bool:
    return -(2**63) <= value < 2**63


def _check_text(text: str) -> None:
    if _SURROGATE.search(text):
        raise ProfileError("half a surrogate pair is no character; write the character itself")


# Writing


def _pattern_text(pattern: Pattern) -> str:
    match pattern:
        case Anything():
            return "=*"
        case Keyword(text):
            return "=" + _end_text(text)
        case Prefix(text):
            return f"={text if _is_plain(text) else _quoted(text)}*"
        case Interval(low, None, low_open):
            return (">" if low_open else ">=") + _end_text(low)
        case Interval(None, high, _, high_open):
            return ("<" if high_open else "<=") + _end_text(high)
        case Interval(low, high):
            if pattern.is_number:
                return "=" + _end_text(low)
            return f"={_end_text(low)}..{_end_text(high)}"
    return ""


def _end_text(end: Number | str | None) -> str:
    if not isinstance(end, str):
        assert end is not None
        return number_text(end)
    return end if _is_plain(end) and not _NUMBER.fullmatch(end) else _quoted(end)


def _is_plain(text: str) -> bool:
    # A dot at an end would run into the two dots of a range.
    return bool(_WORD.fullmatch(text)) and text.isprintable() and text.strip(".") == text


def _quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES_BY_CHAR:
        return "\\" + _ESCAPES_BY_CHAR[char]
    return char if char.isprintable() or ord(char) > 0xFFFF else f"\\u{ord(char):04x}"


# Tokens

_ATTRIBUTE = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_-]|\.(?!\.))*")
_WORD = re.compile(r"(?:[A-Za-z0-9_\-:+@#%]|[^\x00-\x7f\s]|\.(?!\.))+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_ESCAPES_BY_CHAR = {char: name for name, char in _ESCAPES.items()}
_SYMBOL = r"\.\.|//|<=|>=|[=<>&,|()/*]"

# What people type out of habit from other languages, and what it is here.
_SLIPS = {
    "&&": "one '&' (or a comma) joins two elements",
    "||": "one '|' stands between alternatives",
    "==": "one '=' compares with a value",
    "=<": "at most is written '<='",
    "=>": "at least is written '>='",
    "<>": "there is no 'not equal'; ask for what should be there",
    "!": "there is no 'not'; ask for what should be there",
    ";": "elements are joined by ',' or '&'",
    "'": 'a text stands in double quotes: "..."',
    "[": "brackets are round: ( )",
    "]": "brackets are round: ( )",
    "{": "brackets are round: ( )",
    "}": "brackets are round: ( )",
}
_TOKEN = re.compile(
    rf"\s*(?:(?P<slip>{'|'.join(map(re.escape, _SLIPS))})|(?P<word>{_WORD.pattern})"
    rf"|(?P<symbol>{_SYMBOL})|(?P<quoted>{_QUOTED.pattern})|\S)|\s+",
    re.DOTALL,
)


class _Token(NamedTuple):
    kind: str  # "word", "quoted", "end", or the symbol itself
    text: str  # as written; of a quoted text, what it stands for
    start: int
    stop: int

    @property
    def shown(self) -> str:
        if self.kind == "end":
            return "the end"
        shown = self.text if len(self.text) <= 24 else self.text[:24] + "..."
        return f'"{shown}"' if self.kind == "quoted" else f"'{shown}'"


def _tokens(text: str) -> list[_Token]:
    tokens = []
    at = 0
    while match := _TOKEN.match(text, at):
        kind = match.lastgroup
        start, at = match.span(kind or 0)
        found = text[start:at]
        if kind == "word":
            if not found.isprintable():
                _unknown(text, next(i for i in range(start, at) if not text[i].isprintable()))
            tokens.append(_Token("word", found, start, at))
        elif kind == "symbol":
            tokens.append(_Token(found, found, start, at))
        elif kind == "quoted":
            tokens.append(_Token("quoted", _unescaped(text, start), start, at))
        elif kind == "slip":
            advice = f"'{found}' is not part of the language: {_SLIPS[found]}"
            raise ProfileError(advice, text, start + 1)
        elif found.strip():  # a single character that fits nothing
            if found[-1] == '"':
                raise ProfileError("this quote is never closed; add a '\"'", text, at)
            _unknown(text, at - 1)
    tokens.append(_Token("end", "", len(text), len(text)))
    return tokens


def _unknown(text: str, at: int) -> NoReturn:
    char = text[at]
    name = f"'{char}'" if char.isprintable() else f"the character U+{ord(char):04X}"
    raise ProfileError(
        f'{name} has no meaning here; as part of a text, quote it: "..."', text, at + 1
    )


def _unescaped(text: str, start: int) -> str:
    match = _QUOTED.match(text, start)
    assert match is not None

    def character(escape: re.Match[str]) -> str:
        code, name = escape.groups()
        if code:
            return chr(int(code, 16))
        if name in _ESCAPES:
            return _ESCAPES[name]
        raise ProfileError(
            f"'\\{name}' is no escape; there are \\\" \\\\ \\n \\t and \\u with four hex digits",
            text,
            start + 1 + escape.start() + 1,
        )

    return _ESCAPE.sub(character, match[1])


# Parsing


class _Parser:
    """Recursive descent over the tokens; only brackets recurse."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.next = 0
        self.nesting = 0

    def levels(self) -> tuple[Level, ...]:
        if self.here.kind == "end":
            self.refuse("a profile can't be empty; write attributes, such as type=temperature")
        axis = Axis(self.take().kind) if self.here.kind in ("/", "//") else Axis.CHILD
        levels = [Level(axis, self.alternatives())]
        while self.here.kind in ("/", "//"):
            if len(levels) == PROFILE_LEVELS_MAX:
                self.refuse(f"a profile has at most {PROFILE_LEVELS_MAX} levels")
            axis = Axis(self.take().kind)
            levels.append(Level(axis, self.alternatives()))
        if self.here.kind == ")":
            self.refuse("this ')' closes no bracket")
        if self.here.kind != "end":
            self.refuse_after_element()
        return tuple(levels)

    def alternatives(self) -> Expression:
        start = self.here
        items = [self.conjunction()]
        while self.here.kind == "|":
            self.take()
            items.append(self.conjunction())
        return items[0] if len(items) == 1 else self.built(start, Or, tuple(items))

    def conjunction(self) -> Expression:
        start = self.here
        items = [self.item()]
        while self.here.kind in ("&", ","):
            self.take()
            items.append(self.item())
        return items[0] if len(items) == 1 else self.built(start, And, tuple(items))

    def item(self) -> Expression:
        if self.here.kind != "(":
            return self.element()
        if self.nesting == PROFILE_NESTING_MAX:
            self.refuse(f"brackets nest at most {PROFILE_NESTING_MAX} deep")
        opening = self.take()
        self.nesting += 1
        expression = self.alternatives()
        self.nesting -= 1
        if self.here.kind == "end":
            self.refuse("this '(' is never closed; add a ')'", opening)
        if self.here.kind in ("/", "//"):
            self.refuse(f"{self.here.shown} can't stand inside brackets; they group within a level")
        if self.here.kind != ")":
            self.refuse_after_element()
        self.take()
        return expression

    def element(self) -> Element:
        name = self.here
        if name.kind != "word" or not _ATTRIBUTE.fullmatch(name.text):
            self.refuse_as_attribute()
        self.take()
        if self.here.kind == "=":
            equals, start = self.take(), self.here
            return self.built(start, Element, name.text, self.value(equals))
        if self.here.kind not in ("<", "<=", ">", ">="):
            return Element(name.text)
        operator = self.take()
        if self.here.kind not in ("word", "quoted"):
            self.refuse(
                f"a number or a text has to follow '{operator.kind}', not {self.here.shown}; "
                f"such as {name.text}{operator.kind}10"
            )
        start, end = self.here, self.end()
        if self.here.kind in ("*", ".."):
            self.refuse(f"'{operator.kind}' compares with one value; {self.here.shown} needs '='")
        is_open = len(operator.kind) == 1
        if operator.kind[0] == "<":
            pattern = Interval(None, end, high_open=is_open)
        else:
            pattern = Interval(end, None, low_open=is_open)
        return self.built(start, Element, name.text, pattern)

    def value(self, equals: _Token) -> Pattern:
        start = self.here
        if start.kind == "*":
            self.take()
            if self.here.kind in ("word", "quoted", "*") and self.here.start == start.stop:
                self.refuse("a '*' stands alone or at the end of a text: comp*", start)
            return Anything()
        if start.kind == "..":
            self.take()
            if self.here.kind not in ("word", "quoted"):
                self.refuse("a range needs at least one end: 80..120, 80.. or ..120", start)
            return Interval(None, self.end())
        if start.kind not in ("word", "quoted"):
            self.refuse(
                f"a value has to follow '=', not {start.shown}: "
                "a text, a number, comp*, * or 80..120",
                equals if start.kind == "end" else start,
            )
        low = self.end()
        if self.here.kind == "*":
            return self.prefix(start)
        if self.here.kind == "..":
            return self.range(start, low)
        return Keyword(low) if isinstance(low, str) else number(low)

    def prefix(self, start: _Token) -> Prefix:
        star = self.take()
        if star.start != start.stop:
            self.refuse("no space can stand before the '*' of a prefix: comp*", star)
        if self.here.kind in ("word", "quoted", "*", "..") and self.here.start == star.stop:
            self.refuse("a '*' can only stand at the end of a text: comp*", star)
        return Prefix(start.text)

    def range(self, start: _Token, low: Number | str) -> Interval:
        dots = self.take()
        if self.here.kind == "*":
            self.refuse("an end of a range is a number or a text; leave it out for no end: 80..")
        if self.here.kind not in ("word", "quoted"):
            return Interval(low, None)
        high = self.end()
        if self.here.kind == "*":
            self.refuse("an end of a range is a number or a text, not a prefix")
        if self.here.kind == "..":
            self.refuse("a range has two ends: low..high")
        if isinstance(low, str) != isinstance(high, str):
            self.refuse(
                "a range can't mix a text and a number; "
                f'to mean text, quote both: "{start.text}".."{self.before.text}"',
                dots,
            )
        return Interval(low, high)

    def end(self) -> Number | str:
        """Take a word or a quoted text as the number or text that it stands for."""
        token = self.take()
        if token.kind == "quoted" or not _NUMBER.fullmatch(token.text):
            return token.text
        # 20 characters hold every integer of 63 bits with its sign.
        if len(token.text) <= 20 and token.text.lstrip("+-").isdigit() and _fits(int(token.text)):
            return int(token.text)
        value = float(token.text)
        if math.isinf(value):
            self.refuse('this number is too large; as a text, quote it: "..."', token)
        return value

    def refuse_as_attribute(self) -> NoReturn:
        found = self.here
        if found.kind in ("=", "<", "<=", ">", ">="):
            self.refuse(f"an attribute has to stand before {found.shown}, such as degree=80")
        if found.kind == "word":
            self.refuse(
                f"{found.shown} can't name an attribute: "
                "a letter or _ first, then letters, digits, _ - and single dots"
            )
        if found.kind == "quoted":
            self.refuse(f"{found.shown}: an attribute stands without quotes; only values have them")
        if found.kind in ("*", ".."):
            self.refuse(f"{found.shown} is a value; put an attribute before it: attribute=*")
        if self.next and self.before.kind != ")":
            self.refuse(
                f"an element has to follow '{self.before.text}', not {found.shown}", self.before
            )
        self.refuse(f"an element such as type=temperature has to come before {found.shown}")

    def refuse_after_element(self) -> NoReturn:
        found, before = self.here, self.before
        advice = ""
        if found.kind in ("word", "quoted") and before.kind == "word":
            advice = f'; a text of several words stands in quotes: "{before.text} {found.text}"'
        elif found.kind == "..":
            advice = "; a range follows '=': degree=80..120"
        elif found.kind == "*":
            advice = "; a '*' follows '=' or the start of a text: unit=Fa*"
        self.refuse(f"expected ',', '&', '|' or '/' before {found.shown}{advice}")

    def built(self, start: _Token, kind: Callable[..., T], *parts: object) -> T:
        try:
            return kind(*parts)
        except ProfileError as error:
            raise ProfileError(error.problem, self.text, start.start + 1) from None

    def refuse(self, problem: str, token: _Token | None = None) -> NoReturn:
        raise ProfileError(problem, self.text, (token or self.here).start + 1)

    @property
    def here(self) -> _Token:
        return self.tokens[self.next]

    @property
    def before(self) -> _Token:
        return self.tokens[self.next - 1]

    def take(self) -> _Token:
        self.next += 1
        return self.tokens[self.next - 1]
