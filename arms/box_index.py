"""Candidates by their boxes: the regions of stored messages, in plain tables and in memory.

The tables are the durable truth and anyone can read them: a row for each box, with its message's
seq, its number there, and the low and high cell of each dimension. These are cells of the space's
grid: the ring's are too coarse to find few among many. Data that are points have no such row; they
are found by their identifiers. The tables are written together with the message. What is searched
is an index in memory (`arms.matching`), made from them when the store is opened. It follows only
after the commit and only where it is searched: whoever writes gathers what changes, whoever reads
takes it over with `publish`.

So between a commit and `publish` the index may name a message that is gone, and readers check. It
must not miss one that was there before: one that got a new seq is looked up with `now_at`.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from arms.expression import Axis
from arms.inbox import INBOX
from arms.limits import POINT_BLOCKS_MAX
from arms.matching import PackedIndex
from arms.message import Action, Kind, region_of_profile
from arms.profile import Profile
from arms.selection import Selected
from squid import Region, Space
from squid.curve_arrays import decode_many
from squid.patterns import Anything, Bare
from squid.region import Box

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Row = tuple[Any, ...]
Read = Callable[[str, Sequence[object]], Iterator[Row]]

TABLES = {kind: f"{kind.value}_box" for kind in Kind}

# The code of a box in memory: its message's seq, and what to know about it without a look at it.
EXACT = 1
"""Whatever meets the boxes of this message is selected by it."""
SEVERAL = 2
"""This message has more boxes, so a search may find it more than once."""
FLAG_BITS = 2

INTEGER_BITS = 63
"""What is not negative in SQLite and numpy."""


@dataclass(slots=True)
class _Changes:
    """What a transaction changes, by kind (None: the data that are points) and code."""

    added: dict[tuple[Kind | None, int], Sequence[Box]] = field(default_factory=dict)
    gone: dict[tuple[Kind | None, int], Sequence[Box]] = field(default_factory=dict)
    moved: dict[int, int] = field(default_factory=dict)
    points: list[tuple[Integers, Integers]] = field(default_factory=list)
    """Codes and cells of data that were added many at once."""
    gone_points: dict[int, int] = field(default_factory=dict)
    """Of data that are points, codes and their places on the curve."""


class BoxIndex:
    """The boxes of each kind of message, and the data that are points."""

    def __init__(self, space: Space, writer: sqlite3.Connection, read: Read) -> None:
        self._space, self._writer, self._read = space, writer, read
        dimensions = len(space.dimensions)
        self._boxes = {kind: PackedIndex(dimensions, space.grid.bits) for kind in Kind}
        self._points = PackedIndex(dimensions, space.bits, of_points=True)
        marks = ", ".join("?" * (3 + 2 * len(space.dimensions)))
        self._insert = {
            kind: f"INSERT INTO {table} VALUES ({marks})" for kind, table in TABLES.items()
        }
        self._delete = {
            kind: f"DELETE FROM {table} WHERE seq = ? RETURNING *" for kind, table in TABLES.items()
        }
        self._gathered = _Changes()
        self._committed: deque[_Changes] = deque()
        self.interest_changes = 0
        """How often interests came or went, as far as searches know."""

    def load(self) -> None:
        """Take over what is in the file."""
        for kind in Kind:
            self._load_boxes(kind)
        self._load_points()

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return sum(index.nbytes for index in (*self._boxes.values(), self._points))

    # -- writing, wherever that happens ------------------------------------------------------------

    def add(self, kind: Kind, seq: int, profile: Profile, region: Region) -> None:
        """Index a message by the boxes of its region."""
        if kind is Kind.DATA and region.is_point:
            self._gathered.added[None, seq << FLAG_BITS] = region.boxes
            return
        exact = kind is Kind.INTEREST and is_exact(self._space, profile)
        rows = [
            (seq, number, exact, *chain.from_iterable(box))
            for number, box in enumerate(region.fine_boxes)
        ]
        self._writer.executemany(self._insert[kind], rows)
        self._gathered.added[kind, _code(seq, exact, len(rows))] = region.fine_boxes

    def add_points(self, seqs: range, cells: Sequence[Sequence[int]]) -> None:
        """Index data that are points, many at once."""
        codes = np.arange(seqs.start, seqs.stop, dtype=np.int64) << FLAG_BITS
        self._gathered.points.append((codes, np.array(cells, np.int64)))

    def discard(self, kind: Kind, seq: int, point: bool, identifier: int) -> None:
        """Forget a message's boxes."""
        if kind is Kind.DATA and point:
            code = seq << FLAG_BITS
            if self._gathered.added.pop((None, code), None) is None:
                self._gathered.gone_points[code] = identifier >> self._space.shift
            return
        rows = self._writer.execute(self._delete[kind], (seq,)).fetchall()
        if rows:
            place: tuple[Kind | None, int] = kind, _code(seq, rows[0][2], len(rows))
            boxes = [tuple(zip(row[3::2], row[4::2], strict=True)) for row in rows]
            if self._gathered.added.pop(place, None) is None:
                self._gathered.gone[place] = boxes

    def move(self, seq: int, new_seq: int) -> None:
        """Remember that a message has a new seq, for those who still look for the old one."""
        self._gathered.moved[seq] = new_seq

    def commit(self) -> None:
        """Have what was gathered ready for `publish`: it is on disk."""
        # In this order, so that `now_at` finds what has moved at every moment.
        self._committed.append(self._gathered)
        self._gathered = _Changes()

    def roll_back(self) -> None:
        """Forget what was gathered: it did not come to the disk."""
        self._gathered = _Changes()

    # -- reading, in one place ---------------------------------------------------------------------

    def publish(self) -> set[int]:
        """Take over what has been committed; returns the seqs that are gone."""
        gone: set[int] = set()
        while self._committed:
            changes = self._committed[0]
            if any(kind is Kind.INTEREST for kind, _ in (*changes.gone, *changes.added)):
                self.interest_changes += 1
            for numbers, cells in changes.points:
                self._points.add_points(numbers, cells)
            if changes.gone_points:
                self._points.discard_points([*changes.gone_points], [*changes.gone_points.values()])
            for kind, codes, boxes in _by_kind(changes.gone):
                self._index(kind).discard(codes, boxes)
            for code in chain(changes.gone_points, (code for _, code in changes.gone)):
                gone.add(code >> FLAG_BITS)
            for kind, codes, boxes in _by_kind(changes.added):
                self._index(kind).add(codes, boxes)
            self._committed.popleft()
        return gone

    def tidy(self) -> bool:
        """Do one short step of putting new boxes in order; says whether there was one to do."""
        return any(index.tidy() for index in (*self._boxes.values(), self._points))

    def now_at(self, seq: int) -> int:
        """Return the seq that a message has by now, if it got a new one since `publish`."""
        for changes in (*self._committed, self._gathered):
            seq = changes.moved.get(seq, seq)
        return seq

    def meeting(self, kind: Kind, region: Region) -> list[int]:
        """Return the codes of the messages that have a box which meets one of the region's."""
        index = self._boxes[kind]
        found = [index.meeting(*zip(*box, strict=True)) for box in region.fine_boxes]
        if len(found) == 1:
            return _distinct(found[0])
        return sorted(set(chain.from_iterable(codes.tolist() for codes in found)))

    def meeting_each(self, kind: Kind, boxes: Sequence[Box]) -> list[list[int]]:
        """Return the same for each of several boxes of the grid."""
        index = self._boxes[kind]
        if len(boxes) == 1:
            return [_distinct(index.meeting(*zip(*boxes[0], strict=True)))]
        cells = np.array(boxes, np.int64).reshape(len(boxes), self._dimensions, 2)
        return list(map(_distinct, index.meeting_each(cells[:, :, 0], cells[:, :, 1])))

    def points(
        self, region: Region, spans: Sequence[tuple[int, int]]
    ) -> tuple[Integers, Integers] | None:
        """Return identifiers, in order, and seqs of the data points of a region within spans.

        None when there are so many that a `walk` over them is better.
        """
        found = []
        for box in region.boxes:
            lows, highs = zip(*box, strict=True)
            found.append(self._points.places(lows, highs, POINT_BLOCKS_MAX))
        known = [pair for pair in found if pair is not None]
        if len(known) < len(found) or not found:
            return None
        codes = np.concatenate([pair[0] for pair in known])
        keys = np.concatenate([pair[1] for pair in known])
        if len(found) > 1:
            codes, first = np.unique(codes, return_index=True)
            keys = keys[first]
        identifiers = keys << self._space.shift
        inside = np.zeros(len(keys), np.bool_)
        for low, high in spans:
            inside |= (identifiers >= low) & (identifiers <= high)
        chosen = np.flatnonzero(inside)
        chosen = chosen[identifiers[chosen].argsort(kind="stable")]
        return identifiers[chosen], codes[chosen] >> FLAG_BITS

    def walk(self, low: int, high: int, count: int) -> tuple[Integers, Integers, int]:
        """Return identifiers, in order, and seqs of the data points of a span, and how far they go.

        That is to its end, or sooner where about `count` have been seen; at one place always all.
        """
        shift = self._space.shift
        end = high >> shift
        codes, keys, last = self._points.walk(-(-low >> shift), end, count)
        return keys << shift, codes >> FLAG_BITS, high if last == end else last << shift

    def _index(self, kind: Kind | None) -> PackedIndex:
        return self._points if kind is None else self._boxes[kind]

    def _load_boxes(self, kind: Kind) -> None:
        # As many ends in one integer as fit: what takes time is to make each value an object.
        bits = self._space.grid.bits
        each = INTEGER_BITS // bits
        names = [f"{end}_{i}" for end in ("low", "high") for i in range(self._dimensions)]
        parts = [names[i : i + each] for i in range(0, len(names), each)]
        packed = [" | ".join(f"({name} << {bits * i})" for i, name in enumerate(p)) for p in parts]
        table = self._table(
            f"SELECT seq << 1 | exact, {', '.join(packed)} FROM {TABLES[kind]} ORDER BY seq",
            1 + len(packed),
        )
        ends = [table[:, 1 + i // each] >> bits * (i % each) for i in range(len(names))]
        cells = np.stack(ends, axis=1) & (1 << bits) - 1
        seqs, exact = table[:, 0] >> 1, table[:, 0] & 1
        again = seqs[1:] == seqs[:-1]
        several = np.zeros(len(seqs), np.int64)
        several[1:] |= again
        several[:-1] |= again
        codes = seqs << FLAG_BITS | several * SEVERAL | exact * EXACT
        lows, highs = cells[:, : self._dimensions], cells[:, self._dimensions :]
        self._boxes[kind].load(codes, lows, highs)

    def _load_points(self) -> None:
        table = self._table("SELECT seq, identifier FROM message WHERE kind = 'data' AND point", 2)
        cells = decode_many(self._space.curve, table[:, 1] >> self._space.shift)
        self._points.load(table[:, 0] << FLAG_BITS, cells, cells)

    def _table(self, sql: str, columns: int) -> Integers:
        values = chain.from_iterable(self._read(sql, ()))
        return np.fromiter(values, np.int64).reshape(-1, columns)

    @property
    def _dimensions(self) -> int:
        return len(self._space.dimensions)


def is_exact(space: Space, profile: Profile) -> bool:
    """Say whether an interest selects all *plain* data that lie in its boxes.

    It does when it asks for nothing but that dimensions be there: cells tell nothing more for sure.
    """
    whole = 1, (1 << space.bits) - 1
    codecs = {dimension.name: dimension.codec for dimension in space.dimensions}
    return (
        len(profile.levels) == 1
        and profile.levels[0].axis is Axis.CHILD
        and all(
            isinstance(element.pattern, Anything | Bare)
            and element.attribute in codecs
            and codecs[element.attribute].interval(Anything()) == whole
            for element in profile.elements()
        )
    )


def is_plain(data: Selected) -> bool:
    """Say whether data are where their values say: one level, and each attribute has a value.

    Nearly all are. What lies in an inbox is somewhere else.
    """
    levels, _ = data.placed()[0]
    return len(levels) == 1 and INBOX not in levels[0] and Bare not in map(type, levels[0].values())


def _by_kind(
    changes: dict[tuple[Kind | None, int], Sequence[Box]],
) -> Iterator[tuple[Kind | None, list[int], list[Box]]]:
    """Give the codes and boxes of each kind, a row for each box."""
    for which in dict.fromkeys(kind for kind, _ in changes):
        rows = [
            (code, box) for (kind, code), boxes in changes.items() if kind is which for box in boxes
        ]
        yield which, [code for code, _ in rows], [box for _, box in rows]


def _code(seq: int, exact: bool, boxes: int) -> int:
    return seq << FLAG_BITS | (SEVERAL if boxes > 1 else 0) | (EXACT if exact else 0)


def _distinct(codes: Integers) -> list[int]:
    if len(codes) > 1 and (codes & SEVERAL).any():
        codes = np.unique(codes)
    distinct: list[int] = codes.tolist()
    return distinct


def create_tables(connection: sqlite3.Connection, space: Space) -> None:
    """Create the tables of boxes and fill them from the messages that are there."""
    ends = ", ".join(f"low_{i} INTEGER, high_{i} INTEGER" for i in range(len(space.dimensions)))
    for table in TABLES.values():
        connection.execute(f"DROP TABLE IF EXISTS {table}")  # of version 1 and 2: an R*Tree
        connection.execute(
            f"CREATE TABLE {table} (seq INTEGER, box INTEGER, exact INTEGER, {ends}, "
            "PRIMARY KEY (seq, box)) WITHOUT ROWID"
        )
    index = BoxIndex(space, connection, connection.execute)
    messages = "SELECT seq, kind, action, profile FROM message WHERE kind <> 'data' OR NOT point"
    for seq, kind, action, text in connection.execute(messages).fetchall():
        profile = Profile.parse(text)
        index.add(Kind(kind), seq, profile, region_of_profile(space, profile, Action(action)))
