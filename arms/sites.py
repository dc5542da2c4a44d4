"""Where data live, by the text of their profile.

What sensors post is nearly always `attribute=value, attribute=value`, written as Meteor itself
writes it. Such a text needs no grammar: it is cut at its commas, and the cells of its values are
kept. Everything else is parsed and checked like any message, with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from arms.errors import MessageError
from arms.inbox import INBOX
from arms.limits import PROFILE_CHARACTERS_MAX, SITES_KEPT
from arms.message import Action, Header, Message, region_of
from arms.profile import Profile
from arms.selection import Placed
from squid import Interval, Keyword, Pattern, Space
from squid.errors import CodecError
from squid.patterns import Absent

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,14}")
DECIMAL_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,8})\.[0-9]{0,5}[1-9]")

PLAIN_CHARACTERS_MAX = 1_024
"""Longer profiles are seldom plain."""

CELLS_KEPT = 65_536
"""Cells kept by value: finding them takes some microseconds, and values come again and again."""

assert PLAIN_CHARACTERS_MAX < PROFILE_CHARACTERS_MAX


class Site:
    """The one place of data with a profile, and what interests look at to select them."""

    __slots__ = ("_placed", "_profile", "cells", "identifier", "text")

    def __init__(
        self, text: str, identifier: int, cells: tuple[int, ...], placed: tuple[Placed, ...]
    ) -> None:
        self.text, self.identifier, self.cells = text, identifier, cells
        self._placed = placed
        self._profile: Profile | None = None

    @property
    def profile(self) -> Profile:
        """The profile as such."""
        if self._profile is None:
            self._profile = Profile.parse(self.text)
        return self._profile

    def placed(self) -> tuple[Placed, ...]:
        """Return the profile as a compiled selection looks at it."""
        return self._placed


class Sites:
    """The sites of data in one space; those that were asked for lately are kept."""

    def __init__(self, space: Space) -> None:
        self._space = space
        # Two generations: what was asked for lately, and what was before that.
        self._kept: dict[str, Site | None] = {}
        self._kept_before: dict[str, Site | None] = {}
        self._cells: dict[tuple[int, str], tuple[int, int]] = {}
        self._names = [dimension.name for dimension in space.dimensions]

    def kept(self, texts: Iterable[str]) -> list[Site | None]:
        """Return the sites that are at hand; None: ask for it."""
        return [*map(self._kept.get, texts)]

    def of(self, text: str) -> Site | None:
        """Return the site of data; raises what is wrong with the profile, for its writer.

        None: a range on a dimension lies in more than one place; such data go by themselves.
        """
        if text in self._kept:
            return self._kept[text]
        if text in self._kept_before:
            site = self._kept_before[text]
        else:
            site = self._plain(text) or self.find(text)
        if len(self._kept) >= SITES_KEPT // 2:
            self._kept, self._kept_before = {}, self._kept
        self._kept[text] = site
        return site

    def find(self, text: str) -> Site | None:
        """Find a site by parsing and checking the profile."""
        profile = Profile.parse(text)
        message = Message(Header(profile, "-"), Action.STORE)
        message.check(self._space)
        if INBOX in profile.attributes():
            raise MessageError(f"{INBOX} is reserved: only the ring itself writes notes")
        region = region_of(self._space, message)
        if not region.is_point or region.lowest is None:
            return None
        cells = tuple(low for low, _ in region.boxes[0])
        site = Site(profile.text, region.lowest, cells, profile.placed())
        site._profile = profile
        return site

    def _plain(self, text: str) -> Site | None:
        """Find a site the short way; None when it takes the long one."""
        if self._space.closed or len(text) > PLAIN_CHARACTERS_MAX or not text.isascii():
            return None
        level: dict[str, str | int | float] = {}
        texts: dict[str, str] = {}
        for part in text.split(", "):
            attribute, _, value = part.partition("=")
            if attribute in level or not NAME.fullmatch(attribute):
                return None
            texts[attribute] = value
            if value.isidentifier():
                level[attribute] = value
            elif WHOLE_NUMBER.fullmatch(value):
                level[attribute] = int(value)
            elif DECIMAL_NUMBER.fullmatch(value) and repr(number := float(value)) == value:
                level[attribute] = number
            else:
                return None
        salt = text.encode()
        try:
            cells = tuple(
                [
                    self._cell(axis, level.get(name), texts.get(name, ""), salt)
                    for axis, name in enumerate(self._names)
                ]
            )
        except CodecError:
            return None  # it is said in full the long way
        placed = Placed((dict(level),), frozenset())
        return Site(text, self._space.identifier(cells), cells, (placed,))

    def _cell(self, axis: int, value: str | int | float | None, written: str, salt: bytes) -> int:
        """Return the cell of a value; those that it owns are kept."""
        dimension = self._space.dimensions[axis]
        owned = self._cells.get((axis, written))
        if owned is None:
            pattern: Pattern = Absent()
            if isinstance(value, str):
                pattern = Keyword(value)
            elif value is not None:
                pattern = Interval(value, value)
            owned = dimension.codec.owned(pattern)
            if len(self._cells) >= CELLS_KEPT:
                self._cells.clear()
            self._cells[axis, written] = owned
        return owned[0] if owned[0] == owned[1] else self._space.cell(dimension, owned, salt)
