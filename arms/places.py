"""Data at points, in the order (identifier, id): the index knows where they lie, the file the rest.

An index over identifiers in the file would be written to at random places, a page for nearly every
post, and would cost more than all the rest of it. So their order is in memory alone. What lies at
one identifier is put in the order of its ids when it is asked for. Where that is very much, a
*crowd*, its ids are kept, since whoever walks it comes back for page after page.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from arms.box_index import BoxIndex, Read
from arms.limits import CROWD_IDS_KEPT
from arms.message import Kind
from arms.rows import STORED, Stored, read_row
from arms.schema import LISTED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Row = tuple[Any, ...]
Place = tuple[int, str]
"""An identifier, and the id of the last one seen there."""

PLACE = "seq, identifier, id"

_place = itemgetter(1, 2)

ROWS_AT_ONCE = 256
"""Rows that one statement looks up: enough to make little of what a statement costs by itself."""

CROWD_MIN = 1_024
"""Messages at one identifier from which on their ids are kept."""


class Places:
    """Reads what lies in one store, in order.

    Rows of data points begin with the seq, the identifier and the id. They are read one by one, so
    that large data are never in memory all at once.
    """

    def __init__(self, index: BoxIndex, read: Read) -> None:
        self._index, self._read = index, read
        self._crowds: dict[int, _Crowd] = {}

    def lying(
        self, now_ms: int, kind: Kind, point: bool, after: Place, high: int, limit: int
    ) -> Iterator[Stored]:
        """Give messages of any kind whose lowest identifier lies behind a place, up to another."""
        if kind is Kind.DATA and point:
            found = islice(self.within(now_ms, STORED, after, high), limit)
            return (read_row(row[3:]) for row in found)
        rows = self._read(
            f"SELECT {STORED} FROM message WHERE {LISTED} AND kind = ? AND point = ? "
            "AND (identifier, id) > (?, ?) AND identifier <= ? AND expires_ms > ? "
            "ORDER BY identifier, id LIMIT ?",
            (kind.value, point, *after, high, now_ms, limit),
        )
        return map(read_row, rows)

    def within(
        self, now_ms: int, columns: str, after: Place, high: int, *, small: bool = False
    ) -> Iterator[Row]:
        """Give what lies behind a place, up to an identifier; `small` columns are read at once."""
        low, id_ = after
        resume = {low: id_}
        while low <= high:
            identifiers, seqs, upto = self._index.walk(low, high, ROWS_AT_ONCE)
            yield from self.rows(now_ms, columns, identifiers, seqs, resume, small=small)
            low = upto + 1

    def rows(
        self,
        now_ms: int,
        columns: str,
        identifiers: Integers,
        seqs: Integers,
        resume: Mapping[int, str],
        *,
        small: bool = False,
    ) -> Iterator[Row]:
        """Give what the index found, in the order of identifiers.

        `resume` maps an identifier to the last id that was already seen there.
        """
        columns = f"{PLACE}, {columns}"
        for begin, end in _pages(identifiers):
            there, found = identifiers[begin:end], seqs[begin:end]
            if small and len(found) < CROWD_MIN:
                rows: Iterable[Row] = sorted(
                    self._select(now_ms, columns, found.tolist()), key=_place
                )
            else:
                pages = self._ordered(there, found, resume)
                rows = chain.from_iterable(self._select(now_ms, columns, page) for page in pages)
            for row in rows:
                if row[2] > resume.get(row[1], ""):
                    yield row

    def _ordered(
        self, identifiers: Integers, seqs: Integers, resume: Mapping[int, str]
    ) -> Iterator[list[int]]:
        """Give pages of seqs in the order (identifier, id)."""
        if len(seqs) >= CROWD_MIN:
            at = int(identifiers[0])
            yield from self._crowd(at, seqs).behind(resume.get(at, ""))
        elif (identifiers[1:] > identifiers[:-1]).all():
            yield seqs.tolist()
        else:
            yield [seq for seq, _, _ in sorted(self._ids(seqs), key=_place)]

    def _crowd(self, at: int, seqs: Integers) -> _Crowd:
        """Return all that lies at one identifier; kept from the last time, as far as it was known.

        What came since then has a higher seq. What went is noticed when it is read.
        """
        crowd = self._crowds.pop(at, None)
        if crowd is None or len(crowd.ids) > 2 * len(seqs):
            crowd = _Crowd()
        new = seqs[seqs > crowd.newest]
        if len(new):
            crowd.add([(id_, seq) for seq, _, id_ in self._ids(new)])
            crowd.newest = int(new.max())
        self._crowds[at] = crowd
        while len(self._crowds) > 1 and sum(map(len, self._crowds.values())) > CROWD_IDS_KEPT:
            del self._crowds[next(iter(self._crowds))]
        return crowd

    def _ids(self, seqs: Integers) -> Iterator[Row]:
        wanted: list[int] = seqs.tolist()
        for begin in range(0, len(wanted), ROWS_AT_ONCE):
            yield from self._select(-1, PLACE, wanted[begin : begin + ROWS_AT_ONCE])

    def _select(self, now_ms: int, columns: str, seqs: Sequence[int]) -> Iterator[Row]:
        """Give the rows that have not expired, in the order of these seqs.

        One that got a new seq, which the index does not know yet, is looked up under that one.
        """
        # Nothing but the order of the seqs puts these rows in order: what would sort them would
        # have the data of all of them in memory.
        sql = (
            f"SELECT {columns} FROM (SELECT value AS wanted FROM json_each(?))"
            " CROSS JOIN message ON seq = wanted WHERE expires_ms > ?"
        )
        rows = self._read(sql, (json.dumps(seqs), now_ms))
        row = next(rows, None)
        for seq in seqs:
            if row is not None and row[0] == seq:
                yield row
                row = next(rows, None)
            elif (moved := self._index.now_at(seq)) != seq:
                yield from self._read(sql, (json.dumps([moved]), now_ms))
        assert row is None, "SQLite looked rows up in another order"


class _Crowd:
    """The ids of what lies at one identifier, in order, and their seqs."""

    __slots__ = ("ids", "newest", "seqs")

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.seqs: dict[str, int] = {}
        self.newest = 0

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, entries: Sequence[tuple[str, int]]) -> None:
        """Add ids; one that is known has a new seq."""
        self.ids += [id_ for id_, _ in entries if id_ not in self.seqs]
        self.ids.sort()  # nearly in order, so this is quick
        self.seqs.update(entries)

    def behind(self, id_: str) -> Iterator[list[int]]:
        """Give pages of seqs, in the order of the ids that come after one."""
        for begin in range(bisect_right(self.ids, id_), len(self.ids), ROWS_AT_ONCE):
            yield [self.seqs[one] for one in self.ids[begin : begin + ROWS_AT_ONCE]]


def _pages(identifiers: Integers) -> Iterator[tuple[int, int]]:
    """Cut sorted identifiers into pages: whole groups of equal ones, each crowd by itself."""
    changes = np.flatnonzero(identifiers[1:] != identifiers[:-1]) + 1
    first = 0
    for begin, end in pairwise([0, *changes.tolist(), len(identifiers)]):
        if first < begin and (end - begin >= CROWD_MIN or end - first > ROWS_AT_ONCE):
            yield first, begin
            first = begin
        if end - begin >= CROWD_MIN:
            yield begin, end
            first = end
    if first < len(identifiers):
        yield first, len(identifiers)
