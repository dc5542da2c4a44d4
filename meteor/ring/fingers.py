"""Fingers: the far peers that one peer remembers, so that any place is O(log N) hops away.

A finger holds a peer and that peer's predecessor: so one knows which arc the peer speaks for, and
sends it only what meets that arc.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meteor.ring.arcs import RING_SIZE

if TYPE_CHECKING:
    from meteor.ring.questions import Neighbours, Peer


@dataclass(frozen=True, slots=True)
class Known:
    """A peer, and where its arc begins (the id of its predecessor) as far as one has heard."""

    peer: Peer
    predecessor: int | None


class Fingers:
    """For each target, the first known peer at or after it; never more peers than targets.

    Places are kept as offsets clockwise from `me_id`, so that nothing wraps.
    """

    def __init__(self, me_id: int, per_octave: int = 1) -> None:
        self._me = me_id
        self._offsets = offsets(per_octave)
        self._entries: list[Known | None] = [None] * len(self._offsets)
        self._turn = len(self._offsets)
        self._known: tuple[Known, ...] | None = ()

    def learn(self, neighbours: Neighbours) -> None:
        """Take in what a peer said about itself just now; it replaces what it said before."""
        before = neighbours.predecessor
        fresh = Known(neighbours.peer, None if before is None else before.id)
        offset = self._offset(fresh.peer.id)
        # A peer that claims a target gets it, even from a nearer peer: that one may be dead.
        claimed = offset if fresh.predecessor is None else self._offset(fresh.predecessor)
        for i, (target, entry) in enumerate(zip(self._offsets, self._entries, strict=True)):
            held = RING_SIZE if entry is None else self._offset(entry.peer.id)
            if held == offset or (target <= offset and (offset < held or claimed < target)):
                self._entries[i] = fresh
        self._known = None

    def forget(self, peer: Peer) -> None:
        """Drop a peer that is dead or has left; the next peer known takes its targets."""
        following: Known | None = None
        for i in reversed(range(len(self._entries))):
            entry = self._entries[i]
            if entry is not None and entry.peer.id == peer.id:
                self._entries[i] = following
            else:
                following = entry
        self._known = None

    def next_target(self, successor: int) -> int | None:
        """Return the next identifier to look up, farthest first, then round and round.

        Targets in (me, successor] are skipped, since the successor serves them, and so are those
        in the arc of the finger that was looked up last. None: no target lies beyond the successor.
        """
        first = bisect_right(self._offsets, self._offset(successor))
        if first == len(self._offsets):
            return None
        last = self._entries[self._turn] if self._turn < len(self._entries) else None
        self._turn -= 1
        while self._turn >= first and last is not None and self._serves(last, self._turn):
            self._turn -= 1
        if self._turn < first:
            self._turn = len(self._offsets) - 1
        return (self._me + self._offsets[self._turn]) % RING_SIZE

    def _serves(self, entry: Known, place: int) -> bool:
        """Say whether a target, and not only what lies behind it, is in the arc of a peer."""
        begin, target = entry.predecessor, self._offsets[place]
        return begin is not None and self._offset(begin) < target <= self._offset(entry.peer.id)

    def known(self) -> tuple[Known, ...]:
        """Return the peers known, clockwise from me, each once; the same tuple until a change."""
        if self._known is None:
            unique = {entry.peer.id: entry for entry in self._entries if entry is not None}
            self._known = tuple(unique[i] for i in sorted(unique, key=self._offset))
        return self._known

    def _offset(self, identifier: int) -> int:
        return (identifier - self._me) % RING_SIZE


def offsets(per_octave: int) -> list[int]:
    """Return 2**(k + j/per_octave) for every octave k below the ring's size, rounded down."""
    precision = 52
    mantissas = [int(2 ** (precision + j / per_octave)) for j in range(per_octave)]
    octaves = range(RING_SIZE.bit_length() - 1)
    return sorted({mantissa << k >> precision for k in octaves for mantissa in mantissas})
