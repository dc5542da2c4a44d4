"""Associative Rendezvous messages: (header, action, data), and their form on the wire.

The action says what happens at the rendezvous (Table 1 of the paper) and classifies the profile:
`store` carries data, `notify_interest` advertises data that could come, the others carry interests.
Modifiers make an action programmable (section 2.1: "other behaviors").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from arms.errors import MessageError
from arms.inbox import INBOX, check_name, inbox_of, inbox_region
from arms.limits import (
    CONTEXT_ENTRIES_MAX,
    DATA_BYTES_MAX,
    REGIONS_KEPT,
    TEXT_FIELD_MAX,
    TIME_MS_MAX,
    TTL_SECONDS_MAX,
    VOTERS_MAX,
)
from arms.profile import Profile
from squid import Region, Space
from squid.patterns import Absent

ENVELOPE_BYTES = 256
"""What a message takes on the wire besides its data, profile and context, roughly."""


class Action(StrEnum):
    """What a message does at the rendezvous (Table 1)."""

    STORE = "store"
    RETRIEVE = "retrieve"
    NOTIFY_DATA = "notify_data"
    NOTIFY_INTEREST = "notify_interest"
    DELETE_DATA = "delete_data"
    DELETE_INTEREST = "delete_interest"


ACTIONS = frozenset(action.value for action in Action)


class Kind(StrEnum):
    """What a stored profile is."""

    DATA = "data"
    INTEREST = "interest"
    ADVERTISEMENT = "advertisement"


STORED_AS: Mapping[Action, Kind] = {
    Action.STORE: Kind.DATA,
    Action.NOTIFY_DATA: Kind.INTEREST,
    Action.NOTIFY_INTEREST: Kind.ADVERTISEMENT,
}
"""The actions whose messages stay at the rendezvous for their TTL, and what they are there."""

AGGREGATES = ("count", "min", "max", "sum", "avg")


@dataclass(frozen=True, slots=True)
class Modifiers:
    """How an action departs from "all matches, as they are"."""

    limit: int | None = None
    """At most this many matches; 1 is the paper's "any one"."""
    aggregate: str | None = None
    """One of AGGREGATES, computed on the way back instead of the matches themselves."""
    attribute: str | None = None
    """What the aggregate is taken of."""
    only: str | None = None
    """The id of the one message that a delete is meant for."""
    inbox: str | None = None
    """Where a reliable watch wants its notifications kept until they are acknowledged."""
    keep: float | None = None
    """For how many seconds they are kept."""

    def to_wire(self) -> list[Any]:
        """Return the wire form: without an inbox, as it was before there were any."""
        wire = [self.limit, self.aggregate, self.attribute, self.only]
        return wire if self.inbox is None else [*wire, self.inbox, self.keep]


@dataclass(frozen=True, slots=True, order=True)
class Voters:
    """The peers that vote on who takes an item, by their places; a later term has replaced them."""

    term: int = 0
    peers: tuple[int, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.peers))

    @classmethod
    def parse(cls, term: int, peers: str) -> Voters:
        """Read voters from a term and their text."""
        return cls(term, tuple(map(int, peers.split(",")))) if peers else cls(term)

    def to_wire(self) -> list[int]:
        """Return the wire form."""
        return [self.term, *self.peers]

    @classmethod
    def from_wire(cls, wire: object) -> Voters:
        """Read the wire form; `MessageError` says what does not fit."""
        match wire:
            case [int() as term, *peers] if len(peers) <= VOTERS_MAX and 0 <= term <= TIME_MS_MAX:
                places = tuple(p for p in peers if isinstance(p, int) and 0 <= p <= TIME_MS_MAX)
                if len(places) == len(peers):
                    return cls(term, places)
        raise MessageError("what came are no voters")


@dataclass(frozen=True, slots=True)
class Header:
    """Who sends what, about what, and for how long."""

    profile: Profile
    id: str
    expires_ms: int = 0
    """The end of the TTL, in milliseconds since the epoch; set where it enters the ring."""
    sender: str = ""
    reply_to: str = ""
    """The address of the peer that can reach the sender."""
    credential: str = ""
    """What was posted with a credential is deleted or consumed only with the same one."""
    context: Mapping[str, str] = field(default_factory=dict)
    voters: Voters = Voters()
    """Who decides whom the data go to when they are consumed; set by the peer that stores them."""


