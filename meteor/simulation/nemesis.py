"""The nemesis makes things go wrong, one after the other, within what the ring promises to bear.

A post is acknowledged by two of three copies. So of peers that die alone, the next may die only
when the copies have been made again, or the first is back with its disk. All may die at once, since
all come back. The same holds for peers that leave in good order, and for the network in two parts:
the next fault comes when the ring is whole again. That it becomes whole is itself checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random

import trio

from meteor.simulation.checks import Violation
from meteor.simulation.faults import Rates
from meteor.simulation.world import Peer, World

QUIET_SECONDS = (1.0, 8.0)
"""The time between two faults."""

GLITCH_SECONDS = (0.5, 6.0)
"""How long links and disks are bad: up to thrice the time after which a peer counts as dead."""

CUT_SECONDS = (15.0, 60.0)
"""How long the network is in two parts, when it is for long: both have become rings by then."""

DOWN_SECONDS = (0.0, 25.0)
"""How long a peer stays dead: from at once to long after others have taken over."""

WHOLE_SECONDS_MAX = 240.0
"""Until then a ring must have healed."""

PEERS_MIN = 5
"""Fewer are not left by peers that leave: the ring could not make all copies."""


class Nemesis:
    """What goes wrong in one simulation."""

    def __init__(
        self, world: World, faults: Sequence[str], clients: Sequence[str], seed: int
    ) -> None:
        self.calm = True
        """Nothing but single deaths, joins and leaves has happened since the ring was whole."""
        self._world, self._clients = world, clients
        self._random = Random(f"nemesis {seed}")
        every: dict[str, Callable[[], Awaitable[None]]] = {
            "loss": lambda: self._bad_frames(Rates(loss=0.03)),
            "duplication": lambda: self._bad_frames(Rates(duplication=0.1)),
            "reordering": lambda: self._bad_frames(Rates(reordering=0.3)),
            "reset": self._reset,
            "clog": self._clog,
            "partition": self._partition,
            "asymmetric": self._asymmetric,
            "slow-disk": self._slow_disk,
            "crash": self._crash,
            "replace": self._replace,
            "power": self._power,
            "churn": self._churn,
        }
        self._faults = [(name, every[name]) for name in faults if name in every]

    async def run(self) -> None:
        """Make something go wrong every now and then, until cancelled."""
        while self._faults:
            await trio.sleep(self._draw(QUIET_SECONDS))
            name, fault = self._random.choice(self._faults)
            self._world.history.note(name)
            self.calm = name in ("crash", "replace", "churn", "slow-disk")
            await fault()
            await self.whole()
            self.calm = True

    async def end(self) -> None:
        """Put everything right that was made to go wrong, and wait until the ring is whole."""
        self.calm = False
        self._world.network.heal()
        self._world.mischief.rates = Rates()
        for peer in self._world.peers.values():
            peer.disk.slow_seconds = 0.0
            if peer.ended.is_set() and not peer.gone:
                self._world.start(peer)
        await self.whole()
        await self._wait(lambda: self._world.doubts(), "doubts end when all are back")

    async def whole(self) -> None:
        """Wait until the ring has healed and its copies are made."""
        world = self._world
        await self._wait(lambda: world.down() or world.unsettled(), "the ring heals")
        await self._wait(lambda: world.unsettled() or world.uncopied(), "copies are made again")

    async def _wait(self, problems: Callable[[], list[str]], checker: str) -> None:
        with trio.move_on_after(WHOLE_SECONDS_MAX) as waited:
            while problems():  # noqa: ASYNC110 - what ends it is spread over the peers
                await trio.sleep(0.5)
        if waited.cancelled_caught and (found := problems()):
            words = f"after {WHOLE_SECONDS_MAX:.0f} s: "
            raise Violation(checker, words + "\n".join(found[:10]))

    def _draw(self, bounds: tuple[float, float]) -> float:
        return round(self._random.uniform(*bounds), 3)

    def _some(self, count: int) -> list[Peer]:
        return self._random.sample(self._world.running, count)

    # -- the network -----------------------------------------------------------------------------

    async def _bad_frames(self, rates: Rates) -> None:
        self._world.mischief.rates = rates
        await trio.sleep(self._draw(GLITCH_SECONDS))
        self._world.mischief.rates = Rates()

    async def _reset(self) -> None:
        a, b = self._some(2)
        self._world.network.reset(a.address, b.address)

    async def _clog(self) -> None:
        a, b = self._some(2)
        self._world.network.cut(a.address, b.address)
        await trio.sleep(self._draw(GLITCH_SECONDS))
        self._world.network.heal(a.address, b.address)

    async def _asymmetric(self) -> None:
        deaf, *unheard = self._some(self._random.randint(2, len(self._world.running)))
        for peer in unheard:
            self._world.network.cut_one_way(peer.address, deaf.address)
        await trio.sleep(self._draw(GLITCH_SECONDS))
        self._world.network.heal()

    async def _partition(self) -> None:
        hosts = [peer.address for peer in self._world.running]
        hosts += [f"{name}:1" for name in self._clients]
        self._random.shuffle(hosts)
        at = self._random.randint(1, len(hosts) - 1)
        for a in hosts[:at]:
            for b in hosts[at:]:
                self._world.network.cut(a, b)
        long = self._random.random() < 0.7
        await trio.sleep(self._draw(CUT_SECONDS if long else GLITCH_SECONDS))
        self._world.network.heal()

    # -- disks and peers -------------------------------------------------------------------------

    async def _slow_disk(self) -> None:
        (peer,) = self._some(1)
        peer.disk.slow_seconds = 0.2
        await trio.sleep(self._draw(GLITCH_SECONDS))
        peer.disk.slow_seconds = 0.0

    async def _crash(self) -> None:
        (peer,) = self._some(1)
        peer.disk.slow_seconds = self._random.choice((0.0, 0.05))  # so that it may be half-way
        await trio.sleep(0.5)
        await self._world.crash(peer)
        peer.disk.slow_seconds = 0.0
        await trio.sleep(self._draw(DOWN_SECONDS))
        self._world.start(peer)

    async def _replace(self) -> None:
        (peer,) = self._some(1)
        await self._world.crash(peer)
        peer.disk.wipe()
        await trio.sleep(self._draw(DOWN_SECONDS))
        self._world.start(peer)

    async def _power(self) -> None:
        peers = self._world.running
        for peer in peers:
            peer.disk.slow_seconds = 0.05
        await trio.sleep(0.5)
        await self._world.crash(*peers)
        for peer in self._random.sample(peers, len(peers)):
            peer.disk.slow_seconds = 0.0
            await trio.sleep(self._draw((0.0, 1.0)))
            self._world.start(peer)

    async def _churn(self) -> None:
        if self._random.random() < 0.5 and len(self._world.running) > PEERS_MIN:
            (peer,) = self._some(1)
            await self._world.leave(peer)
            peer.gone = True
        else:
            peer = self._world.add(f"p{len(self._world.peers)}")
            self._world.start(peer)
