"""The profile store: one SQLite file, the durable truth of a rendezvous peer.

Reads are short and run where they are called, on a connection of their own. Writes come as groups,
all applied in one transaction (`apply`); whoever owns the store calls it from one place at a time,
so that many posts share one commit.

Data that are points lie in the order of their identifiers: a retrieval walks that order and lets
`Region.next` skip what the region does not touch. Everything that is a region (interests,
advertisements, data with a range on a dimension) is found through `arms.box_index`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arms.box_index import BoxIndex
from arms.errors import StoreError
from arms.message import Action, Header, Kind, Message, Modifiers, region_of
from arms.profile import Profile
from arms.schema import open_store
from squid import Region, Space

Spans = Sequence[tuple[int, int]]

SCAN_ROWS = 256
"""Rows fetched at a time while a retrieval walks the identifiers."""


# -- what is written -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Put:
    """Keep a message; the result says whether it is new. An interest that is there is renewed."""

    message: Message


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete messages by id, leaving tombstones; the result counts those that were there."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Take:
    """Delete one message for one taker; the result says whether this taker has it.

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
    """Remove what has expired, at most `limit` messages and as many tombstones."""

    limit: int


Write = Put | Remove | Take | Bury | Drop | Sweep


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The trace of a deleted message, kept until the message would have expired."""

    id: str
    taker: str
    identifier: int
    expires_ms: int


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


class Store:
    """The messages of one peer."""

    def __init__(self, path: Path | str, space: Space, sync: str = "full") -> None:
        self.path, self.space = path, space
        self._writer, self._reader = open_store(path, space, sync)
        self._writer_index, self._reader_index = (
            BoxIndex(connection, space) for connection in (self._writer, self._reader)
        )

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
        self._writer.close()

    # -- writing -----------------------------------------------------------------------------------

    def apply(self, now_ms: int, groups: Sequence[Sequence[Write]]) -> list[list[int]]:
        """Carry out groups of writes in one transaction; when it returns, all are on disk.

        Fails as a whole: on an error nothing of it is in the file.
        """
        try:
            with self._writer:
                self._writer.execute("BEGIN IMMEDIATE")
                return [[self._write(now_ms, write) for write in group] for group in groups]
        except sqlite3.Error as error:
            raise StoreError(_say(self.path, error)) from error

    def _write(self, now_ms: int, write: Write) -> int:
        match write:
            case Put(message):
                return self._put(now_ms, message)
            case Remove(ids):
                return sum(self._remove(now_ms, id_, "") for id_ in ids)
            case Take(id_, taker, credential):
                return self._take(now_ms, id_, taker, credential)
            case Bury(tombstones):
                return sum(self._bury(stone) for stone in tombstones)
            case Drop(seqs):
                for seq in seqs:
                    self._erase(seq)
                return len(seqs)
            case Sweep(limit):
                return self._sweep(now_ms, limit)

    def _put(self, now_ms: int, message: Message) -> int:
        kind, header = message.stored_as, message.header
        if kind is None:
            raise StoreError(f"a {message.action} message is not kept")
        if header.expires_ms <= now_ms or self._is_buried(header.id):
            return False
        renewed = self._writer.execute(
            "UPDATE message SET expires_ms = max(expires_ms, ?), reply_to = ? WHERE id = ?",
            (header.expires_ms, header.reply_to, header.id),
        )
        if renewed.rowcount:
            return False
        region = region_of(self.space, message)
        lowest = region.lowest
        if lowest is None:
            return True  # a contradiction such as a=1, a=2: it can never match, so nothing is kept
        seq = self._writer.execute(
            f"INSERT INTO message ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})",
            (
                header.id,
                kind.value,
                message.action.value,
                str(header.profile),
                lowest,
                region.is_point,
                now_ms,
                header.expires_ms,
                header.sender,
                header.reply_to,
                header.credential,
                json.dumps(dict(header.context)) if header.context else "{}",
                json.dumps(message.modifiers.to_wire()),
                message.data,
            ),
        ).lastrowid
        assert seq is not None
        if kind is not Kind.DATA or not region.is_point:
            self._writer_index.add(kind, seq, region)
        return True

    def _is_buried(self, id_: str) -> bool:
        row = self._writer.execute("SELECT 1 FROM tombstone WHERE id = ?", (id_,)).fetchone()
        return row is not None

    def _remove(self, now_ms: int, id_: str, taker: str) -> bool:
        row = self._writer.execute(
            "SELECT identifier, expires_ms FROM message WHERE id = ?", (id_,)
        ).fetchone()
        if row is None:
            return False
        identifier, expires_ms = row
        self._bury(Tombstone(id_, taker, identifier, expires_ms))
        return bool(expires_ms > now_ms)

    def _take(self, now_ms: int, id_: str, taker: str, credential: str) -> bool:
        buried = self._writer.execute("SELECT taker FROM tombstone WHERE id = ?", (id_,)).fetchone()
        if buried is not None:
            return bool(buried[0] == taker)
        row = self._writer.execute("SELECT credential FROM message WHERE id = ?", (id_,)).fetchone()
        return row is not None and row[0] in ("", credential) and self._remove(now_ms, id_, taker)

    def _bury(self, stone: Tombstone) -> bool:
        row = self._writer.execute("SELECT seq FROM message WHERE id = ?", (stone.id,)).fetchone()
        if row is not None:
            self._erase(row[0])
        self._writer.execute(
            "INSERT OR IGNORE INTO tombstone (id, taker, identifier, expires_ms) "
            "VALUES (?, ?, ?, ?)",
            (stone.id, stone.taker, stone.identifier, stone.expires_ms),
        )
        return row is not None

    def _sweep(self, now_ms: int, limit: int) -> int:
        rows = self._writer.execute(
            "SELECT seq FROM message WHERE expires_ms <= ? LIMIT ?", (now_ms, limit)
        ).fetchall()
        for (seq,) in rows:
            self._erase(seq)
        self._writer.execute(
            "DELETE FROM tombstone WHERE seq IN "
            "(SELECT seq FROM tombstone WHERE expires_ms <= ? LIMIT ?)",
            (now_ms, limit),
        )
        return len(rows)

    def _erase(self, seq: int) -> None:
        row = self._writer.execute("SELECT kind FROM message WHERE seq = ?", (seq,)).fetchone()
        if row is None:
            return
        self._writer.execute("DELETE FROM message WHERE seq = ?", (seq,))
        self._writer_index.discard(Kind(row[0]), seq)

    # -- reading -----------------------------------------------------------------------------------

    def points(
        self, now_ms: int, region: Region, spans: Spans, resume: Mapping[int, str]
    ) -> Iterator[Stored]:
        """Walk the data points of a region within spans, in the order (identifier, id).

        `resume` maps an identifier to the last message id that was already seen there.
        """
        for low, high in spans:
            at, after = region.next(low), resume.get(low, "")
            while at is not None and at <= high:
                at, after, rows = self._scan(now_ms, region, at, after or resume.get(at, ""), high)
                yield from (_stored(row) for row in rows)

    def _scan(
        self, now_ms: int, region: Region, at: int, after: str, high: int
    ) -> tuple[int | None, str, list[tuple[Any, ...]]]:
        """Fetch rows from (at, after) on, up to the first that the region lacks."""
        rows = self._reader.execute(
            f"SELECT {STORED} FROM message WHERE kind = 'data' AND point = 1 "
            "AND (identifier, id) > (?, ?) AND identifier <= ? AND expires_ms > ? "
            "ORDER BY identifier, id LIMIT ?",
            (at, after, high, now_ms, SCAN_ROWS),
        ).fetchall()
        inside = at
        for i, row in enumerate(rows):
            identifier = row[2]
            if identifier != inside and identifier not in region:
                return region.next(identifier), "", rows[:i]
            inside = identifier
        if len(rows) < SCAN_ROWS:
            return None, "", rows
        return inside, str(rows[-1][4]), rows

    def candidates(self, now_ms: int, kind: Kind, region: Region) -> Iterator[Stored]:
        """Give the messages of a kind whose boxes meet the region's: a superset of the matches."""
        seqs = self._reader_index.meeting(kind, region)
        for seq in seqs:
            row = self._reader.execute(
                f"SELECT {STORED} FROM message WHERE seq = ? AND expires_ms > ?", (seq, now_ms)
            ).fetchone()
            if row is not None:
                yield _stored(row)

    def find(self, now_ms: int, id_: str) -> Stored | None:
        """Return one message by its id."""
        row = self._reader.execute(
            f"SELECT {STORED} FROM message WHERE id = ? AND expires_ms > ?", (id_, now_ms)
        ).fetchone()
        return None if row is None else _stored(row)

    def counts(self, now_ms: int) -> dict[Kind, int]:
        """Count the messages of each kind."""
        rows = self._reader.execute(
            "SELECT kind, count(*) FROM message WHERE expires_ms > ? GROUP BY kind", (now_ms,)
        ).fetchall()
        return dict.fromkeys(Kind, 0) | {Kind(kind): count for kind, count in rows}

    def median_identifier(self, now_ms: int, spans: Spans) -> int | None:
        """Return the middle of the data identifiers in the spans (in their order), if any."""
        where = " OR ".join("identifier BETWEEN ? AND ?" for _ in spans) or "0"
        bounds = [end for span in spans for end in span]
        sql = f"FROM message WHERE kind = 'data' AND expires_ms > ? AND ({where})"
        (count,) = self._reader.execute(f"SELECT count(*) {sql}", (now_ms, *bounds)).fetchone()
        if not count:
            return None
        # An arc that wraps comes as (low part, high part); clockwise the high part is first.
        wraps = len(spans) == 2
        order = f"identifier < {int(spans[1][0])}, identifier" if wraps else "identifier"
        row = self._reader.execute(
            f"SELECT identifier {sql} ORDER BY {order} LIMIT 1 OFFSET ?",
            (now_ms, *bounds, (count - 1) // 2),
        ).fetchone()
        return int(row[0])

    def after(self, now_ms: int, seq: int, limit: int) -> list[Stored]:
        """Return the messages that were stored after another, oldest first."""
        rows = self._reader.execute(
            f"SELECT {STORED} FROM message WHERE seq > ? AND expires_ms > ? ORDER BY seq LIMIT ?",
            (seq, now_ms, limit),
        ).fetchall()
        return [_stored(row) for row in rows]

    def tombstones(self, now_ms: int, seq: int, limit: int) -> list[tuple[int, Tombstone]]:
        """Return the tombstones that came after another, oldest first, with their seq."""
        rows = self._reader.execute(
            "SELECT seq, id, taker, identifier, expires_ms FROM tombstone "
            "WHERE seq > ? AND expires_ms > ? ORDER BY seq LIMIT ?",
            (seq, now_ms, limit),
        ).fetchall()
        return [(row[0], Tombstone(*row[1:])) for row in rows]


COLUMNS = (
    "id",
    "kind",
    "action",
    "profile",
    "identifier",
    "point",
    "stored_ms",
    "expires_ms",
    "sender",
    "reply_to",
    "credential",
    "context",
    "modifiers",
    "data",
)

STORED = (
    "seq, kind, identifier, point, id, action, profile, expires_ms, sender, reply_to, "
    "credential, context, modifiers, data"
)


def _stored(row: tuple[Any, ...]) -> Stored:
    seq, kind, identifier, point, id_, action, profile, expires_ms = row[:8]
    sender, reply_to, credential, context, modifiers, data = row[8:]
    header = Header(
        Profile.parse(profile),
        id_,
        expires_ms,
        sender,
        reply_to,
        credential,
        json.loads(context) if context != "{}" else {},
    )
    wanted = Modifiers(*json.loads(modifiers)) if modifiers != "[null, null, null, null]" else PLAIN
    message = Message(header, Action(action), data, wanted)
    return Stored(seq, Kind(kind), identifier, bool(point), message)


PLAIN = Modifiers()


def _say(path: Path | str, error: sqlite3.Error) -> str:
    if "full" in str(error):
        return f"the disk of {path} is full; nothing of this was stored"
    return f"{path}: {error}; nothing of this was stored"
