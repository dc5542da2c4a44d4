"""What may match: stored messages found by their regions, read from disk or kept ready.

The index names messages; some of those may be gone from the file by now, or expired, so each is
looked at before it is given away.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arms.box_index import EXACT, FLAG_BITS, BoxIndex, Read, is_plain
from arms.fine_boxes import FineBoxes
from arms.limits import HOT_CHARACTERS_MAX
from arms.message import Action, Kind, Message, region_of_profile
from arms.places import ROWS_AT_ONCE, Places
from arms.profile import Profile
from arms.rows import STORED, Stored, read_row
from arms.selection import Selected, Selection
from squid import Region, Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Spans = Sequence[tuple[int, int]]

FIRST_ROWS = 16
"""Rows that a walk begins with: who asks for one match should not wait for hundreds."""


class _Hot(NamedTuple):
    """A message that is matched again and again: parsed, compiled, its end at hand."""

    expires_ms: int
    selects: Selection
    stored: Stored


class Candidates:
    """Reads the messages of one store that meet a region."""

    def __init__(self, space: Space, index: BoxIndex, places: Places, read: Read) -> None:
        self.index = index
        self._space, self._read = space, read
        self._fine_boxes = FineBoxes(space)
        self._places = places
        self._hot: dict[int, _Hot] = {}
        self._hot_characters = 0

    def forget(self, seqs: set[int]) -> None:
        """Keep these messages no longer."""
        for seq in seqs & self._hot.keys():
            self._hot_characters -= _characters(self._hot.pop(seq).stored)

    def meeting(self, now_ms: int, kind: Kind, region: Region) -> Iterator[Stored]:
        """Give the messages of a kind whose boxes meet the region's: a superset of the matches."""
        for code in self.index.meeting(kind, region):
            hot = self._get(now_ms, code >> FLAG_BITS)
            if hot is not None:
                yield hot.stored

    def selecting(self, now_ms: int, data: Sequence[Selected]) -> list[list[Message]]:
        """Return, for each of several data, the interests that select it."""
        boxes = list(map(self._fine_boxes.of, data))
        return [
            self._selecting(now_ms, profile, codes) if codes else []
            for profile, codes in zip(
                data, self.index.meeting_each(Kind.INTEREST, boxes), strict=True
            )
        ]

    def _selecting(self, now_ms: int, data: Selected, codes: list[int]) -> list[Message]:
        # For each of thousands of matches a second, so this looks twice where it could call once.
        hot, found = self._hot, []
        plain: bool | None = None
        for code in codes:
            one = hot.get(code >> FLAG_BITS)
            if one is None or one.expires_ms <= now_ms:
                one = self._get(now_ms, code >> FLAG_BITS)
                if one is None:
                    continue
            if code & EXACT and plain is None:
                plain = is_plain(data)
            if (code & EXACT and plain) or one.selects(data):
                found.append(one.stored.message)
        return found

    def _get(self, now_ms: int, seq: int) -> _Hot | None:
        """Return a message that the index named, if it is there. It is kept for the next time."""
        hot = self._hot.get(seq)
        if hot is None or hot.expires_ms <= now_ms:
            stored = self._at(now_ms, seq)
            hot = None if stored is None else self.keep(seq, stored)
        return hot

    def keep(self, seq: int, stored: Stored) -> _Hot:
        """Keep a message, by the seq that the index knows it by, to be quick when it is matched."""
        self.forget({seq})
        self._hot_characters += _characters(stored)
        if self._hot_characters > HOT_CHARACTERS_MAX:
            self._hot.clear()
            self._hot_characters = _characters(stored)
        message = stored.message
        hot = _Hot(message.header.expires_ms, message.profile.compile(), stored)
        self._hot[seq] = hot
        return hot

    # Cursors are read row by row, so a large store is never in memory; whoever walks them does so
    # without a pause, because an open one keeps this connection at an old state of the file.

    def points(
        self, now_ms: int, region: Region, spans: Spans, resume: Mapping[int, str]
    ) -> Iterator[tuple[int, Stored]]:
        """Walk the data points of a region within spans, in the order (identifier, id).

        `resume` maps an identifier to the last message id that was already seen there.
        """
        # At one point a walk is quicker: there is nothing to search.
        found = None if region.is_point else self.index.points(region, spans)
        for identifiers, seqs in self._walk(region, spans) if found is None else (found,):
            for row in self._places.rows(now_ms, STORED, identifiers, seqs, resume):
                yield row[1], read_row(row[3:])

    def _walk(self, region: Region, spans: Spans) -> Iterator[tuple[Integers, Integers]]:
        """Walk all data points, and let `Region.next` skip what the region does not touch."""
        for low, high in spans:
            at, count = region.next(low), FIRST_ROWS
            while at is not None and at <= high:
                end = at if region.is_point else high
                identifiers, seqs, upto = self.index.walk(at, end, count)
                places, counts = np.unique(identifiers, return_counts=True)
                inside, at = _inside(region, places.tolist(), upto)
                kept = np.repeat(inside, counts)
                yield identifiers[kept], seqs[kept]
                count = min(2 * count, ROWS_AT_ONCE)

    def ranges(
        self, now_ms: int, region: Region, spans: Spans, resume: Mapping[int, str]
    ) -> Iterator[tuple[int, Stored]]:
        """Walk the data that are no points likewise, each where it first meets the region."""
        places = []
        for code in self.index.meeting(Kind.DATA, region):
            row = self._row(now_ms, code >> FLAG_BITS, "id, profile")  # the data may be large
            if row is not None:
                id_, text = row
                other = region_of_profile(self._space, Profile.parse(text), Action.STORE)
                at = region.intersect(other).lowest
                if at is not None and contains(spans, at) and id_ > resume.get(at, ""):
                    places.append((at, id_, code >> FLAG_BITS))
        for at, _, seq in sorted(places):
            stored = self._at(now_ms, seq)
            if stored is not None:
                yield at, stored

    def _at(self, now_ms: int, seq: int) -> Stored | None:
        row = self._row(now_ms, seq, STORED)
        return None if row is None else read_row(row)

    def _row(self, now_ms: int, seq: int, columns: str) -> tuple[Any, ...] | None:
        """Return columns of the message that the index knows by a seq, if it is there."""
        sql = f"SELECT {columns} FROM message WHERE seq = ? AND expires_ms > ?"
        row = next(self._read(sql, (seq, now_ms)), None)
        if row is None and (moved := self.index.now_at(seq)) != seq:
            row = next(self._read(sql, (moved, now_ms)), None)
        return row


def _inside(
    region: Region, places: Sequence[int], upto: int
) -> tuple[NDArray[np.bool_], int | None]:
    """Say which of these identifiers a region has, and with which it goes on behind the last."""
    inside, row = np.zeros(len(places), np.bool_), 0
    while row < len(places):
        at = region.next(places[row])
        if at is None or at > upto:
            return inside, at
        row = bisect_left(places, at, row)
        if row < len(places) and places[row] == at:
            inside[row] = True
            row += 1
    return inside, region.next(upto + 1)


def contains(spans: Spans, identifier: int) -> bool:
    """Say whether an identifier lies in one of the spans."""
    return any(low <= identifier <= high for low, high in spans)


def _characters(stored: Stored) -> int:
    return len(stored.message.profile.text) + len(stored.message.data)
