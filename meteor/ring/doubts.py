"""Peers that went without a word, and what was taken over from them.

A peer that does not answer may be dead, or cut off with others and going on as a ring of its own.
Nobody can tell. So what its successor takes over is in doubt: the lost peer may have accepted posts
that nobody here knows of. Of two parts of a ring, exactly one has no doubt about an identifier: the
one with the peer that was responsible for it before the cut. Doubt about a part ends when the lost
peer, or whoever got the part from it, hands it over; and when it has been lost for so long that
nobody waits for it any more.

Pure bookkeeping: the time is passed in, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from meteor.limits import LOST_PEERS_MAX, LOST_SECONDS, RETURN_SECONDS, Bounds
from meteor.ring.arcs import RING_SIZE, Spans, arc, contains, intersect, subtract, union
from meteor.ring.questions import Peer

Doubts = Mapping[Peer, Spans]


class Lost:
    """The lost peers that one peer knows of, and its doubts."""

    def __init__(self) -> None:
        self._since: dict[Peer, float] = {}
        self._ended: dict[int, None] = {}  # places of lost peers that will not come back
        self._doubts: dict[Peer, Spans] = {}
        self._doubted: dict[Peer, float] = {}  # since when
        self._returned = -RETURN_SECONDS  # when the last one came back

    @property
    def peers(self) -> tuple[Peer, ...]:
        """Those that went without a word, the first one first."""
        return tuple(self._since)

    def add(self, peer: Peer, now: float) -> None:
        """Hear that a peer does not answer."""
        if peer not in self._since and len(self._since) >= LOST_PEERS_MAX:
            del self._since[next(iter(self._since))]  # what is in doubt because of it stays so
        self._since.setdefault(peer, now)
        self._ended.pop(peer.id, None)

    def back(self, peer: Peer, now: float) -> None:
        """Hear that a peer is in the ring again; it will be handed what is its own."""
        if self._since.pop(peer, None) is not None:
            self._returned = now

    def gone(self, peer: Peer) -> None:
        """Hear that a peer will not come back, so that nothing is to be expected of it.

        That may be known before anybody has taken its arc over: then there is no doubt about it.
        """
        if self._since.pop(peer, None) is not None:
            self._ended[peer.id] = None
            if len(self._ended) > LOST_PEERS_MAX:
                del self._ended[next(iter(self._ended))]
        self._doubts.pop(peer, None)
        self._doubted.pop(peer, None)

    def forget(self, address: str) -> bool:
        """Wait no longer for whoever was at an address; says whether anybody was waited for."""
        found = [peer for peer in {*self._since, *self._doubts} if peer.address == address]
        for peer in found:
            self.gone(peer)
        return bool(found)

    def expire(self, now: float) -> None:
        """Wait no longer for those that were lost long ago."""
        for dates in (self._since, self._doubted):
            for peer in [p for p, since in dates.items() if since + LOST_SECONDS <= now]:
                self.gone(peer)

    # -- doubts ----------------------------------------------------------------------------------

    def take_over(self, after: int, upto: int, now: float) -> None:
        """Take over the arc (after, upto] of lost peers: each had the part that ends at it.

        What lies behind the last one of them was that of a peer nobody here has known.
        """
        taken, begin = arc(after, upto), after
        lost: dict[int, Peer | None] = dict.fromkeys(self._ended)
        lost |= {peer.id: peer for peer in self._since}
        places = [place for place in lost if contains(taken, place)]
        for place in sorted(places, key=lambda place: (place - begin - 1) % RING_SIZE):
            if (peer := lost[place]) is not None:
                self._doubt(peer, arc(after, place), now)
            after = place
        if after != upto:
            self._doubt(Peer(upto, UNKNOWN), arc(after, upto), now)

    def doubts(self, spans: Spans) -> dict[Peer, Spans]:
        """Return the doubts about spans, by the peer that is waited for."""
        found = {peer: intersect(doubted, spans) for peer, doubted in self._doubts.items()}
        return {peer: doubted for peer, doubted in found.items() if doubted}

    def missing(self, now: float) -> bool:
        """Say whether somebody is missing, or came back only a while ago.

        Then a part of the ring may have gone, or go on, by itself.
        """
        return (
            any(peer.address != UNKNOWN for peer in self._since)
            or now < self._returned + RETURN_SECONDS
        )

    def may_be_elsewhere(self, identifier: int, now: float) -> bool:
        """Say whether a post for an identifier may have been accepted by others too, unknown here.

        A lost peer may be responsible for it; or for me, and go on with what is mine in its part.
        One that is back has handed that over only after a while.
        """
        doubted = any(contains(spans, identifier) for spans in self._doubts.values())
        return doubted or self.missing(now)

    def handed(self, mine: Spans, taken: Spans, giver: Doubts, now: float) -> None:
        """Take spans in from a peer with doubts of its own.

        `mine` is what I had before, in this life or the last. About what both of us had, there is
        doubt only if both have it. About what is new to me there is the giver's.
        """
        doubted = union(span for spans in giver.values() for span in spans)
        settled = subtract(intersect(taken, mine), doubted)
        self._keep({peer: subtract(spans, settled) for peer, spans in self._doubts.items()})
        for peer, spans in giver.items():
            if fresh := subtract(intersect(spans, taken), mine):
                self.add(peer, now)  # it is to be looked for from here too
                self._doubt(peer, fresh, now)

    def hold(self, spans: Spans) -> None:
        """Have doubts about nothing but these spans: the rest is somebody else's now."""
        self._keep({peer: intersect(doubted, spans) for peer, doubted in self._doubts.items()})

    def bounds(self) -> Bounds:
        """Say how many are looked for and waited for."""
        return {
            "lost peers": (max(len(self._since), len(self._ended)), LOST_PEERS_MAX),
            "peers that are waited for": (len(self._doubts), LOST_PEERS_MAX),
        }

    def _doubt(self, peer: Peer, spans: Spans, now: float) -> None:
        if peer not in self._doubts and len(self._doubts) >= LOST_PEERS_MAX - 1:
            peer = SOMEBODY  # too many to be told apart
        self._doubts[peer] = union((*self._doubts.get(peer, ()), *spans))
        self._doubted.setdefault(peer, now)

    def _keep(self, doubts: Doubts) -> None:
        self._doubts = {peer: spans for peer, spans in doubts.items() if spans}
        self._doubted = {peer: self._doubted[peer] for peer in self._doubts}


UNKNOWN = "unknown"
"""Stands for the address of a peer that nobody remembers."""

SOMEBODY = Peer(0, UNKNOWN)
"""Stands for all that are waited for beyond the number that is."""


def addresses(doubts: Iterable[Peer]) -> list[str]:
    """Return whom one waits for, each once, in a steady order."""
    return sorted({peer.address for peer in doubts})
