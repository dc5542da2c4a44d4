"""The words of the ring: peers, what they ask each other, and what they answer."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar


def between(a: int, x: int, b: int) -> bool:
    """Say whether x lies strictly between a and b, clockwise; if a == b: whether it is not a."""
    return a < x < b if a < b else (x > a or x < b)


@dataclass(frozen=True, slots=True)
class Peer:
    """A place on the ring and the address of who has it."""

    id: int
    address: str


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What a peer answers about itself."""

    peer: Peer
    predecessor: Peer | None
    successors: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a lookup: the neighbours of the predecessor of the identifier.

    Its first successor is the owner, or the peer itself in a ring of one.
    """

    neighbours: Neighbours


@dataclass(frozen=True, slots=True)
class Forward:
    """A hop of a lookup: peers nearer to the identifier and before it, the nearest first."""

    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class AskNeighbours:
    """Who are you, and your neighbours? Answered with `Neighbours`."""


@dataclass(frozen=True, slots=True)
class AskStep:
    """Who precedes this identifier? Answered with a `Step`."""

    identifier: int


@dataclass(frozen=True, slots=True)
class Notify:
    """`peer` thinks that you are its successor. Answered with True."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class Meet:
    """`peer` may belong right after you, or after your successor. Answered with True."""

    peer: Peer


Step = Found | Forward
Question = AskNeighbours | AskStep | Notify | Meet
Answer = Neighbours | Found | Forward | bool


@dataclass(frozen=True, slots=True)
class Ask:
    """A question that an operation wants put to another peer."""

    peer: Peer
    question: Question


T = TypeVar("T")
Operation = Generator[Ask, Answer | None, T]
