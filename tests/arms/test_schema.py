"""Opening a store: what is refused stays untouched, and what is ours can be read by anyone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlite_utils
from rendezvous_point import LAB, post

from arms import schema
from arms.digests import Digest, Names
from arms.errors import StoreError
from arms.message import Kind, Voters, region_of
from arms.rows import INSERT, write_row
from arms.store import WHOLE_RING, Store
from arms.writes import Put, Remove
from squid import Anything, Space
from tests.arms.rendezvous_point import stored_after

OTHER = Space.from_toml(LAB.to_toml().replace("version = 1", "version = 2"))


def make(path: Path, messages: int = 5) -> bytes:
    """Write a store and return the file's bytes."""
    store = Store(path, LAB)
    puts = [Put(post("store", f"type=a, degree={i}", f"d{i}")) for i in range(messages)]
    store.apply(0, [puts])
    store.close()
    return path.read_bytes()


def refused(path: Path, words: str, space: Space = LAB) -> None:
    """See that a file is refused in words and that its folder is as it was."""
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(StoreError, match=words) as caught:
        Store(path, space)
    assert str(path) in str(caught.value)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


@pytest.mark.parametrize("name", ["store.db", "what?is #100%.db", "Grüße.db"])
def test_a_store_is_made_and_opened_again_whatever_its_name(tmp_path: Path, name: str) -> None:
    make(tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    store = Store(tmp_path / name, LAB)
    assert store.counts(0)[Kind.DATA] == 5
    store.close()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    make(tmp_path / "store.db")


def test_what_the_process_left_behind_when_it_was_killed_is_there(tmp_path: Path) -> None:
    running = Store(tmp_path / "store.db", LAB)
    running.apply(0, [[Put(post("store", "type=a", "d1"))]])
    killed = tmp_path / "killed"
    killed.mkdir()
    for file in tmp_path.glob("store.db*"):
        (killed / file.name).write_bytes(file.read_bytes())
    running.close()
    store = Store(killed / "store.db", LAB)
    assert store.find(0, "d1") is not None
    store.close()


@pytest.mark.parametrize("sync", ["full", "normal"])
def test_how_sure_a_commit_is(tmp_path: Path, sync: str) -> None:
    writer, reader = schema.open_store(tmp_path / "store.db", LAB, sync)
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer.execute("PRAGMA synchronous").fetchone() == ({"full": 2, "normal": 1}[sync],)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM message")
    reader.close()
    writer.close()


# What is refused


def test_a_text_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_text("Dear diary, " * 500)
    refused(path, "is damaged or no SQLite file .*; it was left as it is")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    whole = make(path, messages=500)
    page = 4096
    for damage in (
        whole[:100] + bytes(page),  # the beginning and no more
        whole[: len(whole) // 2],
        whole[: 3 * page] + b"\xa5" * page + whole[4 * page :],
        bytes(100) + whole[100:],
    ):
        path.write_bytes(damage)
        refused(path, "damaged")


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    sqlite_utils.Database(path).table("recipe").insert({"name": "soup"}).db.close()
    refused(path, "is a database of another program; it was left as it is")
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("PRAGMA application_id = 7")
    other.close()
    refused(path, "is a database of another program")


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    make(path)
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    newer.close()
    ours = len(schema.MIGRATIONS)
    newer_than = f"has schema version {ours + 1}, newer than this Meteor's {ours}"
    refused(path, f"{newer_than}; it was left as it is")


def test_another_spaces_store_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "store.db")
    refused(tmp_path / "store.db", r"was made for the space 'lab' \(.*\), not for 'lab'", OTHER)


@pytest.mark.parametrize("sql", ["DELETE FROM space", "DROP TABLE space"])
def test_a_store_that_does_not_say_for_which_space_is_refused(tmp_path: Path, sql: str) -> None:
    make(tmp_path / "store.db")
    damaging = sqlite3.connect(tmp_path / "store.db")
    damaging.execute(sql)
    damaging.commit()
    damaging.close()
    refused(tmp_path / "store.db", "is damaged")


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no SQLite file"):
        Store(tmp_path, LAB)
    with pytest.raises(StoreError, match=r"can't open the profile store .*unable to open"):
        Store(tmp_path / "missing" / "store.db", LAB)


# Migration


def add_column(connection: sqlite3.Connection, space: Space) -> None:
    connection.execute("ALTER TABLE message ADD COLUMN heard INTEGER NOT NULL DEFAULT 0")


def fill_column(connection: sqlite3.Connection, space: Space) -> None:
    connection.execute("UPDATE message SET heard = length(?)", (space.name,))


def r_trees(writer: sqlite3.Connection) -> None:
    """Add the boxes as versions 1 and 2 had them."""
    for kind in Kind:
        writer.execute(
            f"CREATE VIRTUAL TABLE {kind}_box USING rtree_i32(box, low_0, high_0, low_1, high_1)"
        )
        writer.execute(f"INSERT INTO {kind}_box VALUES (64, 1, 2, 3, 4)")


def ring_cells(writer: sqlite3.Connection) -> None:
    """Add a box as version 3 had them."""
    writer.execute("INSERT INTO interest_box VALUES (1, 0, 0, 1, 2, 3, 4)")


@pytest.mark.parametrize(("version", "boxes"), [(2, r_trees), (3, ring_cells)])
def test_a_store_with_coarser_boxes_finds_its_regions_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    boxes: Callable[[sqlite3.Connection], None],
) -> None:
    path = tmp_path / "store.db"
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:version])
    writer, reader = schema.open_store(path, LAB)
    boxes(writer)
    messages = [
        post("notify_data", "type=b* | degree>7", "w1"),
        post("notify_interest", "type=*, degree=3", "o1"),
        post("store", "type=b, degree=5..6", "d1"),
        post("store", "type=b, degree=5", "d2"),
    ]
    for message in messages:
        kind, region = message.stored_as, region_of(LAB, message)
        assert kind is not None
        writer.execute(INSERT, write_row(0, kind, message, region))
    reader.close()
    writer.close()
    monkeypatch.undo()
    for _ in range(2):
        store = Store(path, LAB)
        everything = region_of(LAB, post("retrieve", "type=b*"))
        for kind, ids in (("interest", ["w1"]), ("advertisement", ["o1"]), ("data", ["d1"])):
            found = store.candidates.meeting(0, Kind(kind), everything)
            assert [stored.message.id for stored in found] == ids
        points = store.candidates.points(0, everything, WHOLE_RING, {})
        assert [stored.message.id for _, stored in points] == ["d2"]
        store.close()
    assert len(list(sqlite_utils.Database(path).table("interest_box").rows)) == 2


