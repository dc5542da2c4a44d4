"""Candidates by their boxes: SQLite's R*Tree over the regions of stored messages.

The seam for other indexes is these three methods: `add`, `discard`, `meeting`. An index may answer
with too many messages (the exact check follows) but never with too few.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from arms.message import Kind
from squid import Region, Space
from squid.limits import BOXES_MAX

Row = tuple[Any, ...]

RTREE_DIMENSIONS_MAX = 5
"""SQLite's R*Tree has no more; further dimensions of a space are left to the exact check."""

RTREE_BITS = 31
"""Its integers are signed and of 32 bits; wider axes are indexed by their upper bits."""

TABLES = {kind: f"{kind.value}_box" for kind in Kind}


class BoxIndex:
    """The boxes of each kind of message.

    The boxes of message `seq` are numbered `seq * BOXES_MAX` and on, so they need no other key.
    """

    def __init__(
        self,
        space: Space,
        writer: sqlite3.Connection,
        read: Callable[[str, Sequence[object]], Iterator[Row]],
    ) -> None:
        self._writer, self._read = writer, read
        self._dimensions = min(len(space.dimensions), RTREE_DIMENSIONS_MAX)
        self._shift = max(0, space.bits - RTREE_BITS)
        marks = ", ".join("?" * (2 * self._dimensions))
        tests = " AND ".join(f"low_{i} <= ? AND high_{i} >= ?" for i in range(self._dimensions))
        self._insert = {
            kind: f"INSERT INTO {table} VALUES (?, {marks})" for kind, table in TABLES.items()
        }
        self._delete = {
            kind: f"DELETE FROM {table} WHERE box = ?" for kind, table in TABLES.items()
        }
        self._found = {
            kind: f"FROM {table} CROSS JOIN message ON seq = box / {BOXES_MAX} "
            f"WHERE {tests} AND expires_ms > ?"
            for kind, table in TABLES.items()
        }

    def add(self, kind: Kind, seq: int, region: Region) -> None:
        """Index a message by the boxes of its region."""
        for number, box in enumerate(region.boxes, start=seq * BOXES_MAX):
            ends = [end >> self._shift for axis in box[: self._dimensions] for end in axis]
            self._writer.execute(self._insert[kind], (number, *ends))

    def discard(self, kind: Kind, seq: int) -> None:
        """Forget a message's boxes, if it has any."""
        number = seq * BOXES_MAX
        while self._writer.execute(self._delete[kind], (number,)).rowcount:
            number += 1

    def meeting(self, now_ms: int, kind: Kind, region: Region, columns: str) -> Iterator[Row]:
        """Give columns of the messages that have a box which meets one of the region's.

        The first column is the message's id, and each comes once. Boxes and messages are read in
        one statement, so both are of one state of the file.
        """
        sql = f"SELECT {columns} {self._found[kind]}"
        seen = set()
        for box in region.boxes:
            ends = [
                end >> self._shift for low, high in box[: self._dimensions] for end in (high, low)
            ]
            for row in self._read(sql, (*ends, now_ms)):
                if row[0] not in seen:
                    seen.add(row[0])
                    yield row


def create_tables(connection: sqlite3.Connection, space: Space) -> None:
    """Create the R*Trees, one for each kind of message."""
    dimensions = range(min(len(space.dimensions), RTREE_DIMENSIONS_MAX))
    ends = ", ".join(f"low_{i}, high_{i}" for i in dimensions)
    for table in TABLES.values():
        connection.execute(f"CREATE VIRTUAL TABLE {table} USING rtree_i32(box, {ends})")
