"""Which items a peer looks at to see whether their voters are still the right ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from arms.message import Voters
from arms.store import Store
from arms.writes import PutBatch
from meteor.node.voting import RUNS_WRITTEN_MAX, Voting
from meteor.ring.arcs import WHOLE
from tests.arms.rendezvous_point import LAB
from tests.arms.test_batch import NOW, batch_of

HERE, ELSEWHERE = (1, 2), (1, 3)


class Peer:
    """A peer's voting, and the store that it looks at."""

    def __init__(self, path: Path) -> None:
        self.store = Store(path, LAB)
        self.replicas = SimpleNamespace(holders=HERE)
        overlay = SimpleNamespace(spans=WHOLE)
        unused = cast(Any, None)
        parts = (self.store, unused, cast(Any, self.replicas), cast(Any, overlay))
        self.voting = Voting(*parts, unused, unused, lambda: NOW, unused)
        self._posts = 0

    def write(self, count: int, voters: tuple[int, ...]) -> PutBatch:
        """Write items."""
        self._posts += count
        ids = [f"id{number:06}" for number in range(self._posts - count, self._posts)]
        batch = batch_of(*[(id_, "type=x") for id_ in ids])
        batch.voters = Voters(0, voters)
        write = PutBatch(batch)
        self.store.apply(NOW, [[write]])
        return write

    def stale(self) -> list[int]:
        """Return the numbers of the items whose voters are to be replaced."""
        while self.voting._unlooked:
            if found := self.voting._look():
                return [stored.seq for stored in found]
        return []


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    return Peer(tmp_path / "store.db")


def test_what_was_written_with_the_right_voters_is_not_read(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        write = peer.write(5, HERE)
        peer.voting.wrote(write.seqs, write.batch.voters)

    def read(*_: object) -> list[object]:
        raise AssertionError("nothing is to be read")

    monkeypatch.setattr(peer.store, "voted_otherwise", read)
    assert peer.stale() == []


def test_what_came_some_other_way_is_read(peer: Peer) -> None:
    first = peer.write(2, HERE)
    peer.voting.wrote(first.seqs, first.batch.voters)
    other = peer.write(3, ELSEWHERE)
    last = peer.write(2, HERE)
    peer.voting.wrote(last.seqs, last.batch.voters)
    assert peer.stale() == list(other.seqs)


def test_when_the_copies_move_everything_is_read(peer: Peer) -> None:
    write = peer.write(3, HERE)
    peer.voting.wrote(write.seqs, write.batch.voters)
    assert peer.stale() == []
    peer.replicas.holders = ELSEWHERE
    assert peer.stale() == list(write.seqs)


def test_items_written_for_copies_that_moved_meanwhile_are_read(peer: Peer) -> None:
    old = peer.write(2, HERE)
    peer.replicas.holders = ELSEWHERE
    new = peer.write(2, ELSEWHERE)
    peer.voting.wrote(new.seqs, new.batch.voters)
    peer.voting.wrote(old.seqs, old.batch.voters)
    assert peer.stale() == list(old.seqs)


def test_runs_that_are_remembered_are_bounded(peer: Peer) -> None:
    for number in range(2 * RUNS_WRITTEN_MAX):
        write = peer.write(1, HERE)
        if number % 2:
            peer.voting.wrote(write.seqs, write.batch.voters)
    for seq in range(10**6, 10**6 + 400, 2):
        peer.voting.wrote(range(seq, seq + 1), Voters(0, HERE))
    assert len(peer.voting._wrote[1]) == RUNS_WRITTEN_MAX
    assert peer.stale() == []
