"""Plain data messages by columns, so that many posts are handled as one.

Nearly all that is posted is data at one point of the space, with nothing special about it. What
such messages have in common is there once; what differs is a list for each field. No object is made
for a message on its way from the wire to the disk and to those who watch for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from arms.errors import MessageError
from arms.inbox import INBOX
from arms.limits import DATA_BYTES_MAX, SITES_KEPT, TEXT_FIELD_MAX, TIME_MS_MAX
from arms.message import Action, Header, Message, Voters, region_of
from arms.profile import Profile
from squid import Space


class Site(NamedTuple):
    """Where data with a profile live."""

    profile: Profile
    text: str
    identifier: int
    cells: tuple[int, ...]


class Sites:
    """The sites of data in one space, kept by the text of their profile: sensors repeat theirs."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._kept: dict[str, Site] = {}

    def of(self, text: str) -> Site:
        """Return the site of data; raises what is wrong with the profile, for its writer.

        Data with a range on a dimension have no site: `NoSite`.
        """
        site = self._kept.get(text)
        if site is None:
            site = self._find(text)
            if len(self._kept) >= SITES_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[text] = site
        return site

    def _find(self, text: str) -> Site:
        profile = Profile.parse(text)
        message = Message(Header(profile, "-"), Action.STORE)
        message.check(self._space)
        if INBOX in profile.attributes():
            raise MessageError(f"{INBOX} is reserved: only the ring itself writes notes")
        region = region_of(self._space, message)
        if not region.is_point:
            raise NoSite(f"data with a range lie in more than one place: {profile}")
        assert region.lowest is not None
        cells = tuple(low for low, _ in region.boxes[0])
        return Site(profile, profile.text, region.lowest, cells)


class NoSite(MessageError):
    """Data that lie in more than one place; they are posted as a message of their own."""


@dataclass(slots=True)
class Batch:
    """Data messages of one sender, each at one point."""

    sender: str
    reply_to: str
    credential: str
    ids: list[str] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    expires_ms: list[int] = field(default_factory=list)
    voters: Voters = Voters()
    """Who decides whom the data go to; set by the peer that stores them."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def weight(self) -> int:
        """About how many bytes the messages take on the wire."""
        return sum(map(len, self.data)) + BATCH_ENTRY_BYTES * len(self.ids)

    def part(self, rows: Sequence[int]) -> Batch:
        """Return some of the messages."""
        return Batch(
            self.sender,
            self.reply_to,
            self.credential,
            [self.ids[i] for i in rows],
            [self.sites[i] for i in rows],
            [self.data[i] for i in rows],
            [self.expires_ms[i] for i in rows],
            self.voters,
        )

    def message(self, row: int) -> Message:
        """Return one of the messages by itself."""
        header = Header(
            self.sites[row].profile,
            self.ids[row],
            self.expires_ms[row],
            self.sender,
            self.reply_to,
            self.credential,
            {},
            self.voters,
        )
        return Message(header, Action.STORE, self.data[row])

    def to_wire(self) -> list[Any]:
        """Return the wire form."""
        return [
            self.sender,
            self.reply_to,
            self.credential,
            self.ids,
            [site.text for site in self.sites],
            self.data,
            self.expires_ms,
        ]

    @classmethod
    def from_wire(cls, sites: Sites, wire: object) -> Batch:
        """Read the wire form; `MessageError` says what does not fit."""
        match wire:
            case [
                str() as sender,
                str() as reply_to,
                str() as credential,
                list() as ids,
                list() as profiles,
                list() as data,
                list() as expires_ms,
            ]:
                check_columns(ids, profiles, data)
                if len(expires_ms) != len(ids) or not all(
                    type(end) is int and 0 <= end <= TIME_MS_MAX for end in expires_ms
                ):
                    raise MessageError("what came are not the ends of as many messages")
                if max(len(sender), len(reply_to), len(credential)) > TEXT_FIELD_MAX:
                    raise MessageError(
                        f"a text of a header has at most {TEXT_FIELD_MAX} characters"
                    )
                found = [sites.of(text) for text in profiles]
                return cls(sender, reply_to, credential, ids, found, data, expires_ms)
            case _:
                raise MessageError("what came is no batch of messages")


BATCH_ENTRY_BYTES = 128
"""What a message of a batch takes besides its data, roughly."""


def check_columns(ids: list[Any], profiles: list[Any], data: list[Any]) -> None:
    """See that these are the ids, profiles and data of messages, as many of each."""
    if not len(ids) == len(profiles) == len(data):
        raise MessageError("what came are columns of different lengths")
    if not ids:
        return
    if {*map(type, ids), *map(type, profiles)} != {str} or {*map(type, data)} != {bytes}:
        raise MessageError("messages have texts as ids and profiles, and bytes as data")
    if not 1 <= min(map(len, ids)) or max(map(len, ids)) > TEXT_FIELD_MAX:
        raise MessageError(f"an id has 1 to {TEXT_FIELD_MAX} characters")
    if max(map(len, data)) > DATA_BYTES_MAX:
        raise MessageError(
            f"{max(map(len, data)):,} bytes of data; a message carries at most {DATA_BYTES_MAX:,}"
        )
