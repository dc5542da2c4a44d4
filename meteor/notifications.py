"""Notifications on the wire, by columns: a list a field, and what messages have in common once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from arms.batch import Batch
from arms.message import Message
from meteor.errors import ProtocolError
from meteor.transport.frames import Value


@dataclass(frozen=True, slots=True)
class Told:
    """What watchers are told of one or more messages of one sender: a list for each field."""

    sender: str
    context: Mapping[str, str]
    ids: Sequence[str]
    profiles: Sequence[str]
    data: Sequence[bytes]
    expires_ms: Sequence[int]

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, begin: int, end: int) -> Told:
        """Return some of the messages."""
        return Told(
            self.sender,
            self.context,
            self.ids[begin:end],
            self.profiles[begin:end],
            self.data[begin:end],
            self.expires_ms[begin:end],
        )


Group = tuple[Told, Sequence[object]]
"""Messages that go to the same watches (of one client) or targets (at one peer), and these."""


def told(message: Message) -> Told:
    """Return what watchers are told of a message."""
    header = message.header
    return Told(
        header.sender,
        header.context,
        [header.id],
        [header.profile.text],
        [message.data],
        [header.expires_ms],
    )


def told_of(batch: Batch) -> Told:
    """Return what watchers are told of the messages of a batch."""
    texts = [site.text for site in batch.sites]
    return Told(batch.sender, {}, batch.ids, texts, batch.data, batch.expires_ms)


def columns(groups: Sequence[Group]) -> list[Value]:
    """Return messages as the wire has them: a list for each field, and whose and for whom."""
    ids: list[str] = []
    profiles: list[str] = []
    data: list[bytes] = []
    ends: list[int] = []
    runs: list[Value] = []
    for some, targets in groups:
        ids += some.ids
        profiles += some.profiles
        data += some.data
        ends += some.expires_ms
        runs.append([len(some), some.sender, some.context, targets])
    return [ids, profiles, data, ends, runs]


KINDS = (str, str, bytes, int, list)
"""What each column holds."""


def read(wire: Value) -> Iterator[tuple[Told, list[Value]]]:
    """Read what `columns` wrote; `ProtocolError` says what does not fit."""
    if not (isinstance(wire, list) and len(wire) == len(KINDS)):
        raise ProtocolError("what came are not notifications")
    for column, kind in zip(wire, KINDS, strict=True):
        if not isinstance(column, list) or {*map(type, column)} - {kind}:
            raise ProtocolError("what came are not notifications")
    *fields, runs = wire
    for run in runs:
        match run:
            case [int() as count, str(), dict(), list()] if count > 0:
                pass
            case _:
                raise ProtocolError("what came are not those who are notified")
    edges = [*accumulate([run[0] for run in runs], initial=0)]
    if {*map(len, fields)} != {edges[-1]}:
        raise ProtocolError("what came are columns of different lengths")
    for (begin, end), (_, sender, context, targets) in zip(pairwise(edges), runs, strict=True):
        yield Told(sender, context, *[field[begin:end] for field in fields]), targets