def test_a_store_of_version_1_is_taken_over_with_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
    writer, reader = schema.open_store(path, LAB)
    lowest = region_of(LAB, post("store", "type=a, degree=5")).lowest
    writer.execute(
        "INSERT INTO message VALUES (7, 'd1', 'data', 'store', 'type=a, degree=5', ?, 1, 0, ?, "
        "'s', 'r', '', '{}', '[null, null, null, null]', ?)",
        (lowest, 10**15, b"x"),
    )
    writer.execute("INSERT INTO tombstone VALUES (3, 'gone', '', 5, ?)", (10**15,))
    r_trees(writer)
    reader.close()
    writer.close()
    monkeypatch.undo()
    store = Store(path, LAB)
    (stored,) = stored_after(store, 0, 0, 9)
    assert (stored.seq, stored.message.data, stored.message.header.voters) == (7, b"x", Voters())
    ((_, stone),) = store.tombstones(0, 0, 9)
    assert (stone.id, stone.point) == ("gone", True)
    names = Names()
    store.digests.names(0, (0, 2**63 - 1), names, (0, ""), 9)
    assert names.messages == {"d1": (10**15, 0)}
    digests = [Digest()]
    store.digests.points(0, (lowest, lowest), digests, (lowest, ""), 9)  # type: ignore[arg-type]
    assert digests == [Digest(1, schema.digest("d1", 10**15, 0))]
    store.close()


