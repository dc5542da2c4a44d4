"""Ballots: at most one taker ever has an item, whatever is lost, delayed, restarted or cut off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from rendezvous_point import LAB, post

from arms.ballots import (
    Decided,
    Moved,
    Overtaken,
    Propose,
    Unreached,
    Voted,
    accepted,
    moved_to,
    outcome,
    promised,
    taken_by,
)
from arms.message import Voters
from arms.store import Store
from arms.writes import Assign, Bury, Put, Take, Tombstone, Vote

THREE = Voters(0, (1, 2, 3))
NOW = 1_000
LATER = 10**12


def voted(**fields: object) -> Voted:
    return replace(Voted(THREE, (1, 9), granted=True), **fields)  # type: ignore[arg-type]


def test_a_majority_of_promises_lets_a_leader_propose_what_it_wants() -> None:
    assert promised(THREE, (1, 9), "taken a", [voted(), voted()]) == Propose("taken a")


def test_what_was_accepted_last_is_proposed_again() -> None:
    votes = [voted(accepted=(1, 1), value="taken b"), voted(accepted=(1, 2), value="taken c")]
    assert promised(THREE, (1, 9), "taken a", votes) == Propose("taken c")


def test_too_few_voters_decide_nothing() -> None:
    assert promised(THREE, (1, 9), "taken a", [voted()]) == Unreached(1, 3)
    assert accepted(THREE, (1, 9), "taken a", [voted(accepted=(1, 9))]) == Unreached(1, 3)


def test_a_later_ballot_overtakes() -> None:
    later = voted(promised=(4, 2), granted=False)
    assert promised(THREE, (1, 9), "taken a", [voted(), later]) == Overtaken(4)


def test_whoever_knows_the_outcome_tells_it() -> None:
    assert promised(THREE, (1, 9), "taken a", [voted(taker="z")]) == Decided("z")
    moved = Voters(1, (4, 5))
    assert promised(THREE, (1, 9), "taken a", [voted(voters=moved)]) == Moved(moved)


def test_values_mean_what_they_say() -> None:
    assert outcome(taken_by("some body"), 3) == Decided("some body")
    assert outcome(moved_to(Voters(0, (7, 8))), 3) == Moved(Voters(4, (7, 8)))


class Disk(Store):
    """A voter: a real store, that can be away."""

    away = False


@pytest.fixture
def disks(tmp_path: Path) -> dict[int, Disk]:
    return {i: Disk(tmp_path / f"{i}.db", LAB, sync="normal") for i in range(1, 6)}


def ask(disk: Disk, vote: Vote) -> Voted:
    ((granted,),) = disk.apply(NOW, [[vote]])
    return replace(disk.voted(vote.id), granted=bool(granted))


@pytest.mark.parametrize("seed", range(60))
def test_no_item_goes_to_two_takers_in_any_order_of_events(
    disks: dict[int, Disk], seed: int
) -> None:
    """Leaders that know nothing of each other, restarts, lost questions and answers, new voters."""
    random = Random(seed)
    takers: set[str] = set()
    rounds = dict.fromkeys((11, 12, 13), 0)
    known = dict.fromkeys(rounds, THREE)
    flights: list[tuple[int, str, tuple[int, int], Voters]] = []
    for _ in range(40):
        leader = random.choice(list(rounds))
        if random.random() < 0.2:
            rounds[leader] = 0  # restarted: it has forgotten which ballots it led
        rounds[leader] += 1
        ballot, voters = (rounds[leader], leader), known[leader]
        wanted = taken_by(f"t{leader}")
        if random.random() < 0.3:
            wanted = moved_to(Voters(0, tuple(random.sample(sorted(disks), 3))))
        votes = [
            ask(disks[i], Vote("item", voters, ballot, None, LATER))
            for i in voters.peers
            if random.random() < 0.8
        ]
        verdict = promised(voters, ballot, wanted, votes)
        if isinstance(verdict, Overtaken):
            rounds[leader] = verdict.round
        if isinstance(verdict, Moved):
            known[leader] = verdict.voters
        if isinstance(verdict, Propose):
            flights.append((leader, verdict.value, ballot, voters))
        if flights and random.random() < 0.7:  # some proposals come late, some never
            leader, value, ballot, voters = flights.pop(random.randrange(len(flights)))
            votes = [
                ask(disks[i], Vote("item", voters, ballot, value, LATER))
                for i in voters.peers
                if random.random() < 0.8
            ]
            decided = accepted(voters, ballot, value, votes)
            if isinstance(decided, Decided):
                takers.add(decided.taker)
            if isinstance(decided, Moved):
                known[leader] = decided.voters
    assert len(takers) <= 1


def test_votes_are_on_disk(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db", LAB)
    store.apply(NOW, [[Vote("i", THREE, (2, 9), None, LATER)]])
    store.apply(NOW, [[Vote("i", THREE, (2, 9), "taken a", LATER)]])
    store.close()
    again = Store(tmp_path / "store.db", LAB)
    assert again.voted("i") == Voted(THREE, (2, 9), (2, 9), "taken a")
    again.close()


def test_a_tombstone_tells_who_has_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db", LAB)
    store.apply(NOW, [[Put(post("store", "type=a", "i")), Take("i", "me", "")]])
    assert store.voted("i").taker == "me"
    store.apply(NOW, [[Bury((Tombstone("j", "", 5, True, LATER),))]])
    assert store.voted("j").taker == ""
    store.close()


def test_items_that_others_vote_on_come_by_number_so_that_none_is_passed_over(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "store.db", LAB)
    names = [f"n{i * 7 % 30:02}" for i in range(30)]  # not in the order of their places
    store.apply(NOW, [[Put(post("store", f"type={name}", name)) for name in names]])
    seen: list[str] = []
    after = 0
    while found := store.voted_otherwise("1,2,3", ((0, 2**63 - 1),), after, 30, 7):
        seen += [entry.message.id for entry in found]
        after = found[-1].seq
    assert seen == names
    store.close()


def test_who_votes_in_a_later_term_is_noted_and_earlier_ballots_are_void(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db", LAB)
    message = post("store", "type=a", "i").voted_on_by(THREE)
    later = Voters(1, (4, 5))
    store.apply(NOW, [[Put(message), Vote("i", THREE, (5, 9), None, LATER)]])
    assert store.apply(NOW, [[Assign(("i",), later)]]) == [[1]]
    assert store.voted("i") == Voted(later)
    assert store.apply(NOW, [[Vote("i", THREE, (6, 9), "taken a", LATER)]]) == [[0]]
    assert store.apply(NOW, [[Vote("i", later, (1, 9), None, LATER)]]) == [[1]]
    assert store.apply(NOW, [[Put(message)]]) == [[0]]  # an older copy takes nothing back
    assert store.voted("i").voters == later
    whole, (newest, _) = ((0, 2**63 - 1),), store.newest()
    stale = store.voted_otherwise("1,2,3", whole, 0, newest, 9)
    assert [entry.message.id for entry in stale] == ["i"]
    assert store.voted_otherwise("4,5", whole, 0, newest, 9) == []
    assert store.voted_otherwise("1,2,3", whole, newest, newest, 9) == []
    assert store.voted_otherwise("1,2,3", ((0, 0),), 0, newest, 9) == []
    store.close()
