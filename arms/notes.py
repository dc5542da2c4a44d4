"""Notes: notifications that are kept in an inbox until they are acknowledged.

A reliable watch is an interest with an inbox. What it matches becomes a note there, a data message
whose id comes from the watch and from what it is about: a note that is posted twice is one note.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgpack

from arms.errors import MessageError
from arms.inbox import derived_id, inbox_profile
from arms.message import Action, Header, Message


@dataclass(frozen=True, slots=True)
class Due:
    """A note that has to be posted before the post that it is about is acknowledged.

    It says for whom; whoever posts it has the message itself, so that data travel once.
    """

    watch: str
    inbox: str
    keep_seconds: float
    credential: str

    def note(self, now_ms: int, about: Message) -> Message:
        """Return the note about a message."""
        header = Header(
            inbox_profile(self.inbox),
            derived_id(self.watch, about.id),
            now_ms + round(self.keep_seconds * 1000),
            credential=self.credential,
        )
        data = msgpack.packb([self.watch, about.without_credential().to_wire()])
        return Message(header, Action.STORE, data)

    def to_wire(self) -> list[Any]:
        """Return the wire form."""
        return [self.watch, self.inbox, self.keep_seconds, self.credential]

    @classmethod
    def from_wire(cls, wire: object) -> Due:
        """Read the wire form; `MessageError` says what does not fit."""
        match wire:
            case [
                str() as watch,
                str() as inbox,
                int() | float() as keep_seconds,
                str() as credential,
            ]:
                return cls(watch, inbox, keep_seconds, credential)
            case _:
                raise MessageError("what came is no note to be posted")


@dataclass(frozen=True, slots=True)
class Note:
    """What a note says: which watch matched what. About nothing: some did not fit the inbox."""

    watch: str
    about: Message | None

    @classmethod
    def read(cls, data: bytes) -> Note:
        """Read a note's data; `MessageError` says what does not fit."""
        try:
            wire = msgpack.unpackb(data)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise MessageError("what lies in the inbox is no note") from error
        match wire:
            case [str() as watch, None]:
                return cls(watch, None)
            case [str() as watch, about]:
                return cls(watch, Message.from_wire(about))
            case _:
                raise MessageError("what lies in the inbox is no note")


def due(watch: Message) -> Due:
    """Return the note that a reliable watch is due for a match."""
    wanted, header = watch.modifiers, watch.header
    assert wanted.inbox is not None
    assert wanted.keep is not None
    return Due(header.id, wanted.inbox, wanted.keep, header.credential)


def overflow_prefix(note: Message) -> str:
    """Return how the ids of the marks begin that stand for notes of a watch that did not fit."""
    return f"overflow-{Note.read(note.data).watch}-"


def overflow_mark(note: Message) -> Message:
    """Return the mark to be kept in place of a note that does not fit.

    Its id is of this note: one that was acknowledged must not keep a later one away.
    """
    header = replace(note.header, id=overflow_prefix(note) + note.id)
    return Message(header, Action.STORE, msgpack.packb([Note.read(note.data).watch, None]))


def watch_id(inbox: str, profile: str) -> str:
    """Return the id of a reliable watch: posted again, it is the same one."""
    return derived_id("watch", inbox, profile)