@dataclass(frozen=True, slots=True)
class Message:
    """An AR message."""

    header: Header
    action: Action
    data: bytes = b""
    modifiers: Modifiers = Modifiers()

    @property
    def id(self) -> str:
        """The message's id."""
        return self.header.id

    @property
    def profile(self) -> Profile:
        """The message's profile."""
        return self.header.profile

    @property
    def stored_as(self) -> Kind | None:
        """What the message is while it stays at the rendezvous; None when it does not stay."""
        return STORED_AS.get(self.action)

    def sent_by(self, sender: str, reply_to: str, expires_ms: int) -> Message:
        """Return the message as it enters the ring: stamped with who sent it and its end."""
        header = replace(
            self.header,
            sender=sender,
            reply_to=reply_to,
            expires_ms=expires_ms,
            voters=Voters(),
        )
        return replace(self, header=header)

    def voted_on_by(self, voters: Voters) -> Message:
        """Return the message with those who vote on who takes it."""
        return replace(self, header=replace(self.header, voters=voters))

    def without_credential(self) -> Message:
        """Return the message as others may see it."""
        if not self.header.credential:
            return self
        return replace(self, header=replace(self.header, credential=""))

    def check(self, space: Space) -> None:
        """Raise what is wrong with the message in this space, for the person who wrote it."""
        if self.action is Action.STORE:
            self.profile.as_data()
            self._check_dimensions(space)
        elif self.action is Action.NOTIFY_INTEREST:
            self.profile.as_advertisement()
            self._check_dimensions(space)
        self._check_inbox()
        named = self.profile.attributes() - {INBOX}
        unknown = sorted(name for name in named if not space.knows(name))
        if unknown:
            known = ", ".join(sorted({d.name for d in space.dimensions} | space.attributes))
            raise MessageError(
                f"the space {space.name!r} is closed and does not know {', '.join(unknown)}; "
                f"it knows {known}"
            )
        check_data(self.data)
        region_of(space, self)

    def _check_inbox(self) -> None:
        """See that inboxes are used for what they are for."""
        if INBOX in self.profile.attributes():
            if self.stored_as not in (None, Kind.INTEREST) and inbox_of(self.profile) is None:
                raise MessageError(f"{INBOX} is reserved: it stands alone, as {INBOX}=NAME")
            if self.modifiers.inbox is not None:
                raise MessageError(f"{INBOX} can't be watched reliably: it is where notes wait")
        if self.modifiers.inbox is not None and self.action is not Action.NOTIFY_DATA:
            raise MessageError(f"a {self.action} message has no use for an inbox")

    def _check_dimensions(self, space: Space) -> None:
        """See that data have one place in the space: a dimension stands on one level only."""
        given = self.profile.data_by_attribute()
        for dimension in space.dimensions:
            if len(given.get(dimension.name, ())) > 1:
                raise MessageError(
                    f"{dimension.name!r} is a dimension of the space {space.name!r}: data may give "
                    "it once, on one level"
                )

    def to_wire(self) -> list[Any]:
        """Return the message as msgpack can carry it."""
        header = self.header
        return [
            header.id,
            self.action.value,
            str(header.profile),
            header.expires_ms,
            header.sender,
            header.reply_to,
            header.credential,
            dict(header.context),
            self.data,
            self.modifiers.to_wire(),
            header.voters.to_wire(),
        ]

    @classmethod
    def from_wire(cls, wire: object) -> Message:
        """Read the wire form; `MessageError` says what does not fit."""
        match wire:
            case [
                str() as id_,
                str() as action,
                str() as profile,
                int() as expires_ms,
                str() as sender,
                str() as reply_to,
                str() as credential,
                dict() as context,
                bytes() as data,
                modifiers,
                voters,
            ] if action in ACTIONS:
                _check_texts(id=id_, sender=sender, reply_to=reply_to, credential=credential)
                if not 0 <= expires_ms <= TIME_MS_MAX:
                    raise MessageError(f"a message can't end at {expires_ms} ms")
                header = Header(
                    Profile.parse(profile),
                    id_,
                    expires_ms,
                    sender,
                    reply_to,
                    credential,
                    _context(context),
                    Voters.from_wire(voters),
                )
                return cls(header, Action(action), data, _modifiers(modifiers))
            case [_, str() as action, *_] if action not in ACTIONS:
                raise MessageError(f"no action {action!r}; there are {', '.join(Action)}")
            case _:
                raise MessageError("what came is not a message")


