"""What can be written to a profile store. Each kind says what its result is."""

from __future__ import annotations

from dataclasses import dataclass

from arms.message import Message


@dataclass(frozen=True, slots=True)
class Put:
    """Keep a message; the result says whether it is new.

    One that is here already is renewed: it lives as long, and answers go where, the latest says.
    """

    message: Message


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete messages by id, leaving tombstones; the result counts those that were there."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Take:
    """Delete a data message for one taker; the result says whether this taker has it.

    Asked again by the same taker, the answer is the same: an answer that got lost costs nothing.
    """

    id: str
    taker: str
    credential: str


@dataclass(frozen=True, slots=True)
class Bury:
    """Take over tombstones from another peer."""

    tombstones: tuple[Tombstone, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget messages that now live elsewhere: no tombstones."""

    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Remove what has expired; the result counts it: up to `limit` messages and tombstones each."""

    limit: int


Write = Put | Remove | Take | Bury | Drop | Sweep


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The trace of a deleted message, kept until the message would have expired."""

    id: str
    taker: str
    identifier: int
    expires_ms: int