VERSION_3 = """
    CREATE TABLE message (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
        action TEXT NOT NULL, profile TEXT NOT NULL, identifier INTEGER NOT NULL,
        point INTEGER NOT NULL, stored_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
        sender TEXT NOT NULL, reply_to TEXT NOT NULL, credential TEXT NOT NULL,
        context TEXT NOT NULL, modifiers TEXT NOT NULL, data BLOB NOT NULL,
        term INTEGER NOT NULL DEFAULT 0, voters TEXT NOT NULL DEFAULT '',
        digest INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE tombstone (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, taker TEXT NOT NULL,
        identifier INTEGER NOT NULL, expires_ms INTEGER NOT NULL, point INTEGER NOT NULL DEFAULT 1
    );
    CREATE INDEX "idx_message_kind_point_identifier_id"
        ON "message" ("kind", "point", "identifier", "id");
    CREATE INDEX "idx_message_expires_ms" ON "message" ("expires_ms");
    CREATE INDEX "idx_tombstone_expires_ms" ON "tombstone" ("expires_ms");
    CREATE TABLE space (name TEXT, version INTEGER, fingerprint TEXT, definition TEXT);
    CREATE INDEX idx_tombstone_identifier_id ON tombstone (identifier, id);
    CREATE TABLE ballot (
        id TEXT PRIMARY KEY, term INTEGER NOT NULL, voters TEXT NOT NULL, round INTEGER NOT NULL,
        leader INTEGER NOT NULL, accepted_round INTEGER NOT NULL, accepted_leader INTEGER NOT NULL,
        value TEXT NOT NULL, expires_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX idx_ballot_expires_ms ON ballot (expires_ms);
    CREATE TABLE data_box (seq INTEGER, box INTEGER, exact INTEGER, low_0 INTEGER, high_0 INTEGER,
        low_1 INTEGER, high_1 INTEGER, PRIMARY KEY (seq, box)) WITHOUT ROWID;
    CREATE TABLE interest_box (seq INTEGER, box INTEGER, exact INTEGER, low_0 INTEGER,
        high_0 INTEGER, low_1 INTEGER, high_1 INTEGER, PRIMARY KEY (seq, box)) WITHOUT ROWID;
    CREATE TABLE advertisement_box (seq INTEGER, box INTEGER, exact INTEGER, low_0 INTEGER,
        high_0 INTEGER, low_1 INTEGER, high_1 INTEGER, PRIMARY KEY (seq, box)) WITHOUT ROWID;
    PRAGMA application_id = 1296389189;
    PRAGMA user_version = 3;
"""
"""What the Meteor of that version made."""


def test_a_store_of_version_3_keeps_all_it_has_and_the_numbers_it_gave(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    old = sqlite3.connect(path)
    old.executescript(VERSION_3)
    old.execute(
        "INSERT INTO space VALUES (?, ?, ?, ?)",
        (LAB.name, LAB.version, LAB.fingerprint(), LAB.to_toml()),
    )
    messages = [
        *(post("store", f"type=a, degree={degree}", f"d{degree}") for degree in (7, 5, 6)),
        post("store", "type=a, degree=1..3", "region"),
        post("store", "meteor.inbox=desk", "note"),
        post("notify_data", "type=a, degree=5", "w1"),
        post("store", "type=a, degree=9", "newest"),
    ]
    for message in messages:
        kind, region = message.stored_as, region_of(LAB, message)
        assert kind is not None
        old.execute(INSERT, write_row(0, kind, message, region))
        if not region.is_point:
            (box,) = region.boxes
            (seq,) = old.execute("SELECT max(seq) FROM message").fetchone()
            ends = [end for axis in box for end in axis]
            old.execute(f"INSERT INTO {kind}_box VALUES (?, 0, 0, ?, ?, ?, ?)", (seq, *ends))
    old.execute("DELETE FROM message WHERE id = 'newest'")
    old.execute("INSERT INTO tombstone VALUES (3, 'newest', 'taker', 5, ?, 1)", (10**15,))
    old.commit()
    old.close()
    for number in range(2):
        store = Store(path, LAB)
        assert store.newest() == (7 + number, 3)
        ids = {stored.message.id: stored.message for stored in stored_after(store, 0, 0, 9)}
        assert list(ids.values())[:6] == messages[:6]
        names = Names()
        store.digests.names(0, (0, 2**63 - 1), names, (0, ""), 99)
        assert {"d7", "d5", "d6", "note", "w1"} == set(names.messages) - {"d8"}
        assert [stone.taker for stone in names.stones.values()] == ["taker"]
        everything = region_of(LAB, post("retrieve", "type=a, degree=5..7"))
        found = [
            stored.message.id
            for _, stored in store.candidates.points(0, everything, WHOLE_RING, {})
        ]
        assert sorted(found) == ["d5", "d6", "d7"]
        store.apply(0, [[Put(post("store", "type=a, degree=8", "d8"))]])
        assert store.newest() == (8, 3)  # that of what was deleted is not used again
        store.close()
    old = sqlite3.connect(path)
    indexed = "SELECT count(*) FROM message INDEXED BY idx_message_listed WHERE " + schema.LISTED
    assert old.execute(indexed).fetchone() == (3,)
    old.close()


def test_steps_run_in_order_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    make(path)
    before = len(schema.MIGRATIONS)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, add_column, fill_column))
    for _ in range(2):
        store = Store(path, LAB)
        assert store.counts(0)[Kind.DATA] == 5
        store.close()
    tables = sqlite_utils.Database(path)
    assert tables.execute("PRAGMA user_version").fetchone() == (before + 2,)
    assert {row["heard"] for row in tables.table("message").rows} == {3}
    tables.close()


