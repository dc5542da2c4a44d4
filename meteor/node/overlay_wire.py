"""What peers say about the ring, in the form it has on the wire."""

from __future__ import annotations

from meteor.errors import InputError
from meteor.limits import LOST_PEERS_MAX
from meteor.node.errands import read_peer, read_spans
from meteor.ring.arcs import Spans
from meteor.ring.doubts import Doubts
from meteor.ring.questions import Forward, Found, Neighbours, Peer, Step
from meteor.transport.frames import Value

NAMES_MAX = 64
"""Peers that one answer may name: twice the longest successor list."""


def peer_wire(peer: Peer) -> list[int | str]:
    """Return a peer in its wire form."""
    return [peer.id, peer.address]


def neighbours_wire(neighbours: Neighbours) -> Value:
    """Return a peer between its neighbours in its wire form."""
    predecessor = neighbours.predecessor
    return [
        peer_wire(neighbours.peer),
        None if predecessor is None else peer_wire(predecessor),
        [peer_wire(peer) for peer in neighbours.successors],
    ]


def read_neighbours(wire: Value) -> Neighbours:
    """Read a peer between its neighbours from the wire."""
    match wire:
        case [peer, predecessor, list() as successors] if len(successors) <= NAMES_MAX:
            return Neighbours(
                read_peer(peer),
                None if predecessor is None else read_peer(predecessor),
                tuple(read_peer(entry) for entry in successors),
            )
        case _:
            raise InputError("what came is not a peer's neighbours")


def step_wire(step: Step) -> Value:
    """Return one hop of a lookup in its wire form."""
    if isinstance(step, Found):
        return ["found", neighbours_wire(step.neighbours)]
    return ["forward", [peer_wire(peer) for peer in step.peers]]


def read_step(wire: Value) -> Step:
    """Read one hop of a lookup from the wire."""
    match wire:
        case ["found", neighbours]:
            return Found(read_neighbours(neighbours))
        case ["forward", list() as peers] if len(peers) <= NAMES_MAX:
            return Forward(tuple(read_peer(peer) for peer in peers))
        case _:
            raise InputError("what came is not a step of a lookup")


def doubts_wire(doubts: Doubts) -> Value:
    """Return doubts in their wire form."""
    return [[peer_wire(peer), spans] for peer, spans in doubts.items()]


def read_doubts(wire: list[Value]) -> dict[Peer, Spans]:
    """Read doubts from the wire."""
    doubts: dict[Peer, Spans] = {}
    for entry in wire[:LOST_PEERS_MAX]:
        match entry:
            case [peer, list() as spans]:
                doubts[read_peer(peer)] = read_spans(spans)
            case _:
                raise InputError("what came are no doubts about a part of the ring")
    return doubts
