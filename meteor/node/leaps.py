"""Leaps: the peers 1, 2, 4, 8, ... further on, for samples in which each peer is as likely.

A random place of the ring finds peers by the width of their arcs, and the busiest often have the
narrowest. Leaps count peers, not identifiers (as the pointers of Chord# do): the one twice as far
on is the leap of a leap. A walk that takes or leaves each of them by the toss of a coin ends at any
peer of the ring about equally often.
"""

from __future__ import annotations

import logging
from random import Random

import trio

from meteor.config import Config
from meteor.errors import InputError, MeteorError
from meteor.limits import LEAPS_MAX
from meteor.node.errands import read_peer
from meteor.node.links import Links
from meteor.node.overlay import Overlay
from meteor.node.overlay_wire import peer_wire
from meteor.ring.questions import Peer, between
from meteor.transport.frames import Value

log = logging.getLogger("meteor.ring")

ROUNDS = 2
"""Rounds of stabilising between two questions: samples need no more than a rough idea."""


class Leaps:
    """A peer's leaps, one of them looked at again at a time."""

    def __init__(self, overlay: Overlay, links: Links, config: Config) -> None:
        self._overlay, self._links, self._config = overlay, links, config
        self._peers: list[Peer] = []

    def answer(self) -> Value:
        """Return the leaps in their wire form; the first is the successor."""
        successor = self._overlay.successor
        peers = [] if successor is None else [successor, *self._peers[1:]]
        return [peer_wire(peer) for peer in peers]

    async def run(self) -> None:
        """Keep the leaps fresh until cancelled."""
        level = 0
        while True:
            await trio.sleep(self._config.stabilise_seconds * ROUNDS)
            level = await self._refresh(level)

    async def _refresh(self, level: int) -> int:
        """Look one leap up, and return which one is next; past the last it begins again."""
        found = await self._leap(level)
        if found is None:
            del self._peers[level:]
            return 0
        self._peers[level:] = [found, *self._peers[level + 1 :]]
        return (level + 1) % LEAPS_MAX

    async def _leap(self, level: int) -> Peer | None:
        """Return the peer 2**level on; None when that is once round the ring or more."""
        if level == 0:
            return self._overlay.successor
        before = self._peers[level - 1]
        try:
            theirs = await leaps_of(self._links, self._config, before.address)
        except MeteorError as error:
            log.debug("%s does not say its leaps: %s", before.address, error)
            return None
        if len(theirs) < level or not between(before.id, theirs[level - 1].id, self._overlay.me.id):
            return None
        return theirs[level - 1]


async def leaps_of(links: Links, config: Config, address: str) -> list[Peer]:
    """Ask a peer for its leaps."""
    match await links.request(address, "leaps", None, config.request_seconds):
        case list() as peers if len(peers) <= LEAPS_MAX:
            return [read_peer(peer) for peer in peers]
        case _:
            raise InputError("what came are no leaps")


async def two_peers(links: Links, config: Config, start: str, random: Random) -> list[str]:
    """Return the addresses of a peer, any as likely as the others, and of its successor."""
    address, leaps = start, await leaps_of(links, config, start)
    for level in reversed(range(len(leaps))):
        if level < len(leaps) and random.random() < 0.5:
            address = leaps[level].address
            leaps = await leaps_of(links, config, address)
    return [address, *(peer.address for peer in leaps[:1])]
