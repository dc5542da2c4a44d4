"""Ballots: how several stores agree, once and for all, on who takes an item.

Single-decree Paxos (L. Lamport, "The Part-Time Parliament", 1998) for each item. The voters are the
peers that the item was written to. Whoever leads a ballot first has a majority promise to take part
in no earlier ballot and say what they have accepted; then it has a majority accept one value: the
one that was accepted in the latest ballot, if there was any, else the one it wants. What a majority
has accepted is decided: any later ballot finds it, and can only decide the same again.

A decision is one of two things: a taker has the item, or other voters replace these, in the next
term (peers come and go; so must the voters). Then nothing is decided in the old term any more.

Pure: the votes come as values. The stores keep them (`arms.store`), peers ask for them
(`meteor.node.voting`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arms.message import Voters

Ballot = tuple[int, int]
"""A round, and the place of the peer that leads it: no two peers lead the same ballot."""

NO_BALLOT: Ballot = (0, 0)


@dataclass(frozen=True, slots=True)
class Voted:
    """What one store has voted on an item, and what it knows has been decided."""

    voters: Voters
    promised: Ballot = NO_BALLOT
    accepted: Ballot = NO_BALLOT
    value: str = ""
    taker: str | None = None
    """Who has it: decided. Empty: it was deleted."""
    granted: bool = False
    """Whether it voted as it was just asked to."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The item has gone to a taker; empty: it was deleted."""

    taker: str


@dataclass(frozen=True, slots=True)
class Moved:
    """Others vote on the item now."""

    voters: Voters


@dataclass(frozen=True, slots=True)
class Propose:
    """A majority has promised: this value may be put to the vote."""

    value: str


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Another peer leads a later ballot; try again with one beyond it."""

    round: int


@dataclass(frozen=True, slots=True)
class Unreached:
    """Too few voters answered for a majority."""

    reached: int
    voters: int


def taken_by(taker: str) -> str:
    """Return the value that gives an item to a taker."""
    return f"taken {taker}"


def moved_to(voters: Voters) -> str:
    """Return the value that replaces the voters."""
    return f"moved {voters}"


def outcome(value: str, term: int) -> Decided | Moved:
    """Return what a value means that was decided in a term."""
    kind, _, rest = value.partition(" ")
    return Decided(rest) if kind == "taken" else Moved(Voters.parse(term + 1, rest))


def promised(
    voters: Voters, ballot: Ballot, wanted: str, votes: Sequence[Voted]
) -> Decided | Moved | Propose | Overtaken | Unreached:
    """Say what follows from the promises of those voters that answered."""
    if (known := _known(voters, votes)) is not None:
        return known
    given = [vote for vote in votes if vote.granted and vote.promised == ballot]
    if len(given) < majority(voters):
        return _too_few(voters, votes)
    latest = max(given, key=lambda vote: vote.accepted)
    return Propose(wanted if latest.accepted == NO_BALLOT else latest.value)


def accepted(
    voters: Voters, ballot: Ballot, value: str, votes: Sequence[Voted]
) -> Decided | Moved | Overtaken | Unreached:
    """Say what follows from the votes for a value of those voters that answered."""
    if sum(vote.granted and vote.accepted == ballot for vote in votes) >= majority(voters):
        return outcome(value, voters.term)
    return _known(voters, votes) or _too_few(voters, votes)


def majority(voters: Voters) -> int:
    """Return how many are more than half of the voters."""
    return len(voters.peers) // 2 + 1


def _known(voters: Voters, votes: Sequence[Voted]) -> Decided | Moved | None:
    """Return what somebody knows has been decided already."""
    for vote in votes:
        if vote.taker is not None:
            return Decided(vote.taker)
    latest = max((vote.voters for vote in votes), default=voters)
    return Moved(latest) if latest.term > voters.term else None


def _too_few(voters: Voters, votes: Sequence[Voted]) -> Overtaken | Unreached:
    if len(votes) < majority(voters):
        return Unreached(len(votes), len(voters.peers))
    return Overtaken(max(vote.promised[0] for vote in votes))
