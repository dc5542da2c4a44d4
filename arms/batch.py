"""Plain data messages by columns, so that many posts are handled as one.

Nearly all that is posted is data at one point of the space, with nothing special about it. What
such messages have in common is there once; what differs is a list for each field. No object is made
for a message on its way from the wire to the disk and to those who watch for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from arms.errors import MessageError
from arms.limits import TEXT_FIELD_MAX, TIME_MS_MAX
from arms.message import Action, Header, Message, Voters, check_data
from arms.sites import Site, Sites


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
    voters: Voters = field(default_factory=Voters)
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
                found = [site for text in profiles if (site := sites.of(text)) is not None]
                if len(found) < len(ids):
                    raise MessageError("data of a batch lie in one place each")
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
    if "" in ids or max(map(len, ids)) > TEXT_FIELD_MAX:
        raise MessageError(f"an id has 1 to {TEXT_FIELD_MAX} characters")
    check_data(max(data, key=len))
