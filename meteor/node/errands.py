"""What is asked of the peers of a region, and what they answer.

An errand goes down the tree of peers that own a part of its region; answers come back up and are
merged on the way. Each answer says for which spans of the ring it speaks, so that whoever asked can
tell what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from arms.aggregate import Aggregate
from arms.message import Message, region_of, weight
from arms.notes import Due
from arms.rendezvous import Found
from meteor.errors import InputError
from meteor.limits import LOST_PEERS_MAX, PAGE_BYTES, SURVEY_PEERS_MAX
from meteor.matches import read_match
from meteor.ring.arcs import TOP, WHOLE, Everything, Members, Span, Spans, missing, union
from meteor.ring.fingers import Known
from meteor.ring.questions import Peer
from meteor.transport.frames import Value
from squid import Space


@dataclass(frozen=True, slots=True)
class Take:
    """Take one message for one taker."""

    id: str
    taker: str
    credential: str


@dataclass(frozen=True, slots=True)
class Check:
    """Say, as a match, whether a message is there."""

    id: str


@dataclass(frozen=True, slots=True)
class Survey:
    """Report about yourself; an order comes along for the peers of a ring that moves."""

    order: Value = None


@dataclass(frozen=True, slots=True)
class Forget:
    """Wait no longer for a lost peer: it will not come back."""

    address: str


@dataclass(frozen=True, slots=True)
class Miss:
    """Say, as a match, whether you miss a peer, or did a moment ago."""


Task = Message | Take | Check | Survey | Forget | Miss


@dataclass(frozen=True, slots=True)
class Errand:
    """A message to handle, an item to take or a report to make, for whoever owns the spans."""

    task: Task
    spans: Spans
    resume: Mapping[int, str] = field(default_factory=dict)
    """Where a retrieval goes on: identifiers, and the last message id seen there."""
    bytes_max: int = PAGE_BYTES
    traced: bool = False
    """Only the way is of interest: each peer says that it was reached, and does nothing else."""
    quiet: bool = False
    """Nobody is told of it: it comes from the ring's last space, where that was done."""
    repeated: bool = False
    """It was asked before, without an answer, so it may have been carried out elsewhere."""

    def members(self, space: Space) -> Members:
        """Return the identifiers that the errand is about."""
        return region_of(space, self.task) if isinstance(self.task, Message) else Everything()

    def within(self, spans: Spans, share: int = 1) -> Errand:
        """Return the errand for a part of the ring, with a share of its bytes."""
        return replace(self, spans=spans, bytes_max=max(1, self.bytes_max // share))

    def to_wire(self) -> list[Any]:
        """Return the wire form."""
        match self.task:
            case Message() as message:
                task = ["message", message.to_wire()]
            case Take(id_, taker, credential):
                task = ["take", [id_, taker, credential]]
            case Check(id_):
                task = ["check", id_]
            case Survey(order):
                task = ["survey", order]
            case Forget(address):
                task = ["forget", [address]]
            case Miss():
                task = ["miss", []]
        resume = [[at, id_] for at, id_ in self.resume.items()]
        flags = [self.traced, self.quiet, self.repeated]
        return [*task, self.spans, resume, self.bytes_max, *flags]

    @classmethod
    def from_wire(cls, wire: object) -> Errand:
        """Read the wire form; `InputError` says what does not fit."""
        match wire:
            case [
                str() as kind,
                body,
                list() as spans,
                list() as resume,
                int() as bytes_max,
                bool() as traced,
                bool() as quiet,
                bool() as repeated,
            ]:
                task, where, places = _task(kind, body), read_spans(spans), read_resume(resume)
                return cls(task, where, places, bytes_max, traced, quiet, repeated)
            case _:
                raise InputError("what came is not an errand")


@dataclass(slots=True)
class Trace:
    """The way of an errand: a peer, what it did itself and whom it asked."""

    peer: Peer
    owner: bool
    milliseconds: float
    hops: list[Trace] = field(default_factory=list)

    def to_wire(self) -> list[Any]:
        """Return the wire form."""
        hops = [hop.to_wire() for hop in self.hops]
        return [self.peer.id, self.peer.address, self.owner, self.milliseconds, hops]

    @classmethod
    def from_wire(cls, wire: object, depth: int = 0) -> Trace:
        """Read the wire form."""
        match wire:
            case [
                int() as id_,
                str() as address,
                bool() as owner,
                int() | float() as milliseconds,
                list() as hops,
            ] if depth <= 64:
                inner = [cls.from_wire(hop, depth + 1) for hop in hops]
                return cls(Peer(id_, address), owner, milliseconds, inner)
            case _:
                raise InputError("what came is not a trace")


@dataclass(slots=True)
class Answer:
    """What a part of the ring says to an errand."""

    covered: Spans = ()
    resume: dict[int, str] = field(default_factory=dict)
    speakers: list[Known] = field(default_factory=list)
    matches: int = 0
    copies: int = 0
    found: list[Found] = field(default_factory=list)
    aggregate: Aggregate = field(default_factory=Aggregate)
    faults: list[str] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Peers that may know more: they went without a word, and others answered in their place."""
    notes: list[Due] = field(default_factory=list)
    """What has to be in inboxes before the sender is told that its post was done."""

    @property
    def bytes_found(self) -> int:
        """The size of what was found."""
        return sum(weight(found.message) for found in self.found)

    def merge(self, other: Answer) -> None:
        """Add what another part of the ring says."""
        self.covered = union((*self.covered, *other.covered))
        self.resume |= other.resume
        self.speakers += other.speakers
        self.matches += other.matches
        self.copies += other.copies
        self.found += other.found
        self.aggregate = self.aggregate.merge(other.aggregate)
        self.faults += other.faults
        self.reports = (self.reports + other.reports)[:SURVEY_PEERS_MAX]
        self.traces += other.traces
        self.lost = sorted({*self.lost, *other.lost})[:LOST_PEERS_MAX]
        self.notes += other.notes

    def to_wire(self) -> list[Any]:
        """Return the wire form."""
        return [
            self.covered,
            [[at, id_] for at, id_ in self.resume.items()],
            [[known.peer.id, known.peer.address, known.predecessor] for known in self.speakers],
            self.matches,
            self.copies,
            [[found.identifier, found.message.to_wire()] for found in self.found],
            self.aggregate.to_wire(),
            self.faults,
            self.reports,
            [trace.to_wire() for trace in self.traces],
            self.lost,
            [due.to_wire() for due in self.notes],
        ]

    @classmethod
    def from_wire(cls, wire: object) -> Answer:
        """Read the wire form; `InputError` says what does not fit."""
        match wire:
            case [
                list() as covered,
                list() as resume,
                list() as speakers,
                int() as matches,
                int() as copies,
                list() as found,
                aggregate,
                list() as faults,
                list() as reports,
                list() as traces,
                list() as lost,
                list() as notes,
            ]:
                return cls(
                    read_spans(covered),
                    read_resume(resume),
                    [_known(known) for known in speakers],
                    matches,
                    copies,
                    [read_found(match) for match in found],
                    Aggregate.from_wire(aggregate),
                    [str(fault) for fault in faults],
                    [dict(report) for report in reports if isinstance(report, dict)],
                    [Trace.from_wire(trace) for trace in traces],
                    [str(address) for address in lost[:LOST_PEERS_MAX]],
                    [Due.from_wire(due) for due in notes],
                )
            case _:
                raise InputError("what came is not an answer")


def errand_for(space: Space, message: Message, spans: Spans = WHOLE) -> Errand:
    """Return the errand that brings a message to all who own a part of its region."""
    region = region_of(space, message)
    if region.is_point and region.lowest is not None:
        return Errand(message, ((region.lowest, region.lowest),))
    return Errand(message, missing(region, spans, ()))


def _task(kind: str, body: Value) -> Task:
    match kind, body:
        case "message", _:
            return Message.from_wire(body)
        case "take", [str() as id_, str() as taker, str() as credential]:
            return Take(id_, taker, credential)
        case "check", str() as id_:
            return Check(id_)
        case "survey", _:
            return Survey(body)
        case "forget", [str() as address]:
            return Forget(address)
        case "miss", []:
            return Miss()
        case _:
            raise InputError(f"no errand of the kind {kind!r}")


def read_spans(wire: list[Any]) -> Spans:
    """Read spans from the wire."""
    spans: list[Span] = []
    for entry in wire:
        match entry:
            case [int() as low, int() as high] if 0 <= low <= high <= TOP:
                spans.append((low, high))
            case _:
                raise InputError(f"{entry!r} is no span of the ring")
    return union(spans)


def read_resume(wire: list[Any]) -> dict[int, str]:
    """Read the places at which a retrieval goes on."""
    resume: dict[int, str] = {}
    for entry in wire:
        match entry:
            case [int() as at, str() as id_]:
                resume[at] = id_
            case _:
                raise InputError(f"{entry!r} is no place to resume at")
    return resume


def read_found(wire: object) -> Found:
    """Read one match from the wire."""
    return Found(*read_match(wire))


def read_peer(wire: object) -> Peer:
    """Read a peer from the wire."""
    match wire:
        case [int() as id_, str() as address] if 0 <= id_ <= TOP and len(address) <= 256:
            return Peer(id_, address)
        case _:
            raise InputError(f"{wire!r} is no peer")


def _known(wire: object) -> Known:
    match wire:
        case [int() as id_, str() as address, int() | None as predecessor]:
            return Known(read_peer([id_, address]), predecessor)
        case _:
            raise InputError(f"{wire!r} is no peer")
