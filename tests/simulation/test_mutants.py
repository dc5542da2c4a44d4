"""Mistakes that a peer could make are caught by some seed; the real one passes the same seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from arms.ballots import Decided, Propose
from arms.store import Store
from arms.writes import Tombstone
from meteor.node import voting
from meteor.node.copying import START, Page
from meteor.node.handover import Handover
from meteor.node.replicas import Follower, Replicas
from meteor.node.reunion import Reunion
from meteor.node.writer import Writer
from meteor.ring.doubts import Lost
from meteor.ring.questions import Neighbours, Peer
from meteor.simulation import nemesis
from meteor.simulation.run import Settings, simulate

SEEDS = 10

Patch = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """Answer a commit at once; it is written a second later, if the peer lives."""

    async def write(self: Writer, groups: list[Any]) -> None:
        for group in groups:
            group.results = [1] * len(group.writes)
            group.done.set()
        await trio.sleep(1.0)
        self._store.apply(self._clock(), [group.writes for group in groups])

    patch.setattr(Writer, "_write", write)


def forget_tombstones(patch: pytest.MonkeyPatch) -> None:
    def bury(self: Store, stone: Tombstone) -> bool:
        row = self._writer.execute("SELECT seq FROM message WHERE id = ?", (stone.id,)).fetchone()
        return row is not None and self._drop(row[0])

    patch.setattr(Store, "_bury", bury)


def hand_over_too_early(patch: pytest.MonkeyPatch) -> None:
    """Have responsibility move before what is stored has been sent."""

    async def hand_over(
        self: Handover, peer: Peer, low: int, high: int, given: Callable[[], None]
    ) -> None:
        await self._send(peer, Page(START, last=True), (low, high), last=True)
        given()

    really = Replicas._mend

    async def mend_late(self: Replicas, follower: Follower) -> None:
        await trio.sleep(8)  # at once it would hide all but a moment of the mistake
        await really(self, follower)

    patch.setattr(Handover, "_hand_over", hand_over)
    patch.setattr(Replicas, "_mend", mend_late)


def acknowledge_without_copies(patch: pytest.MonkeyPatch) -> None:
    """Say at once that copies are made, and make none."""

    async def confirmed(self: Replicas) -> int:
        await trio.lowlevel.checkpoint()
        return 3

    async def nothing(*_: object) -> None:
        await trio.sleep_forever()

    patch.setattr(Replicas, "confirmed", confirmed)
    patch.setattr(Replicas, "_lead", nothing)
    patch.setattr(Replicas, "settled", True)
    patch.setattr(Replicas, "report", lambda _: [])


def have_no_doubts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lost, "doubts", lambda _self, _spans: {})


def never_meet_again(patch: pytest.MonkeyPatch) -> None:
    async def meet(self: Reunion, around: Neighbours) -> None:
        await trio.lowlevel.checkpoint()

    patch.setattr(Reunion, "_meet", meet)


def let_one_voter_decide(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(voting, "promised", lambda _v, _b, wanted, _votes: Propose(wanted))
    patch.setattr(
        voting, "accepted", lambda _v, _b, value, _votes: Decided(value.partition(" ")[2])
    )
    patch.setattr(voting.Voting, "_unlooked", False)


MUTANTS: list[tuple[Patch, tuple[str, ...], float]] = [
    (acknowledge_before_the_write, ("power",), 1.0),
    (forget_tombstones, ("latency", "crash", "power"), 1.0),
    (hand_over_too_early, ("churn",), 1.0),
    (acknowledge_without_copies, ("replace",), 1.0),
    (have_no_doubts, ("partition",), 1.0),
    (never_meet_again, ("partition",), 1.0),
    (let_one_voter_decide, ("partition",), 4.0),
]


def caught(faults: tuple[str, ...], minutes: float) -> str:
    """Return which checker caught it first."""
    for seed in range(SEEDS):
        if checker := simulate(Settings(6, minutes, seed, faults)).checker:
            return checker
    return ""


@pytest.mark.parametrize(
    ("mutate", "faults", "minutes"), MUTANTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_mutants_are_caught(
    monkeypatch: pytest.MonkeyPatch, mutate: Patch, faults: tuple[str, ...], minutes: float
) -> None:
    monkeypatch.setattr(nemesis, "WHOLE_SECONDS_MAX", 60.0)
    mutate(monkeypatch)
    assert caught(faults, minutes)
