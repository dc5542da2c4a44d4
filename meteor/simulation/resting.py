"""Rings at rest, where every peer knows what the overlay converges to, and errands through them.

A table is put together from the whole ring at once instead of by joining and stabilising; what is
in it is what `Chord.known` has when everybody has looked up all of its fingers. What happens to an
errand at each peer is decided by the code that a live peer routes with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from meteor.limits import HOPS_MAX, SUCCESSORS_KEPT
from meteor.ring.arcs import (
    RING_SIZE,
    WHOLE,
    Members,
    Spans,
    arc,
    intersect,
    meeting,
    subtract,
    union,
)
from meteor.ring.fingers import Known, offsets
from meteor.ring.questions import Peer, between
from meteor.ring.table import split


class RestingRing:
    """Peers at rest, each knowing its neighbours and its fingers."""

    def __init__(
        self,
        places: Iterable[int],
        successors: int = SUCCESSORS_KEPT,
        fingers_per_octave: int = 1,
    ) -> None:
        self.ids: list[int] = sorted(set(places))
        self._successors = successors
        self._offsets = offsets(fingers_per_octave)
        self._tables: dict[int, Sequence[Known]] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def owner(self, identifier: int) -> int:
        """Return the peer that is responsible for an identifier: the first at or after it."""
        return self.ids[bisect_left(self.ids, identifier) % len(self.ids)]

    def before(self, peer: int) -> int:
        """Return the peer before one."""
        return self.ids[bisect_left(self.ids, peer) - 1]

    def spans(self, peer: int) -> Spans:
        """Return what a peer is responsible for."""
        return arc(self.before(peer), peer)

    def owners(self, members: Members) -> set[int]:
        """Return everybody who is responsible for a member, by going from one to the next."""
        found: set[int] = set()
        at = members.next(0)
        while at is not None:
            owner = self.owner(at)
            found.add(owner)
            if owner < at:  # the lowest peer, whose arc runs over the top of the ring
                break
            at = members.next(owner + 1)
        return found

    def known(self, me: int) -> Sequence[Known]:
        """Return whom a peer knows, clockwise."""
        if me not in self._tables:
            self._tables[me] = self._table(me)
        return self._tables[me]

    def hops(self, me: int, identifier: int) -> int:
        """Count whom a peer asks, one after the other, until one knows the owner."""
        asked = 0
        while True:
            known = self.known(me)
            if not known:
                return asked
            successor = known[0].peer.id
            if identifier == successor or between(me, identifier, successor):
                return asked
            me = [k.peer.id for k in known if between(me, k.peer.id, identifier)][-1]
            asked += 1

    def targets(self, me: int) -> list[int]:
        """Return what a peer looks up for all of its fingers: one target in each arc."""
        successor = (self.known(me)[0].peer.id - me) % RING_SIZE if self.known(me) else RING_SIZE
        far = [(me + offset) % RING_SIZE for offset in self._offsets if offset > successor]
        return list({self.owner(target): target for target in far}.values())

    def _table(self, me: int) -> list[Known]:
        place = bisect_left(self.ids, me)
        near = [self.ids[(place + i) % len(self.ids)] for i in range(1, self._successors + 1)]
        reach = (near[0] - me) % RING_SIZE  # fingers within it are the successor itself
        far = {self.owner((me + o) % RING_SIZE) for o in self._offsets if o > reach}
        found = {i: Known(_peer(i), self.before(i)) for i in {*near, *far} - {me}}
        if len(self.ids) > 1:
            before = self.before(me)
            found.setdefault(before, Known(_peer(before), None))  # where it begins is not kept
        return [found[i] for i in sorted(found, key=lambda i: (i - me) % RING_SIZE)]


@dataclass
class Walk:
    """An errand for a region, followed through the ring from the peer where it begins."""

    ring: RestingRing
    members: Members
    origin: int
    asked: Counter[int] = field(default_factory=Counter)
    """How often each peer was sent the errand."""
    spoken: Counter[int] = field(default_factory=Counter)
    """How often each peer spoke for a part of the region that is its own."""
    covered: Spans = ()
    """What was spoken for."""
    depth: int = 0

    def __post_init__(self) -> None:
        covered: list[tuple[int, int]] = []
        waiting: list[tuple[int, Spans, int | None, int]]
        waiting = [(self.origin, meeting(self.members, WHOLE), None, 0)]
        while waiting:
            me, spans, sender, depth = waiting.pop()
            assert depth <= HOPS_MAX, "an errand that goes round and round"
            self.depth = max(self.depth, depth)
            mine = self.ring.spans(me)
            if own := meeting(self.members, intersect(spans, mine)):
                self.spoken[me] += 1
                covered += own
            rest = subtract(spans, mine)
            if rest:
                shares = split(self.members, rest, me, self.ring.known(me), sender)
                self.asked.update(peer.id for peer in shares)
                waiting += [(peer.id, part, me, depth + 1) for peer, part in shares.items()]
        self.covered = union(covered)

    @property
    def messages(self) -> int:
        """Requests from peer to peer."""
        return self.asked.total()

    @property
    def contacted(self) -> int:
        """Peers that had to do with it, with the one where it began."""
        return len({self.origin, *self.asked})

    @property
    def asked_twice(self) -> int:
        """Peers that were sent it although they had it."""
        return sum(times > 1 - (peer == self.origin) for peer, times in self.asked.items())


def _peer(identifier: int) -> Peer:
    return Peer(identifier, f"host:{identifier % 60_000}")
