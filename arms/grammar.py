"""The grammar of profiles, and the parser that reads their text into trees.

    profile := ['/' | '//'] level (('/' | '//') level)*
    level   := conjunction ('|' conjunction)*
    conjunction := item (('&' | ',') item)*
    item    := '(' level ')' | element
    element := attribute [('=' value) | (('<' | '<=' | '>' | '>=') (text | number))]
    value   := text | number | prefix '*' | '*' | low '..' high | low '..' | '..' high

A text is a plain word or stands in double quotes.
"""

from __future__ import annotations

import math
import re
from typing import NoReturn

from arms.errors import ProfileError
from arms.expression import (
    ATTRIBUTE,
    ESCAPES,
    NUMBER,
    WORD,
    And,
    Axis,
    Element,
    Expression,
    Level,
    Or,
    fits_63_bits,
)
from arms.limits import PROFILE_CHARACTERS_MAX, PROFILE_LEVELS_MAX, PROFILE_NESTING_MAX
from squid.patterns import Anything, Interval, Keyword, Number, Pattern, Prefix, number


def parse_levels(text: str) -> tuple[Level, ...]:
    """Return the levels of a profile's text; a `ProfileError` points at what is wrong."""
    if len(text) > PROFILE_CHARACTERS_MAX:
        raise ProfileError(
            f"a profile has at most {PROFILE_CHARACTERS_MAX:,} characters; this has {len(text):,}"
        )
    return _Parser(text).levels()


# Tokens

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
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
    rf"(?P<word>{WORD.pattern})|(?P<slip>{'|'.join(map(re.escape, _SLIPS))})"
    rf"|(?P<symbol>{_SYMBOL})|(?P<quoted>{_QUOTED.pattern})|\S",
    re.DOTALL,
)


# Tokens as three columns, much quicker to make than an object for each; a token is its index.
_Tokens = tuple[
    list[str],  # kinds: "word", "quoted", "end", or the symbol itself
    list[str],  # texts as written; of a quoted text, what it stands for
    list[int],  # where each starts
]


def _tokens(text: str) -> _Tokens:
    kinds, texts, starts = [], [], []
    for match in _TOKEN.finditer(text):
        kind, found, start = match.lastgroup, match[0], match.start()
        if kind == "word":
            if not found.isprintable():
                _unknown(text, start + next(i for i, c in enumerate(found) if not c.isprintable()))
        elif kind == "symbol":
            kind = found
        elif kind == "quoted":
            found = _unescaped(text, start)
        elif kind == "slip":
            advice = f"'{found}' is not part of the language: {_SLIPS[found]}"
            raise ProfileError(advice, text, start + 1)
        elif found == '"':
            raise ProfileError("this quote is never closed; add a '\"'", text, start + 1)
        else:
            _unknown(text, start)
        kinds.append(kind)
        texts.append(found)
        starts.append(start)
    return [*kinds, "end"], [*texts, ""], [*starts, len(text)]


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
        if name in ESCAPES:
            return ESCAPES[name]
        raise ProfileError(
            f"'\\{name}' is no escape; there are \\\" \\\\ \\n \\t and \\u with four hex digits",
            text,
            start + 1 + escape.start() + 1,
        )

    return _ESCAPE.sub(character, match[1])


# Parsing

_AXES = ("/", "//")
_COMPARISONS = ("=", "<", "<=", ">", ">=")
_TEXTS = ("word", "quoted")


