"""Candidates by their boxes: SQLite's R*Tree over the regions of stored messages.

The seam for other indexes is these three methods: `add`, `discard`, `meeting`. An index may answer
with too many messages (the exact check follows) but never with too few.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from arms.message import Kind
from squid import Region, Space

RTREE_DIMENSIONS_MAX = 5
"""SQLite's R*Tree has no more; further dimensions of a space are left to the exact check."""

RTREE_BITS = 31
"""Its integers are signed and of 32 bits; wider axes are indexed by their upper bits."""

TABLES = {kind: f"{kind.value}_box" for kind in Kind}


class BoxIndex:
    """The boxes of each kind of message, on one connection."""

    def __init__(self, connection: sqlite3.Connection, space: Space) -> None:
        self._connection = connection
        self._dimensions = min(len(space.dimensions), RTREE_DIMENSIONS_MAX)
        self._shift = max(0, space.bits - RTREE_BITS)
        marks = ", ".join("?" * (2 * self._dimensions))
        tests = " AND ".join(f"low_{i} <= ? AND high_{i} >= ?" for i in range(self._dimensions))
        self._insert = {
            kind: f"INSERT INTO {table} VALUES (NULL, {marks}, ?)" for kind, table in TABLES.items()
        }
        self._select = {
            kind: f"SELECT seq FROM {table} WHERE {tests}" for kind, table in TABLES.items()
        }

    def add(self, kind: Kind, seq: int, region: Region) -> None:
        """Index a message by the boxes of its region."""
        for box in region.boxes:
            ends = [end >> self._shift for axis in box[: self._dimensions] for end in axis]
            box_id = self._connection.execute(self._insert[kind], (*ends, seq)).lastrowid
            self._connection.execute("INSERT INTO box_of VALUES (?, ?)", (seq, box_id))

    def discard(self, kind: Kind, seq: int) -> None:
        """Forget a message's boxes."""
        boxes = self._connection.execute("SELECT box FROM box_of WHERE seq = ?", (seq,)).fetchall()
        self._connection.executemany(f"DELETE FROM {TABLES[kind]} WHERE box = ?", boxes)
        self._connection.execute("DELETE FROM box_of WHERE seq = ?", (seq,))

    def meeting(self, kind: Kind, region: Region) -> Iterable[int]:
        """Return the messages that have a box which meets one of the region's, each once."""
        found: dict[int, None] = {}
        for box in region.boxes:
            ends = [
                end >> self._shift for low, high in box[: self._dimensions] for end in (high, low)
            ]
            for (seq,) in self._connection.execute(self._select[kind], ends):
                found[seq] = None
        return found


def create_tables(connection: sqlite3.Connection, space: Space) -> None:
    """Create the R*Trees, one for each kind of message."""
    dimensions = range(min(len(space.dimensions), RTREE_DIMENSIONS_MAX))
    ends = ", ".join(f"low_{i}, high_{i}" for i in dimensions)
    for table in TABLES.values():
        connection.execute(f"CREATE VIRTUAL TABLE {table} USING rtree_i32(box, {ends}, +seq)")
    connection.execute("CREATE TABLE box_of (seq INTEGER, box INTEGER, PRIMARY KEY (seq, box))")
