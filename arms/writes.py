"""What can be written to a profile store. Each kind says what its result is."""

from __future__ import annotations

from dataclasses import dataclass, field

from arms.ballots import Ballot
from arms.batch import Batch
from arms.message import Message, Voters


@dataclass(frozen=True, slots=True)
class Put:
    """Keep a message; the result says whether it is new.

    One that is here already is renewed: it lives as long, and answers go where, the latest says.
    """

    message: Message


@dataclass(slots=True, eq=False)
class PutBatch:
    """Keep the messages of a batch, as `Put` does; the result counts those that are new."""

    batch: Batch
    repeated: set[int] = field(default_factory=set)
    """The rows of those that are not new; known when it is written."""
    seqs: range = range(0)
    """The numbers that the new ones got; known then, too."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep a note in its inbox; the result says whether it is new.

    In a full inbox a mark is kept instead, one for all that does not fit; the result is MARKED
    when it is new.
    """

    note: Message


MARKED = 2


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
class Vote:
    """Vote in a ballot on who takes an item; the result says whether this store did.

    A store promises a ballot without a value, and then takes part in no earlier one; with a value
    it accepts it. `arms.ballots` says what follows from the votes of several stores.
    """

    id: str
    voters: Voters
    ballot: Ballot
    value: str | None
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Assign:
    """Note who votes on items from now on; the result counts those that are here."""

    ids: tuple[str, ...]
    voters: Voters


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


Write = Put | PutBatch | Keep | Remove | Take | Vote | Assign | Bury | Drop | Sweep


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The trace of a deleted message, kept until the message would have expired."""

    id: str
    taker: str
    identifier: int
    point: bool
    """Whether the message was one; one that was a region may be wanted anywhere."""
    expires_ms: int