def check_data(data: bytes) -> bytes:
    """Return the data when a message can carry them."""
    if len(data) > DATA_BYTES_MAX:
        raise MessageError(
            f"{len(data):,} bytes of data; a message carries at most {DATA_BYTES_MAX:,}"
        )
    return data


def check_ttl(seconds: float) -> float:
    """Return the TTL when it is one."""
    if not 0 <= seconds <= TTL_SECONDS_MAX:  # also False for NaN
        raise MessageError(f"a TTL of {seconds} s; it must be 0 to {TTL_SECONDS_MAX:,} seconds")
    return seconds


def region_of(space: Space, message: Message) -> Region:
    """Return the part of the information space that a message is about."""
    return region_of_profile(space, message.profile, message.action)


def weight(message: Message) -> int:
    """Return about how many bytes a message takes on the wire."""
    context = sum(len(key) + len(value) for key, value in message.header.context.items())
    return len(message.data) + len(str(message.profile)) + context + ENVELOPE_BYTES


@lru_cache(REGIONS_KEPT)
def region_of_profile(space: Space, profile: Profile, action: Action) -> Region:
    """Return the same for a message with this profile and action."""
    inbox = inbox_of(profile)
    if inbox is not None:
        return inbox_region(space, inbox)
    if action is Action.STORE:
        # Salted by the profile, not by the message, so that regions can be kept by profile.
        return space.point_region(profile.data_by_attribute(), profile.text.encode())
    if action is Action.NOTIFY_INTEREST:
        return space.region([profile.data_by_attribute()], missing=Absent())
    return space.region(profile.by_attribute())


def _check_texts(**texts: str) -> None:
    for name, text in texts.items():
        if len(text) > TEXT_FIELD_MAX:
            raise MessageError(f"{name} has {len(text)} characters; at most {TEXT_FIELD_MAX} fit")
    if not texts.get("id", "-"):
        raise MessageError("a message needs an id")


def _context(context: Mapping[object, object]) -> Mapping[str, str]:
    if len(context) > CONTEXT_ENTRIES_MAX:
        raise MessageError(
            f"a context of {len(context)} entries; at most {CONTEXT_ENTRIES_MAX} fit"
        )
    for key, value in context.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise MessageError("a context maps texts to texts")
        if len(key) > TEXT_FIELD_MAX or len(value) > TEXT_FIELD_MAX:
            raise MessageError(f"a context entry has at most {TEXT_FIELD_MAX} characters a side")
    return {str(key): str(value) for key, value in context.items()}


def _modifiers(wire: object) -> Modifiers:
    match wire:
        case [
            int() | None as limit,
            str() | None as aggregate,
            str() | None as attribute,
            str() | None as only,
            *rest,
        ]:
            _check_texts(attribute=attribute or "", only=only or "")
            match rest:
                case []:
                    return modifiers(limit, aggregate, attribute, only)
                case [str() as inbox, int() | float() as keep]:
                    return modifiers(limit, aggregate, attribute, only, inbox, keep)
    raise MessageError("what came is not a message: its modifiers are malformed")


def modifiers(
    limit: int | None = None,
    aggregate: str | None = None,
    attribute: str | None = None,
    only: str | None = None,
    inbox: str | None = None,
    keep: float | None = None,
) -> Modifiers:
    """Return checked modifiers."""
    if limit is not None and limit < 1:
        raise MessageError(f"a limit of {limit}; it must be at least 1")
    if aggregate is not None and aggregate not in AGGREGATES:
        raise MessageError(f"no aggregate {aggregate!r}; there are {', '.join(AGGREGATES)}")
    if aggregate not in (None, "count") and not attribute:
        raise MessageError(f"the aggregate {aggregate} needs an attribute, such as degree")
    if inbox is not None:
        check_name(inbox)
        if keep is None or check_ttl(keep) == 0:
            raise MessageError("notes are kept for more than 0 seconds")
    return Modifiers(limit, aggregate, attribute, only, inbox, keep)
