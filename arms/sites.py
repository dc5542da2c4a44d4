"""Where data live, by the text of their profile.

What sensors post is nearly always `attribute=value, attribute=value`, written as Meteor itself
writes it. Such a text needs no grammar: it is cut at its commas, and the cells of its values are
kept. Everything else is parsed and checked like any message, with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

from arms.errors import MessageError
from arms.inbox import INBOX
from arms.limits import PROFILE_CHARACTERS_MAX, SITES_KEPT
from arms.message import Action, Header, Message, region_of
from arms.profile import Profile
from arms.selection import Placed, Value
from squid import Interval, Keyword, Space
from squid.errors import CodecError
from squid.patterns import Absent

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,14}")
DECIMAL_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,8})\.[0-9]{0,5}[1-9]")

PLAIN_CHARACTERS_MAX = 1_024
"""Longer profiles are seldom plain."""

PARTS_KEPT = 65_536
"""Attributes with a value that are kept: reading one takes some microseconds."""

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
        self._parts: dict[str, _Part] = {}
        self._axes = {dimension.name: axis for axis, dimension in enumerate(space.dimensions)}
        self._absent = [dimension.codec.owned(Absent()) for dimension in space.dimensions]
        # Makes the curve's tables, so that the first who posts need not wait for them.
        space.identifier([low for low, _ in self._absent])

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
        level: dict[str, Value] = {}
        owned = self._absent.copy()
        for written in text.split(", "):
            part = self._parts.get(written) or self._part(written)
            if part is None or part[0] in level:
                return None
            attribute, value, axis, cells = part
            level[attribute] = value
            if axis is not None:
                owned[axis] = cells
        space = self._space
        point = tuple(map(space.cell, space.dimensions, owned, repeat(text.encode())))
        return Site(text, space.identifier(point), point, (Placed((level,), ALL_FIXED),))

    def _part(self, written: str) -> _Part | None:
        """Read `attribute=value`; None if there is more to it. It is kept: values come again."""
        attribute, _, text = written.partition("=")
        if not NAME.fullmatch(attribute):
            return None
        value: str | int | float
        if text.isidentifier():
            value = text
        elif WHOLE_NUMBER.fullmatch(text):
            value = int(text)
        elif DECIMAL_NUMBER.fullmatch(text) and repr(float(text)) == text:
            value = float(text)
        else:
            return None
        part = _Part(attribute, value)
        if attribute in self._axes:
            axis = self._axes[attribute]
            pattern = Keyword(value) if isinstance(value, str) else Interval(value, value)
            try:
                owned = self._space.dimensions[axis].codec.owned(pattern)
            except CodecError:
                return None  # it is said in full the long way
            part = _Part(attribute, value, axis, owned)
        if len(self._parts) >= PARTS_KEPT:
            self._parts.clear()
        self._parts[written] = part
        return part


class _Part(NamedTuple):
    """What is written as `attribute=value`."""

    attribute: str
    value: str | int | float
    axis: int | None = None
    """The dimension that it is about, if it is about one."""
    owned: tuple[int, int] = (0, 0)
    """The cells on that axis that the value owns."""


ALL_FIXED: frozenset[int] = frozenset()
