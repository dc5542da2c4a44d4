"""The tables of a profile store, their version, and opening a file safely.

A file that is not ours, damaged, of a newer version, or made for another space is refused before
anything is written to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path

from arms import box_index
from arms.errors import StoreError
from arms.inbox import INBOX
from squid import Space

APPLICATION_ID = 0x4D455445  # "METE", so that `file` and we can tell our databases from others

CACHE_KILOBYTES = 65_536
"""Pages that a store keeps in memory while it is written to: the indexes of some 10^6 messages."""

LOG_PAGES = 16_384
"""Pages (of 4 kB) in the log before it is moved into the file: with fewer, the same pages are moved
again and again, and writes take a third longer. After a crash the log is read, in some 0.1 s."""

Migration = Callable[[sqlite3.Connection, Space], None]


def open_store(
    path: Path | str, space: Space, sync: str = "full"
) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Open (or create) a store; returns its writing and its reading connection.

    With `sync` full a commit survives a power cut, with normal only the death of the process.
    """
    inspect(path, space)
    with ExitStack() as undo:
        try:
            writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            undo.callback(writer.close)
            writer.execute("PRAGMA journal_mode = WAL")
            writer.execute(f"PRAGMA synchronous = {'FULL' if sync == 'full' else 'NORMAL'}")
            writer.execute(f"PRAGMA cache_size = -{CACHE_KILOBYTES}")
            writer.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
            migrate(writer, space)
            reader = _read_only(path)
        except sqlite3.Error as error:
            raise StoreError(f"can't open the profile store {path}: {error}") from error
        undo.pop_all()
    return writer, reader


def inspect(path: Path | str, space: Space) -> None:
    """Raise `StoreError` for a file that must not be used; leaves the file as it is."""
    file = Path(path)
    if not file.exists() or file.stat().st_size == 0:
        return
    try:
        # Without a log nobody is writing, and we need not leave an empty one behind.
        log = file.with_name(f"{file.name}-wal")
        connection = _read_only(path, "" if log.exists() else "&immutable=1")
        try:
            _inspect(connection, path, space)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StoreError(
            f"the profile store {path} is damaged or no SQLite file ({error}); it was left as it "
            "is. Restore it from a copy, or move it away to start empty"
        ) from error


def _read_only(path: Path | str, option: str = "") -> sqlite3.Connection:
    # `as_uri` because a file's name may have any character, such as ? or #.
    uri = f"{Path(path).absolute().as_uri()}?mode=ro{option}"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def _inspect(connection: sqlite3.Connection, path: Path | str, space: Space) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreError(f"{path} is a database of another program; it was left as it is")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"the profile store {path} has schema version {version}, newer than this Meteor's "
            f"{len(MIGRATIONS)}; it was left as it is. Use the Meteor that wrote it, or a newer one"
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(
            f"the profile store {path} is damaged ({verdict}); it was left as it is. "
            "Restore it from a copy, or move it away to start empty"
        )
    if version:
        row = connection.execute("SELECT name, fingerprint FROM space").fetchone()
        if row is None:
            raise sqlite3.DatabaseError("it does not say for which space it was made")
        name, fingerprint = row
        if fingerprint != space.fingerprint():
            raise StoreError(
                f"the profile store {path} was made for the space {name!r} ({fingerprint}), not "
                f"for {space.name!r} ({space.fingerprint()}); it was left as it is"
            )