def test_a_step_that_fails_leaves_the_version_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    make(path)

    def fails(connection: sqlite3.Connection, space: Space) -> None:
        fill_column(connection, space)
        connection.execute("DROP TABLE tombstone")
        connection.execute("SELECT nonsense")

    steps = schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", (*steps, add_column, fails))
    with pytest.raises(StoreError, match=r"can't open .*no such column: nonsense"):
        Store(path, LAB)
    tables = sqlite_utils.Database(path)
    assert tables.execute("PRAGMA user_version").fetchone() == (len(steps) + 1,)
    assert {row["heard"] for row in tables.table("message").rows} == {0}
    tables.close()
    monkeypatch.setattr(schema, "MIGRATIONS", (*steps, add_column))
    store = Store(path, LAB)
    store.apply(0, [[Remove(("d1",))]])
    assert store.counts(0)[Kind.DATA] == 4
    store.close()


def test_a_first_step_that_fails_leaves_an_empty_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"

    def fails(connection: sqlite3.Connection, space: Space) -> None:
        schema._first_tables(connection, space)
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(schema, "MIGRATIONS", (fails,))
    with pytest.raises(StoreError, match="disk is full"):
        Store(path, LAB)
    monkeypatch.undo()
    assert sqlite_utils.Database(path).table_names() == []
    make(path)


# What people see


def test_anyone_can_open_a_store_and_understand_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = Store(path, LAB)
    puts = [
        Put(post("store", "type=a, degree=5", "d1", data=b"x", context={"room": "12"})),
        Put(post("notify_data", "type=a | degree>7", "w1", sender="c1", reply_to="host:7400")),
        Put(post("notify_interest", "type=*", "o1")),
        Put(post("store", "type=a", "d2", expires_ms=77)),
    ]
    store.apply(9, [[*puts, Remove(("d2",))]])
    store.close()
    tables = sqlite_utils.Database(path)
    assert {
        "message",
        "tombstone",
        "space",
        "data_box",
        "interest_box",
        "advertisement_box",
    } <= set(tables.table_names())
    rows = {row["id"]: row for row in tables.table("message").rows}
    assert set(rows) == {"d1", "w1", "o1"}
    assert rows["d1"] | {"seq": 0, "identifier": 0} == {
        "seq": 0,
        "id": "d1",
        "kind": "data",
        "action": "store",
        "profile": "type=a, degree=5",
        "identifier": 0,
        "point": 1,
        "stored_ms": 9,
        "expires_ms": 10**15,
        "sender": "somebody",
        "reply_to": "somebody's peer",
        "credential": "",
        "context": '{"room": "12"}',
        "modifiers": json.dumps([None] * 4),
        "data": b"x",
        "term": 0,
        "voters": "",
        "digest": schema.digest("d1", 10**15, 0),
    }
    assert (rows["w1"]["kind"], rows["w1"]["reply_to"]) == ("interest", "host:7400")
    assert rows["o1"]["kind"] == "advertisement"
    (stone,) = tables.table("tombstone").rows
    assert (stone["id"], stone["taker"], stone["expires_ms"]) == ("d2", "", 77)
    (space,) = tables.table("space").rows
    assert (space["name"], space["version"]) == ("lab", 1)
    assert Space.from_toml(space["definition"]) == LAB
    boxes = tables.query(
        "SELECT id, box, exact, low_1 FROM interest_box JOIN message USING (seq) ORDER BY box"
    )
    assert [tuple(row.values())[:3] for row in boxes] == [("w1", 0, 0), ("w1", 1, 0)]
    (offer,) = tables.table("advertisement_box").rows
    assert (offer["low_0"], offer["high_0"]) == LAB.grid.interval(0, [Anything()])
    tables.close()
