"""What the client's calls take and return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from arms.message import Action, Message
from arms.profile import Profile
from meteor.errors import InputError, MeteorError, ProtocolError
from meteor.notifications import Told
from meteor.transport.channel import ERROR_KINDS
from meteor.transport.frames import Value
from squid.patterns import Interval, Keyword

T = TypeVar("T")

TTL_SECONDS = 3600.0
"""How long data stay when their sender does not say: long enough to be found, not for ever."""


class Post(NamedTuple):
    """A message to be posted; `Ring.post_many` takes many."""

    profile: str
    data: bytes | str = b""
    action: Action | str = Action.STORE
    ttl: float = TTL_SECONDS
    context: Mapping[str, str] = MappingProxyType({})


class Receipt(NamedTuple):
    """What became of a post."""

    id: str
    complete: bool
    """Every peer responsible for the profile has it."""
    peers: int
    """Peers that answered for a part of the profile's region."""
    copies: int
    """Copies on disk."""
    matches: int
    """Matches found: interests notified, data there already, or profiles deleted."""
    missing: float = 0.0
    """The share of the ring that did not answer."""
    lost: tuple[str, ...] = ()
    """Peers out of reach that were responsible before: while they are, others may not see this."""
    error: str = ""
    """Why it failed, in `post_many`; a single post raises instead."""


class Item(NamedTuple):
    """A message that was found or that a watch was notified of."""

    id: str
    profile: str
    data: bytes
    sender: str
    context: Mapping[str, str]
    expires_ms: int

    @property
    def text(self) -> str:
        """The data as text."""
        return self.data.decode("utf-8", errors="replace")

    def value(self, attribute: str) -> int | float | str | None:
        """Return the number or keyword that the profile gives an attribute.

        None when the attribute is not there, has no value, or has a range of them.
        """
        match Profile.parse(self.profile).data_by_attribute().get(attribute, ()):
            case (Keyword(text), *_):
                return text
            case (Interval(int() | float() as low) as interval, *_) if interval.is_number:
                return low
        return None


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An aggregate over all matches; `value` is None where there was nothing to take it of."""

    value: int | float | None
    matches: int
    complete: bool
    lost: tuple[str, ...] = ()
    """Peers out of reach that may know of more."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """Items that were taken.

    Not complete: a part of the ring did not answer, or not in time. What it gave away is lost to
    this taker, and to everybody.
    """

    items: tuple[Item, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class RingReport:
    """What the peers of a ring say about themselves, clockwise."""

    peers: tuple[dict[str, Any], ...]
    complete: bool
    missing: float
    """The share of the ring that did not answer."""


def item_of(message: Message) -> Item:
    """Return a message as programs see it."""
    header = message.header
    return Item(
        header.id,
        header.profile.text,
        message.data,
        header.sender,
        header.context,
        header.expires_ms,
    )


def items_of(told: Told) -> list[Item]:
    """Return messages that a watch is notified of, as programs see them."""
    fields = zip(
        told.ids,
        told.profiles,
        told.data,
        repeat(told.sender),
        repeat(told.context),
        told.expires_ms,
        strict=False,
    )
    return [*map(made, repeat(Item), fields)]


made: Callable[[type[T], tuple[Any, ...]], T] = tuple.__new__  # type: ignore[assignment]
"""Makes a named tuple of its fields; so many at a time take half as long as by its own name."""


def read_outcome(id_: str, wire: Value) -> Receipt | MeteorError:
    """Read what a peer says became of a post."""
    match wire:
        case [
            "receipt",
            bool() as complete,
            int() as peers,
            int() as copies,
            int() as matches,
            int() | float() as missing,
            list() as lost,
        ]:
            return Receipt(id_, complete, peers, copies, matches, missing, tuple(map(str, lost)))
        case ["error", str() as kind, str() as words]:
            return ERROR_KINDS.get(kind, InputError)(words)
        case _:
            return ProtocolError("what came is not a receipt")