def migrate(connection: sqlite3.Connection, space: Space) -> None:
    """Bring a store to the newest version, each step in its own transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, step in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            step(connection, space)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
        except BaseException:
            connection.rollback()
            raise
        connection.execute("COMMIT")


def _first_tables(connection: sqlite3.Connection, space: Space) -> None:
    # AUTOINCREMENT: a seq is never used twice, so "all that came after seq n" misses nothing.
    connection.execute(
        """
        CREATE TABLE message (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL,            -- data, interest or advertisement
            action TEXT NOT NULL,          -- what it does when it is matched
            profile TEXT NOT NULL,
            identifier INTEGER NOT NULL,   -- the lowest identifier of its region on the curve
            point INTEGER NOT NULL,        -- 1 when the region is that identifier alone
            stored_ms INTEGER NOT NULL,    -- milliseconds since the epoch
            expires_ms INTEGER NOT NULL,
            sender TEXT NOT NULL,
            reply_to TEXT NOT NULL,        -- the peer that can reach the sender
            credential TEXT NOT NULL,
            context TEXT NOT NULL,         -- JSON
            modifiers TEXT NOT NULL,       -- JSON
            data BLOB NOT NULL
        )
        """
    )
    connection.execute(
        """
        CREATE TABLE tombstone (           -- what was deleted or taken, until it would have expired
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            taker TEXT NOT NULL,           -- who consumed it; empty when it was deleted
            identifier INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL
        )
        """
    )
    import sqlite_utils  # with all it brings along it takes 0.1 s, and only a new store needs it

    tables = sqlite_utils.Database(connection)
    tables.table("message").create_index(["kind", "point", "identifier", "id"])
    tables.table("message").create_index(["expires_ms"])
    tables.table("tombstone").create_index(["expires_ms"])
    connection.execute(
        "CREATE TABLE space (name TEXT, version INTEGER, fingerprint TEXT, definition TEXT)"
    )
    connection.execute(
        "INSERT INTO space VALUES (?, ?, ?, ?)",
        (space.name, space.version, space.fingerprint(), space.to_toml()),
    )


def _votes_and_digests(connection: sqlite3.Connection, space: Space) -> None:
    for change in (
        "ALTER TABLE message ADD COLUMN term INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE message ADD COLUMN voters TEXT NOT NULL DEFAULT ''",  # places, with commas
        # Of the id, the end of the TTL and the term: equal sums tell equal stores.
        "ALTER TABLE message ADD COLUMN digest INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE tombstone ADD COLUMN point INTEGER NOT NULL DEFAULT 1",
        "CREATE INDEX idx_tombstone_identifier_id ON tombstone (identifier, id)",
    ):
        connection.execute(change)
    rows = connection.execute("SELECT seq, id, expires_ms FROM message").fetchall()
    connection.executemany(
        "UPDATE message SET digest = ? WHERE seq = ?",
        [(digest(id_, expires_ms, 0), seq) for seq, id_, expires_ms in rows],
    )
    connection.execute(
        """
        CREATE TABLE ballot (              -- this peer's votes on who takes an item
            id TEXT PRIMARY KEY,
            term INTEGER NOT NULL,
            voters TEXT NOT NULL,
            round INTEGER NOT NULL,        -- of the latest ballot that was promised
            leader INTEGER NOT NULL,
            accepted_round INTEGER NOT NULL,
            accepted_leader INTEGER NOT NULL,
            value TEXT NOT NULL,           -- what was accepted in that one
            expires_ms INTEGER NOT NULL
        ) WITHOUT ROWID
        """
    )
    connection.execute("CREATE INDEX idx_ballot_expires_ms ON ballot (expires_ms)")


def _plain_boxes(connection: sqlite3.Connection, space: Space) -> None:
    connection.execute("DROP INDEX IF EXISTS idx_message_voters_identifier")
    box_index.create_tables(connection, space)


def _finer_boxes(connection: sqlite3.Connection, space: Space) -> None:
    box_index.create_tables(connection, space)


def _points_unlisted(connection: sqlite3.Connection, space: Space) -> None:
    connection.execute("DROP INDEX idx_message_kind_point_identifier_id")
    connection.execute(
        f"CREATE INDEX idx_message_listed ON message (kind, point, identifier, id) WHERE {LISTED}"
    )


LISTED = f"(kind <> 'data' OR point = 0 OR instr(profile, '{INBOX}'))"
"""What the file has an index over identifiers of: a condition, to be used word for word.

All other data are at points. There are far more of them, and the index in memory has their order.
"""


def digest(id_: str, expires_ms: int, term: int) -> int:
    """Return 63 bits that stand for one state of a message."""
    content = f"{id_} {expires_ms} {term}".encode()
    return int.from_bytes(blake2b(content, digest_size=8).digest()) >> 1


MIGRATIONS: tuple[Migration, ...] = (
    _first_tables,
    _votes_and_digests,
    _plain_boxes,
    _finer_boxes,
    _points_unlisted,
)
"""One step for each schema version; the version of a file is the number of steps it has seen."""