class _Parser:
    """Recursive descent over the tokens; only brackets recurse."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds, self.texts, self.starts = _tokens(text)
        self.at = 0  # the token that comes next, and its kind
        self.kind = self.kinds[0]
        self.nesting = 0

    def levels(self) -> tuple[Level, ...]:
        if self.kind == "end":
            self.refuse("a profile can't be empty; write attributes, such as type=temperature")
        axis = self.axis() if self.kind in _AXES else Axis.CHILD
        levels = [Level(axis, self.alternatives())]
        while self.kind in _AXES:
            if len(levels) == PROFILE_LEVELS_MAX:
                self.refuse(f"a profile has at most {PROFILE_LEVELS_MAX} levels")
            levels.append(Level(self.axis(), self.alternatives()))
        if self.kind == ")":
            self.refuse("this ')' closes no bracket")
        if self.kind != "end":
            self.refuse_after_element()
        return tuple(levels)

    def axis(self) -> Axis:
        return Axis(self.kinds[self.take()])

    def alternatives(self) -> Expression:
        start = self.at
        items = [self.conjunction()]
        while self.kind == "|":
            self.take()
            items.append(self.conjunction())
        return items[0] if len(items) == 1 else self.joined(Or, items, start)

    def conjunction(self) -> Expression:
        start = self.at
        items = [self.item()]
        while self.kind in ("&", ","):
            self.take()
            items.append(self.item())
        return items[0] if len(items) == 1 else self.joined(And, items, start)

    def joined(self, kind: type[And | Or], items: list[Expression], start: int) -> And | Or:
        try:
            return kind(tuple(items))
        except ProfileError as error:
            self.refuse(error.problem, start)

    def item(self) -> Expression:
        if self.kind != "(":
            return self.element()
        if self.nesting == PROFILE_NESTING_MAX:
            self.refuse(f"brackets nest at most {PROFILE_NESTING_MAX} deep")
        opening = self.take()
        self.nesting += 1
        expression = self.alternatives()
        self.nesting -= 1
        if self.kind == "end":
            self.refuse("this '(' is never closed; add a ')'", opening)
        if self.kind in _AXES:
            self.refuse(f"'{self.kind}' can't stand inside brackets; they group within a level")
        if self.kind != ")":
            self.refuse_after_element()
        self.take()
        return expression

    def element(self) -> Element:
        attribute = self.texts[self.at]
        if self.kind != "word" or not ATTRIBUTE.fullmatch(attribute):
            self.refuse_as_attribute()
        self.take()
        operator = self.kind
        if operator not in _COMPARISONS:
            return Element(attribute)
        start = self.take() + 1
        pattern = self.value() if operator == "=" else self.comparison(attribute, operator)
        try:
            return Element(attribute, pattern)
        except ProfileError as error:
            self.refuse(error.problem, start)

    def comparison(self, attribute: str, operator: str) -> Interval:
        if self.kind not in _TEXTS:
            self.refuse(
                f"a number or a text has to follow '{operator}', not {self.shown()}; "
                f"such as {attribute}{operator}10"
            )
        end = self.end()
        if self.kind in ("*", ".."):
            self.refuse(f"'{operator}' compares with one value; '{self.kind}' needs '='")
        is_open = len(operator) == 1
        if operator[0] == "<":
            return Interval(None, end, high_open=is_open)
        return Interval(end, None, low_open=is_open)

    def value(self) -> Pattern:
        start = self.at
        if self.kind == "*":
            star = self.take()
            if self.kind in (*_TEXTS, "*") and self.touches(star):
                self.refuse("a '*' stands alone or at the end of a text: comp*", star)
            return Anything()
        if self.kind == "..":
            self.take()
            if self.kind not in _TEXTS:
                self.refuse("a range needs at least one end: 80..120, 80.. or ..120", start)
            return Interval(None, self.end())
        if self.kind not in _TEXTS:
            self.refuse(
                f"a value has to follow '=', not {self.shown()}: "
                "a text, a number, comp*, * or 80..120",
                start - 1 if self.kind == "end" else start,
            )
        low = self.end()
        if self.kind == "*":
            return self.prefix(start)
        if self.kind == "..":
            return self.range(start, low)
        return Keyword(low) if isinstance(low, str) else number(low)

    def prefix(self, start: int) -> Prefix:
        if not self.touches(start):
            self.refuse("no space can stand before the '*' of a prefix: comp*")
        star = self.take()
        if self.kind in (*_TEXTS, "*", "..") and self.touches(star):
            self.refuse("a '*' can only stand at the end of a text: comp*", star)
        return Prefix(self.texts[start])

    def range(self, start: int, low: Number | str) -> Interval:
        dots = self.take()
        if self.kind == "*":
            self.refuse("an end of a range is a number or a text; leave it out for no end: 80..")
        if self.kind not in _TEXTS:
            return Interval(low, None)
        high = self.end()
        if self.kind == "*":
            self.refuse("an end of a range is a number or a text, not a prefix")
        if self.kind == "..":
            self.refuse("a range has two ends: low..high")
        if isinstance(low, str) != isinstance(high, str):
            self.refuse(
                "a range can't mix a text and a number; "
                f'to mean text, quote both: "{self.texts[start]}".."{self.texts[dots + 1]}"',
                dots,
            )
        return Interval(low, high)

    def end(self) -> Number | str:
        """Take a word or a quoted text as the number or text that it stands for."""
        at = self.take()
        text = self.texts[at]
        if self.kinds[at] == "quoted" or not NUMBER.fullmatch(text):
            return text
        # 20 characters hold every integer of 63 bits with its sign.
        if len(text) <= 20 and text.lstrip("+-").isdigit() and fits_63_bits(int(text)):
            return int(text)
        value = float(text)
        if math.isinf(value):
            self.refuse('this number is too large; as a text, quote it: "..."', at)
        return value

    def take(self) -> int:
        taken = self.at
        self.at += 1
        self.kind = self.kinds[self.at]
        return taken

    def touches(self, before: int) -> bool:
        """Tell whether no space stands between the token before and the next one."""
        return not self.text[self.starts[before + 1] - 1].isspace()

    def shown(self) -> str:
        if self.kind == "end":
            return "the end"
        text = self.texts[self.at]
        shown = text if len(text) <= 24 else text[:24] + "..."
        return f'"{shown}"' if self.kind == "quoted" else f"'{shown}'"

    def refuse_as_attribute(self) -> NoReturn:
        found, before = self.shown(), self.at - 1
        if self.kind in _COMPARISONS:
            self.refuse(f"an attribute has to stand before {found}, such as degree=80")
        if self.kind == "word":
            self.refuse(
                f"{found} can't name an attribute: "
                "a letter or _ first, then letters, digits, _ - and single dots"
            )
        if self.kind == "quoted":
            self.refuse(f"{found}: an attribute stands without quotes; only values have them")
        if self.kind in ("*", ".."):
            self.refuse(f"{found} is a value; put an attribute before it: attribute=*")
        if self.at and self.kinds[before] != ")":
            self.refuse(f"an element has to follow '{self.texts[before]}', not {found}", before)
        self.refuse(f"an element such as type=temperature has to come before {found}")

    def refuse_after_element(self) -> NoReturn:
        before, text = self.at - 1, self.texts[self.at]
        advice = ""
        if self.kind in _TEXTS and self.kinds[before] == "word":
            several = f"{self.texts[before]} {text}"
            advice = f'; a text of several words stands in quotes: "{several}"'
        elif self.kind == "..":
            advice = "; a range follows '=': degree=80..120"
        elif self.kind == "*":
            advice = "; a '*' follows '=' or the start of a text: unit=Fa*"
        self.refuse(f"expected ',', '&', '|' or '/' before {self.shown()}{advice}")

    def refuse(self, problem: str, at: int | None = None) -> NoReturn:
        start = self.starts[self.at if at is None else at]
        raise ProfileError(problem, self.text, start + 1) from None
