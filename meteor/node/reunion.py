"""Reunion: finds peers that were lost, or that form a ring of their own, and has the rings meet.

A network that falls into parts leaves a ring in each. Chord alone never joins them again: nobody in
one knows of the other. So every peer now and then tries one of those it has lost, and one of those
it was configured to join; a peer that is alone also those it knew in an earlier life. When such
a peer answers, and is not where this ring would have it, the two rings meet at its place
(`Chord.meet`), and close up from there. The arcs that two peers then answer for are handed over by
the one that the other lies in (`meteor.node.handover`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random

import trio

from meteor.config import Config
from meteor.errors import MeteorError
from meteor.node.overlay import Overlay
from meteor.node.replicas import Replicas
from meteor.ring.doubts import UNKNOWN
from meteor.ring.questions import Neighbours, Peer

log = logging.getLogger("meteor.ring")

REUNION_ROUNDS = 6
"""Rounds of stabilising between two tries: a lost peer costs a connection each, and a ring that
meets another needs some rounds to close up."""


class Reunion:
    """Looks for lost peers and other rings."""

    def __init__(
        self,
        overlay: Overlay,
        replicas: Replicas,
        config: Config,
        random: Random,
        known: Callable[[], Sequence[str]],
    ) -> None:
        self._overlay, self._replicas = overlay, replicas
        self._config, self._random = config, random
        self._known = known
        """Returns the addresses of peers that this one knew in an earlier life."""
        self._turn = 0

    async def run(self) -> None:
        """Try one lost peer and one configured address in each round, until cancelled."""
        while True:
            pause = self._config.stabilise_seconds * REUNION_ROUNDS
            await trio.sleep(pause * self._random.uniform(0.8, 1.2))
            if self._overlay.leaving or self._overlay.low is None:
                continue
            self._overlay.lost.expire(trio.current_time())
            self._turn += 1
            try:
                await self._try_lost()
                await self._try_configured()
            except MeteorError as error:
                log.warning("could not look for other rings: %s", error)

    async def _try_lost(self) -> None:
        lost = [peer for peer in self._overlay.lost.peers if peer.address != UNKNOWN]
        if not lost:
            return
        peer = lost[self._turn % len(lost)]
        around = await self._overlay.ring_at(peer.address)
        if around is None:
            return
        # Somebody else is there now: the lost one is gone for good. But those that have the copies
        # may know of posts that it had accepted, and that this one does not have yet.
        if around.peer != peer and self._replicas.settled:
            self._overlay.lost.gone(peer)
        await self._meet(around)

    async def _try_configured(self) -> None:
        addresses = [a for a in self._config.join if a != self._overlay.me.address]
        if self._overlay.alone:
            known = (a for a in self._known() if a != self._overlay.me.address)
            addresses = list(dict.fromkeys((*addresses, *known)))
        if not addresses:
            return
        around = await self._overlay.ring_at(addresses[self._turn % len(addresses)])
        if around is not None:
            await self._meet(around)

    async def _meet(self, around: Neighbours) -> None:
        """Have a peer that answered meet this ring, unless it is in its place already."""
        peer = around.peer
        if peer == self._overlay.me:
            return
        before = await self._overlay.lookup(peer.id)
        if before is None:
            return
        if before.successors[:1] == (peer,) and self._is_neighbour(before.peer, around):
            self._overlay.lost.back(peer, trio.current_time())
            return
        log.info("found another ring at %s: joining them", peer.address)
        await self._overlay.send_to_meet(before.peer, peer)

    @staticmethod
    def _is_neighbour(before: Peer, around: Neighbours) -> bool:
        """Say whether the peer agrees on who is before it: else it may be of another ring still."""
        return around.predecessor == before
