"""Content routing, the decision part: which known peer gets which part of a region.

The ring is cut at the known peers. Each gets the part from the beginning of its own arc up to the
beginning of the next known peer's arc, if the region has something there; it speaks for what it
owns and cuts the rest again. So every owner is reached once, in O(log N) steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from meteor.ring.arcs import RING_SIZE, Members, Spans, arc, intersect, meeting, subtract, union
from meteor.ring.fingers import Known
from meteor.ring.questions import Peer


def split(
    members: Members, spans: Spans, me: int, known: Sequence[Known], sender: int | None = None
) -> dict[Peer, Spans]:
    """Share `spans` out among the known peers, which come clockwise from `me`.

    Parts that hold no member of the region are given to nobody. `sender` is the peer that gave me
    the spans: what lies between it and me came by an outdated idea of where my arc begins. It goes
    to the peer right before me, which came in there; others may have the same idea, and send it
    here again.
    """
    behind = intersect(spans, arc(sender, me)) if sender is not None and known else ()
    ahead = subtract(spans, behind)
    shares: dict[Peer, Spans] = {}
    starts = _starts(me, known)
    for entry, start, end in zip(known, starts, [*starts[1:], me], strict=False):
        if start == end != me:
            continue  # nothing lies between them, where `arc` would see the whole ring
        part = meeting(members, intersect(arc(start, end), ahead))
        if part:
            shares[entry.peer] = part
    if part := meeting(members, behind):
        before = known[-1].peer
        shares[before] = union((*shares.get(before, ()), *part))
    return shares


def _starts(me: int, known: Sequence[Known]) -> list[int]:
    """Return the (exclusive) beginning of each known peer's part.

    It is the peer's own predecessor where that is known; else the peer itself, and what lies
    before it goes to the known peer before. An outdated predecessor, one that lies before the known
    peer before, is replaced by that one. The first peer also serves what lies between it and `me`.
    """
    starts: list[int] = []
    for i, entry in enumerate(known):
        if i == 0:
            starts.append(me)
            continue
        before = known[i - 1].peer.id
        start = entry.peer.id if entry.predecessor is None else entry.predecessor
        reach = (entry.peer.id - before) % RING_SIZE
        starts.append(start if (start - before) % RING_SIZE <= reach else before)
    return starts
