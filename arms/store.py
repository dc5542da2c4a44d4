"""The profile store: one SQLite file, the durable truth of a rendezvous peer.

Reads run where they are called, on a connection of their own. Writes come as groups,
all applied in one transaction (`write`); whoever owns the store calls it from one place at a time,
so that many posts share one commit. It may be another thread than the readers'; they find what was
written after `committed`.

What meets a region is found through `candidates`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from arms.ballot_box import BallotBox
from arms.ballots import Voted
from arms.batch import Batch
from arms.box_index import BoxIndex, Read
from arms.candidates import Candidates, Spans
from arms.digests import Digests
from arms.errors import ArmsError, StoreError
from arms.limits import INBOX_NOTES_MAX
from arms.message import Header, Kind, Message, Modifiers, Voters, region_of
from arms.notes import overflow_mark, overflow_prefix
from arms.places import Places
from arms.rows import (
    INSERT,
    STONE,
    STORED,
    WAITING,
    Stored,
    insert_batch,
    read_row,
    read_stone,
    write_row,
)
from arms.schema import open_store
from arms.writes import (
    MARKED,
    Assign,
    Bury,
    Drop,
    Keep,
    Put,
    PutBatch,
    Remove,
    Sweep,
    Take,
    Tombstone,
    Vote,
    Write,
)
from squid import Space
from squid.errors import SquidError
from squid.limits import RING_BITS

WHOLE_RING: Spans = ((0, (1 << RING_BITS) - 1),)

AT = "seq = ?"

Mark = tuple[int, int]
"""How far a store has been read: the numbers of a message and of a tombstone."""


class Store:
    """The messages of one peer."""

    def __init__(self, path: Path | str, space: Space, sync: str = "full") -> None:
        self.path, self.space = path, space
        self.inbox_notes_max = INBOX_NOTES_MAX
        self._writer, self._reader = open_store(path, space, sync)
        self._index = BoxIndex(space, self._writer, self._read)
        self._index.load()
        self._ballots = BallotBox(self._writer, self._read)
        self.places = Places(self._index, self._read)
        self.digests = Digests(space, self.places, self._read)
        self.candidates = Candidates(space, self._index, self.places, self._read)
        self._newest = self._written = self._numbers()
        self._gathered: list[Stored] = []  # interests that are being written
        self._interests: list[Stored] = []  # those that are on disk, ready to be matched

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
        self._writer.close()

    # -- writing -----------------------------------------------------------------------------------

    def apply(self, now_ms: int, groups: Sequence[Sequence[Write]]) -> list[list[int]]:
        """Write, and let readers find it: for those who do both in one thread."""
        results = self.write(now_ms, groups)
        self.committed()
        return results

    def write(self, now_ms: int, groups: Sequence[Sequence[Write]]) -> list[list[int]]:
        """Carry out groups of writes in one transaction; when it returns, all are on disk.

        Fails as a whole: on an error nothing of it is in the file.
        """
        try:
            with self._writer:
                self._writer.execute("BEGIN IMMEDIATE")
                results = [[self._write(now_ms, write) for write in group] for group in groups]
                written = self._numbers()
            self._written = written
            self._interests += self._gathered
            self._index.commit()
            return results
        except sqlite3.Error as error:
            full = "full" in str(error)
            problem = f"the disk of {self.path} is full" if full else f"{self.path}: {error}"
            raise StoreError(f"{problem}; nothing of this was stored") from error
        except (ArmsError, SquidError) as error:
            raise StoreError(
                f"a message does not fit the space {self.space.name!r}: {error}; "
                "nothing of this was stored"
            ) from error
        finally:
            self._gathered = []
            self._index.roll_back()  # what was committed is no longer among it

    def committed(self) -> None:
        """Let readers find what was written; to be called where they are, after each `write`."""
        self.candidates.forget(self._index.publish())
        for stored in self._interests:
            self.candidates.keep(stored.seq, stored)
        self._interests, self._newest = [], self._written

    def tidy(self) -> bool:
        """Do one step of keeping the index in order, some 10 ms; says whether more may be due."""
        return self._index.tidy()

    def _write(self, now_ms: int, write: Write) -> int:
        match write:
            case Put(message):
                return self._put(now_ms, message)
            case PutBatch():
                return self._put_batch(now_ms, write)
            case Keep(note):
                return self._keep(now_ms, note)
            case Remove(ids):
                return sum(self._remove(now_ms, id_, "") for id_ in ids)
            case Take(id_, taker, credential):
                return self._take(now_ms, id_, taker, credential)
            case Vote():
                return self._ballots.vote(write)
            case Assign(ids, voters):
                return sum(self._assign(now_ms, id_, voters) for id_ in ids)
            case Bury(tombstones):
                return sum(self._bury(stone) for stone in tombstones)
            case Drop(seqs):
                return sum(self._erase(AT, seq) for seq in seqs)
            case Sweep(limit):
                return self._sweep(now_ms, limit)

    def _put(self, now_ms: int, message: Message) -> bool:
        header = message.header
        if self._is_buried(now_ms, header.id):
            return False
        row = self._row(header.id)
        if row is not None:
            known = read_row(row)
            if header.expires_ms <= now_ms:
                return False
            if known.message.header.expires_ms > now_ms:
                self._renew(now_ms, known, message)
                return False
            self._erase(AT, known.seq)  # expired, so for everyone it was gone
        if header.expires_ms > now_ms:  # else its TTL ended on the way: matched, but not kept
            self._insert(now_ms, message)
        return True

    def _put_batch(self, now_ms: int, write: PutBatch) -> int:
        batch = write.batch
        known = self._known(batch)
        if min(batch.expires_ms) <= now_ms:
            ends = zip(batch.ids, batch.expires_ms, strict=True)
            known |= {id_ for id_, end in ends if end <= now_ms}
        fresh = batch
        if known:
            fresh = batch.part([row for row, id_ in enumerate(batch.ids) if id_ not in known])
        if len(fresh):
            last = insert_batch(self._writer, now_ms, fresh)
            write.seqs = range(last - len(fresh) + 1, last + 1)
            self._index.add_points(write.seqs, [site.cells for site in fresh.sites])
        for row, id_ in enumerate(batch.ids):
            if id_ in known and not self._put(now_ms, batch.message(row)):
                write.repeated.add(row)
        return len(batch) - len(write.repeated)

    def _known(self, batch: Batch) -> set[str]:
        """Return the ids of a batch that this store has a message or a tombstone of.

        A client numbers its messages, so those of a batch lie side by side: one look tells that
        there is none, as there nearly always is.
        """
        ids, first, last = batch.ids, min(batch.ids), max(batch.ids)
        if len(set(ids)) < len(ids):
            return set(ids)
        for table in ("message", "tombstone"):
            near = f"SELECT 1 FROM {table} WHERE id BETWEEN ? AND ? LIMIT 1"
            if self._writer.execute(near, (first, last)).fetchone() is not None:
                return set(ids) - set(self._unknown(self._writer.execute, ids))
        return set()

    def _keep(self, now_ms: int, note: Message) -> int:
        if self._row(note.id) is not None or self._is_buried(now_ms, note.id):
            return self._put(now_ms, note)  # nothing new: there is room for it, or it is done with
        at, prefix = region_of(self.space, note).lowest, overflow_prefix(note)
        ((waiting,),) = self._writer.execute(WAITING, (at,)).fetchall()
        if waiting < self.inbox_notes_max:
            return self._put(now_ms, note)
        marked = "SELECT 1 FROM message WHERE id BETWEEN ? AND ? AND expires_ms > ? LIMIT 1"
        if self._writer.execute(marked, (prefix, prefix + "~", now_ms)).fetchone() is not None:
            return False
        return MARKED * self._put(now_ms, overflow_mark(note))

    def _renew(self, now_ms: int, known: Stored, message: Message) -> None:
        old, new = known.message.header, message.header
        if known.kind is not message.stored_as or old.credential not in ("", new.credential):
            return  # an id that somebody else has: theirs stays as it is
        # Sent again, or late: the later wins, the same everywhere, so that copies agree in the end.
        later = max(known.message, message, key=lambda m: (m.header.expires_ms, m.header.reply_to))
        expires_ms, reply_to = later.header.expires_ms, later.header.reply_to
        voters = max(old.voters, new.voters)
        header = replace(old, expires_ms=expires_ms, reply_to=reply_to, voters=voters)
        if header != old:
            self._replace(now_ms, known, header, later.modifiers)

    def _replace(
        self, now_ms: int, known: Stored, header: Header, modifiers: Modifiers | None = None
    ) -> None:
        # Anew, so that its seq is new too and whoever copies what came after another sees it.
        self._erase(AT, known.seq)
        wanted = modifiers or known.message.modifiers
        seq = self._insert(now_ms, replace(known.message, header=header, modifiers=wanted))
        if seq is not None:
            self._index.move(known.seq, seq)

    def _assign(self, now_ms: int, id_: str, voters: Voters) -> bool:
        row = self._row(id_)
        known = None if row is None else read_row(row)
        if known is None or known.message.header.voters >= voters:
            return False
        self._replace(now_ms, known, replace(known.message.header, voters=voters))
        return True

    def _insert(self, now_ms: int, message: Message) -> int | None:
        kind, region = message.stored_as, region_of(self.space, message)
        if kind is None:
            raise StoreError(f"a {message.action} message is not kept")
        if region.lowest is None:
            return None  # a contradiction such as a=1, a=2: it can never match, so nothing is kept
        seq = self._writer.execute(INSERT, write_row(now_ms, kind, message, region)).lastrowid
        assert seq is not None
        self._index.add(kind, seq, message.profile, region)
        if kind is Kind.INTEREST:
            at, point = region.lowest, region.is_point
            self._gathered.append(Stored(seq, kind, at, point, message, now_ms))
        return seq

    def _row(self, id_: str) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._writer.execute(
            f"SELECT {STORED} FROM message WHERE id = ?", (id_,)
        ).fetchone()
        return row

    def _is_buried(self, now_ms: int, id_: str) -> bool:
        row = self._writer.execute(
            "SELECT expires_ms FROM tombstone WHERE id = ?", (id_,)
        ).fetchone()
        if row is not None and row[0] <= now_ms:
            self._writer.execute("DELETE FROM tombstone WHERE id = ?", (id_,))
        return row is not None and row[0] > now_ms

    def _remove(self, now_ms: int, id_: str, taker: str) -> bool:
        row = self._writer.execute(
            "SELECT identifier, point, expires_ms FROM message WHERE id = ?", (id_,)
        ).fetchone()
        if row is None or row[2] <= now_ms:
            return False
        self._bury(Tombstone(id_, taker, *row))
        return True

    def _take(self, now_ms: int, id_: str, taker: str, credential: str) -> bool:
        buried = self._writer.execute("SELECT taker FROM tombstone WHERE id = ?", (id_,)).fetchone()
        if buried is not None:
            return bool(buried[0] == taker != "")
        row = self._writer.execute(
            "SELECT 1 FROM message WHERE id = ? AND kind = 'data' AND credential IN ('', ?)",
            (id_, credential),
        ).fetchone()
        return row is not None and self._remove(now_ms, id_, taker)

    def _bury(self, stone: Tombstone) -> bool:
        row = self._writer.execute(
            "SELECT seq, expires_ms FROM message WHERE id = ?", (stone.id,)
        ).fetchone()
        expires_ms = stone.expires_ms
        if row is not None:
            self._erase(AT, row[0])
            expires_ms = max(expires_ms, row[1])  # it may have been renewed here alone
        self._writer.execute(
            "INSERT INTO tombstone (id, taker, identifier, point, expires_ms) "
            "VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET expires_ms = max(expires_ms, excluded.expires_ms)",
            (stone.id, stone.taker, stone.identifier, stone.point, expires_ms),
        )
        return row is not None

    def _sweep(self, now_ms: int, limit: int) -> int:
        messages = self._erase(
            "seq IN (SELECT seq FROM message WHERE expires_ms <= ? LIMIT ?)", now_ms, limit
        )
        stones = self._writer.execute(
            "DELETE FROM tombstone WHERE seq IN "
            "(SELECT seq FROM tombstone WHERE expires_ms <= ? LIMIT ?)",
            (now_ms, limit),
        )
        return messages + stones.rowcount + self._ballots.sweep(now_ms, limit)

    def _erase(self, where: str, *values: int) -> int:
        rows = self._writer.execute(
            f"DELETE FROM message WHERE {where} RETURNING kind, seq, point, identifier", values
        ).fetchall()
        for kind, seq, point, identifier in rows:
            self._index.discard(Kind(kind), seq, point, identifier)
        return len(rows)

    # -- reading -----------------------------------------------------------------------------------

    def find(self, now_ms: int, id_: str) -> Stored | None:
        """Return one message by its id."""
        sql = f"SELECT {STORED} FROM message WHERE id = ? AND expires_ms > ?"
        return next(map(read_row, self._read(sql, (id_, now_ms))), None)

    def newest(self) -> Mark:
        """Return the numbers of the latest message and of the latest tombstone."""
        return self._newest

    def _numbers(self) -> Mark:
        rows = self._writer.execute("SELECT name, seq FROM sqlite_sequence")
        numbers: dict[str, int] = dict(rows.fetchall())
        return numbers.get("message", 0), numbers.get("tombstone", 0)

    def unknown(self, ids: Sequence[str]) -> list[str]:
        """Return those ids that this store has neither a message nor a tombstone of."""
        return self._unknown(self._read, ids)

    def _unknown(self, read: Read, ids: Sequence[str]) -> list[str]:
        marks = ", ".join("?" * len(ids))
        known: set[str] = set()
        for table in ("message", "tombstone"):
            rows = read(f"SELECT id FROM {table} WHERE id IN ({marks})", tuple(ids))
            known.update(id_ for (id_,) in rows)
        return [id_ for id_ in ids if id_ not in known]

    def counts(self, now_ms: int, spans: Spans | None = None) -> dict[Kind, int]:
        """Count the messages of each kind; with spans, those whose lowest identifier is there."""
        where, bounds = _within(WHOLE_RING if spans is None else spans)
        rows = self._read(
            f"SELECT kind, count(*) FROM message WHERE expires_ms > ? AND ({where}) GROUP BY kind",
            (now_ms, *bounds),
        )
        return dict.fromkeys(Kind, 0) | {Kind(kind): count for kind, count in rows}

    def quantile(self, now_ms: int, spans: Spans, share: float) -> int | None:
        """Return the identifier below which this share of the data in the spans lies, if any."""
        where, bounds = _within(spans)
        sql = f"FROM message WHERE kind = 'data' AND expires_ms > ? AND ({where})"
        ((count,),) = self._read(f"SELECT count(*) {sql}", (now_ms, *bounds))
        if not count:
            return None
        # An arc that wraps comes as (low part, high part); clockwise the high part is first.
        wraps = len(spans) == 2
        order = f"identifier < {int(spans[1][0])}, identifier" if wraps else "identifier"
        row = next(
            self._read(
                f"SELECT identifier {sql} ORDER BY {order} LIMIT 1 OFFSET ?",
                (now_ms, *bounds, int((count - 1) * share)),
            ),
            None,
        )
        return None if row is None else int(row[0])

    def rows_after(self, now_ms: int, seq: int, limit: int) -> Iterator[tuple[Any, ...]]:
        """Give the rows of messages that were stored after another, oldest first."""
        return self._read(
            f"SELECT {STORED} FROM message WHERE seq > ? AND expires_ms > ? ORDER BY seq LIMIT ?",
            (seq, now_ms, limit),
        )

    def tombstones(self, now_ms: int, seq: int, limit: int) -> list[tuple[int, Tombstone]]:
        """Return the tombstones that came after another, oldest first, with their seq."""
        rows = self._read(
            f"SELECT seq, {STONE} FROM tombstone "
            "WHERE seq > ? AND expires_ms > ? ORDER BY seq LIMIT ?",
            (seq, now_ms, limit),
        )
        return [(seq, read_stone(stone)) for seq, *stone in rows]

    def voted(self, id_: str) -> Voted:
        """Return how this store voted on who takes an item, and what it knows of the outcome."""
        return self._ballots.voted(id_)

    def voted_otherwise(
        self, voters: str, spans: Spans, after: int, upto: int, limit: int
    ) -> list[Stored]:
        """Return data in the spans that others vote on, by number, after one and up to another."""
        where, bounds = _within(spans)
        rows = self._read(
            f"SELECT {STORED} FROM message WHERE seq > ? AND seq <= ? AND kind = 'data' "
            f"AND voters != ? AND ({where}) ORDER BY seq LIMIT ?",
            (after, upto, voters, *bounds, limit),
        )
        return list(map(read_row, rows))

    def _read(self, sql: str, values: Sequence[object]) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._reader.execute(sql, values)
        except sqlite3.Error as error:
            raise StoreError(f"can't read {self.path}: {error}") from error


def _within(spans: Spans) -> tuple[str, list[int]]:
    """Return the condition that an identifier lies in the spans, and its values."""
    where = " OR ".join("identifier BETWEEN ? AND ?" for _ in spans) or "0"
    return where, [end for span in spans for end in span]
