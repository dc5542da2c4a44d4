"""Notifications on the wire, by columns: a list a field, instead of a map a message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from arms.batch import Batch
from arms.message import Message
from meteor.errors import ProtocolError
from meteor.transport.frames import Value

Told = tuple[str, str, bytes, str, Mapping[str, str], int]
"""What a watcher is told: id, profile, data, sender, context and end of a message."""

Group = tuple[Sequence[Told], Sequence[object]]
"""Messages that go to the same watches (of one client) or targets (at one peer), and these."""


def told(message: Message) -> Told:
    """Return what watchers are told of a message."""
    header = message.header
    return (
        header.id,
        header.profile.text,
        message.data,
        header.sender,
        header.context,
        header.expires_ms,
    )


def told_of(batch: Batch) -> list[Told]:
    """Return what watchers are told of the messages of a batch."""
    texts = [site.text for site in batch.sites]
    sender, context = repeat(batch.sender), repeat(NOTHING)
    return list(zip(batch.ids, texts, batch.data, sender, context, batch.expires_ms, strict=False))


NOTHING: Mapping[str, str] = {}


def columns(groups: Sequence[Group]) -> list[Value]:
    """Return messages as the wire has them: a list for each field, the last one for whom."""
    items = [item for some, _ in groups for item in some]
    whom = [targets for some, targets in groups for _ in some]
    return [*zip(*items, strict=True), whom]


KINDS = (str, str, bytes, str, dict, int, list)
"""What each column holds."""


def rows(wire: Value) -> Iterator[tuple[Value, ...]]:
    """Read what `columns` wrote; `ProtocolError` says what does not fit."""
    if not (isinstance(wire, list) and len(wire) == len(KINDS)):
        raise ProtocolError("what came are not notifications")
    for column, kind in zip(wire, KINDS, strict=True):
        if not isinstance(column, list) or {*map(type, column)} - {kind}:
            raise ProtocolError("what came are not notifications")
    if len({*map(len, wire)}) > 1:
        raise ProtocolError("what came are columns of different lengths")
    return zip(*wire, strict=True)
