"""A store's votes on who takes an item: what it promised and accepted, on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from arms.ballots import Voted
from arms.message import Voters
from arms.writes import Vote

Row = tuple[Any, ...]


class BallotBox:
    """The table `ballot` of a store."""

    def __init__(
        self,
        writer: sqlite3.Connection,
        read: Callable[[str, Sequence[object]], Iterator[Row]],
    ) -> None:
        self._writer, self._read = writer, read

    def vote(self, vote: Vote) -> bool:
        """Take part in a ballot, unless a later one was promised or others vote by now."""
        cursor = self._writer.execute
        before = _voted(cursor(KNOWN, (vote.id,)).fetchone(), vote.voters)
        if before.voters.term < vote.voters.term:
            before = Voted(vote.voters)
        if before.voters.term > vote.voters.term or vote.ballot < before.promised:
            return False
        # Promised once only: a leader that was restarted may not know that it led this ballot.
        if vote.value is None and vote.ballot == before.promised:
            return False
        accepted, value = before.accepted, before.value
        if vote.value is not None:
            accepted, value = vote.ballot, vote.value
        cursor(
            "REPLACE INTO ballot VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                vote.id,
                vote.voters.term,
                str(vote.voters),
                *vote.ballot,
                *accepted,
                value,
                vote.expires_ms,
            ),
        )
        return True

    def voted(self, id_: str) -> Voted:
        """Return what this store has voted on an item, and whether it is gone."""
        return _voted(next(self._read(KNOWN, (id_,)), None), Voters())

    def sweep(self, now_ms: int, limit: int) -> int:
        """Remove votes on what has expired; returns how many."""
        return self._writer.execute(
            "DELETE FROM ballot WHERE id IN (SELECT id FROM ballot WHERE expires_ms <= ? LIMIT ?)",
            (now_ms, limit),
        ).rowcount


KNOWN = (
    "SELECT ballot.term, ballot.voters, round, leader, accepted_round, accepted_leader, value, "
    "message.term, message.voters, taker FROM (SELECT ? AS id) AS item "
    "LEFT JOIN ballot USING (id) LEFT JOIN message USING (id) LEFT JOIN tombstone USING (id)"
)


def _voted(row: Row | None, asked: Voters) -> Voted:
    """Read a row of what is known; a later term than that of the votes makes them void."""
    assert row is not None
    term, voters, round_, leader, accepted_round, accepted_leader, value = row[:7]
    message_term, message_voters, taker = row[7:]
    noted = asked if message_term is None else Voters.parse(message_term, message_voters)
    if term is None or term < noted.term:
        return Voted(noted, taker=taker)
    return Voted(
        Voters.parse(term, voters),
        (round_, leader),
        (accepted_round, accepted_leader),
        value,
        taker,
    )
