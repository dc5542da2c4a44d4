"""Notifications on the wire, by columns: a list a field, instead of a map a message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from arms.message import Message
from meteor.errors import ProtocolError
from meteor.transport.frames import Value

Told = tuple[str, str, bytes, str, Mapping[str, str], int]
"""What a watcher is told: id, profile, data, sender, context and end of a message."""

Entry = tuple[str, str, bytes, str, Mapping[str, str], int, Sequence[object]]
"""The same, and for which watches (of one client) or targets (at one peer)."""


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


def columns(entries: Sequence[Entry]) -> list[Value]:
    """Return entries as the wire has them: a list for each field."""
    return list(zip(*entries, strict=True))


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
