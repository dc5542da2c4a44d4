"""Messages as rows of the table `message`, both ways."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from arms.batch import Batch
from arms.inbox import INBOX
from arms.message import Action, Header, Kind, Message, Modifiers, Voters
from arms.profile import Profile
from arms.schema import LISTED, digest
from arms.sites import Site
from arms.writes import Tombstone
from squid import Region


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it lies in the store."""

    seq: int
    kind: Kind
    identifier: int
    """The lowest identifier of its region."""
    point: bool
    """Whether that identifier is the whole region."""
    message: Message
    stored_ms: int
    """When it came here."""


def write_row(now_ms: int, kind: Kind, message: Message, region: Region) -> tuple[object, ...]:
    """Return a message as a row, for `INSERT`."""
    header = message.header
    return (
        header.id,
        kind.value,
        message.action.value,
        header.profile.text,
        region.lowest,
        region.is_point,
        now_ms,
        header.expires_ms,
        header.sender,
        header.reply_to,
        header.credential,
        json.dumps(dict(header.context)) if header.context else NO_CONTEXT,
        PLAIN if message.modifiers == Modifiers() else _json(message.modifiers),
        message.data,
        header.voters.term,
        str(header.voters),
        digest(header.id, header.expires_ms, header.voters.term),
    )


COLUMNS = (
    "id, kind, action, profile, identifier, point, stored_ms, expires_ms, sender, reply_to, "
    "credential, context, modifiers, data, term, voters, digest"
)
INSERT = f"INSERT INTO message ({COLUMNS}) VALUES ({', '.join('?' * len(COLUMNS.split(',')))})"


def insert_batch(connection: sqlite3.Connection, now_ms: int, batch: Batch) -> int:
    """Insert the messages of a batch as rows; returns the seq of the last one.

    Many with each statement: one costs less in it than by itself, and around each one Python's lock
    is given away and has to be waited for.
    """
    term = batch.voters.term
    common = (now_ms, batch.sender, batch.reply_to, batch.credential, term, str(batch.voters))
    columns = zip(batch.ids, batch.sites, batch.data, batch.expires_ms, strict=True)
    left = len(batch)
    while left:
        rows = next(size for size in ROWS_PER_INSERT if size <= left)
        values: list[object] = [*common]
        for id_, site, data, expires_ms in islice(columns, rows):
            state = digest(id_, expires_ms, term)
            values += (id_, site.text, site.identifier, expires_ms, data, state)
        seq = connection.execute(INSERT_ROWS[rows], values).lastrowid
        left -= rows
    assert seq is not None
    return seq


ROWS_PER_INSERT = (64, 16, 4, 1)
"""So that there are few statements, which are kept prepared, and few of them for any number."""


def _insert_rows(rows: int) -> str:
    """Return the statement for so many plain data: first what they have in common."""

    def row(at: int) -> str:
        id_, text, identifier, end, data, state = (f"?{number}" for number in range(at, at + 6))
        return (
            f"({id_}, 'data', 'store', {text}, {identifier}, 1, ?1, {end}, ?2, ?3, "
            f"?4, '{NO_CONTEXT}', '{PLAIN}', {data}, ?5, ?6, {state})"
        )

    places = range(7, 7 + 6 * rows, 6)
    return f"INSERT INTO message ({COLUMNS}) VALUES {', '.join(map(row, places))}"


STORED = f"{COLUMNS}, seq"
PROFILE = 3  # its place in a row of these

WAITING = (
    f"SELECT count(*) FROM message WHERE {LISTED} AND kind = 'data' AND point = 1 "
    "AND identifier = ?"
)
"""Counts the notes in an inbox; also those that have expired and are not swept yet."""


def read_row(row: tuple[Any, ...]) -> Stored:
    """Return a row as the message that it is."""
    id_, kind, action, profile, identifier, point, stored_ms, expires_ms = row[:8]
    sender, reply_to, credential, context, modifiers, data, term, voters, _, seq = row[8:]
    header = Header(
        Profile.parse(profile),
        id_,
        expires_ms,
        sender,
        reply_to,
        credential,
        {} if context == NO_CONTEXT else json.loads(context),
        Voters.parse(term, voters),
    )
    wanted = Modifiers() if modifiers == PLAIN else Modifiers(*json.loads(modifiers))
    message = Message(header, Action(action), data, wanted)
    return Stored(seq, Kind(kind), identifier, bool(point), message, stored_ms)


def is_plain_row(row: tuple[Any, ...]) -> bool:
    """Say whether a row is plain data, as a batch has them; what lies in an inbox is not."""
    kind, _, profile, _, point, _, _, _, _, _, context, modifiers = row[1:13]
    return (
        kind == "data"
        and bool(point)
        and context == NO_CONTEXT
        and modifiers == PLAIN
        and INBOX not in profile
    )


def add_row(row: tuple[Any, ...], site: Site, batch: Batch | None) -> Batch:
    """Add a row of plain data to a batch, or to a new one if it does not go with the others."""
    id_, expires_ms, sender, reply_to, credential = row[0], *row[7:11]
    data, voters = row[13], Voters.parse(row[14], row[15])
    common = (sender, reply_to, credential, voters)
    if batch is None or common != (batch.sender, batch.reply_to, batch.credential, batch.voters):
        batch = Batch(sender, reply_to, credential, voters=voters)
    batch.ids.append(id_)
    batch.sites.append(site)
    batch.data.append(data)
    batch.expires_ms.append(expires_ms)
    return batch


STONE = "id, taker, identifier, point, expires_ms"


def read_stone(row: Sequence[Any]) -> Tombstone:
    """Return a row of these columns as the tombstone that it is."""
    id_, taker, identifier, point, expires_ms = row
    return Tombstone(id_, taker, identifier, bool(point), expires_ms)


def _json(modifiers: Modifiers) -> str:
    return json.dumps(modifiers.to_wire())


# What nearly all messages have, so that reading it takes no time.
NO_CONTEXT = "{}"
PLAIN = _json(Modifiers())

INSERT_ROWS = {rows: _insert_rows(rows) for rows in ROWS_PER_INSERT}
