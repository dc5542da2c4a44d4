"""Ballots and votes on the wire."""

from __future__ import annotations

from arms.ballots import Ballot, Voted
from arms.limits import ROUNDS_MAX, TIME_MS_MAX
from arms.message import Voters
from arms.writes import Vote
from meteor.errors import InputError
from meteor.ring.arcs import TOP
from meteor.transport.frames import Value


def vote_wire(vote: Vote) -> Value:
    """Return the wire form of a question to a voter."""
    return [vote.id, vote.voters.to_wire(), vote.ballot, vote.value, vote.expires_ms]


def read_vote(wire: Value) -> Vote:
    """Read a question to a voter."""
    match wire:
        case [str() as id_, voters, ballot, str() | None as value, int() as expires_ms] if (
            0 <= expires_ms <= TIME_MS_MAX
        ):
            return Vote(id_, Voters.from_wire(voters), _read_ballot(ballot), value, expires_ms)
        case _:
            raise InputError("what came is no ballot")


def voted_wire(voted: Voted) -> Value:
    """Return the wire form of a voter's answer."""
    return [
        voted.voters.to_wire(),
        voted.promised,
        voted.accepted,
        voted.value,
        voted.taker,
        voted.granted,
    ]


def read_voted(wire: Value) -> Voted:
    """Read a voter's answer."""
    match wire:
        case [
            voters,
            promised_,
            accepted_,
            str() as value,
            str() | None as taker,
            bool() as granted,
        ]:
            return Voted(
                Voters.from_wire(voters),
                _read_ballot(promised_),
                _read_ballot(accepted_),
                value,
                taker,
                granted,
            )
        case _:
            raise InputError("what came is no vote")


def _read_ballot(wire: Value) -> Ballot:
    match wire:
        case [int() as round_, int() as leader] if 0 <= round_ <= ROUNDS_MAX and 0 <= leader <= TOP:
            return round_, leader
        case _:
            raise InputError("what came is no ballot")
