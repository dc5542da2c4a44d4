"""The disk twin: what was reported survives every power cut, and no cut damages a store."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random

from trio.testing import MockClock

from meteor.simulation.disk import Disk

ROWS = 30


def opened(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "profiles.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS row (n INTEGER PRIMARY KEY, filling BLOB)")
    return connection


def insert(connection: sqlite3.Connection, n: int) -> None:
    connection.execute("INSERT INTO row VALUES (?, randomblob(3000))", (n,))


def survivors(folder: Path) -> list[int]:
    connection = opened(folder)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [n for (n,) in connection.execute("SELECT n FROM row ORDER BY n")]
    finally:
        connection.close()


async def test_what_was_reported_survives_a_cut_at_any_byte(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    torn = 0
    for seed in range(150):
        random, folder = Random(f"cut {seed}"), tmp_path / f"{seed}"
        folder.mkdir()
        disk, connection = Disk(folder, random), opened(folder)
        count = random.randint(1, ROWS)
        with disk.slow(0.1):
            for n in range(count):
                await disk.begin()
                insert(connection, n)
                await disk.finish()
        insert(connection, count)  # this one is under way when the power goes
        restore = disk.lose_power()
        connection.close()  # tidies the log away, as no power cut does
        restore()
        left = survivors(folder)
        assert left in (list(range(count)), list(range(count + 1)))
        torn += len(left) == count
    assert torn > 10


async def test_what_was_not_reported_may_be_lost(tmp_path: Path, autojump_clock: MockClock) -> None:
    """The twin does lose: else nothing that relies on it would prove anything."""
    fewest = ROWS
    for seed in range(20):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        disk, connection = Disk(folder, Random(seed)), opened(folder)
        for n in range(ROWS):
            insert(connection, n)  # nobody waits for the disk
        restore = disk.lose_power()
        connection.close()
        restore()
        left = survivors(folder)
        assert left == list(range(len(left)))
        fewest = min(fewest, len(left))
    assert fewest < ROWS // 2
