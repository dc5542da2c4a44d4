"""The nemesis makes things go wrong, some on top of each other, within what the ring promises.

A post is acknowledged by two of three copies. So of peers that die alone, the next may die only
when the copies have been made again, or the first is back with its disk. All may die at once, since
all come back. The same holds for peers that leave in good order, and for the network in two parts:
of these blows there is one at a time, and the next comes when the ring is whole again. That it
becomes whole is itself checked.

Glitches of links and disks come at any time: alone, on top of each other, during a blow, and while
the ring recovers from it. Only after a while they leave it alone to become whole.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
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

PESTER_SECONDS = (0.0, 10.0)
"""How long glitches still begin while the ring recovers from a blow."""

GLITCHES_MAX = 3
"""Glitches at the same time, at most; a seed draws its own bound."""

STORM_LATENCY_SECONDS = 0.3
"""What answers take at most while the network is slow: a tenth of what they are waited for."""

WHOLE_SECONDS_MAX = 240.0
"""Until then a ring must have healed."""

PEERS_MIN = 5
"""Fewer are not left by peers that leave: the ring could not make all copies."""

Fault = tuple[str, Callable[[], Awaitable[None]]]
Link = tuple[str, str]


class Nemesis:
    """What goes wrong in one simulation."""

    def __init__(
        self, world: World, faults: Sequence[str], clients: Sequence[str], seed: int
    ) -> None:
        self.calm = True
        """Nothing but single deaths, joins and leaves has happened since the ring was whole."""
        self._world, self._clients = world, clients
        self._random = Random(f"nemesis {seed}")
        self._glitching = 0
        self._pester_until = math.inf
        self._cuts: list[frozenset[Link]] = []
        self._rates: list[Rates] = []
        blows: dict[str, Callable[[], Awaitable[None]]] = {
            "partition": self._partition,
            "crash": self._crash,
            "replace": self._replace,
            "power": self._power,
            "churn": self._churn,
        }
        glitches: dict[str, Callable[[], Awaitable[None]]] = {
            "latency": self._storm,
            "loss": lambda: self._bad_frames(Rates(loss=0.03)),
            "duplication": lambda: self._bad_frames(Rates(duplication=0.1)),
            "reordering": lambda: self._bad_frames(Rates(reordering=0.3)),
            "reset": self._reset,
            "clog": self._clog,
            "asymmetric": self._asymmetric,
            "slow-disk": self._slow_disk,
        }
        self._blows: list[Fault] = [(name, blows[name]) for name in faults if name in blows]
        self._glitches: list[Fault] = [(n, glitches[n]) for n in faults if n in glitches]

    async def run(self) -> None:
        """Make things go wrong every now and then, until cancelled."""
        async with trio.open_nursery() as nursery:
            if self._blows:
                nursery.start_soon(self._strike)
            if self._glitches:
                least = 0 if self._blows else 1
                for _ in range(self._random.randint(least, GLITCHES_MAX)):
                    nursery.start_soon(self._pester)

    async def _strike(self) -> None:
        """Deal one blow after the other, each to a ring that is whole."""
        while True:
            await trio.sleep(self._draw(QUIET_SECONDS))
            name, blow = self._random.choice(self._blows)
            self._world.history.note(name)
            self.calm &= name in ("crash", "replace", "churn")
            await blow()
            self._pester_until = trio.current_time() + self._draw(PESTER_SECONDS)
            await self.whole()
            self._pester_until = math.inf
            self.calm = not self._glitching

    async def _pester(self) -> None:
        """Have one glitch after the other, whatever else there is."""
        while True:
            await trio.sleep(self._draw(QUIET_SECONDS))
            if trio.current_time() >= self._pester_until:
                continue
            name, glitch = self._random.choice(self._glitches)
            self._world.history.note(name)
            self.calm &= name == "slow-disk"
            self._glitching += 1
            await glitch()
            self._glitching -= 1

    async def end(self) -> None:
        """Start whoever is down, and wait until the ring is whole; all else has been put right."""
        self.calm = False
        for peer in self._world.peers.values():
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

    def _long_or_short(self, share_long: float) -> float:
        long = self._random.random() < share_long
        return self._draw(CUT_SECONDS if long else GLITCH_SECONDS)

    def _some(self, count: int) -> list[Peer]:
        """Choose peers that run; fewer when fewer do."""
        running = self._world.running
        return self._random.sample(running, min(count, len(running)))

    # -- glitches --------------------------------------------------------------------------------

    async def _storm(self) -> None:
        network = self._world.network
        least, most = network.latency_seconds
        if most >= STORM_LATENCY_SECONDS:
            return
        network.latency_seconds = (least, STORM_LATENCY_SECONDS)
        try:
            await trio.sleep(self._draw(GLITCH_SECONDS))
        finally:
            network.latency_seconds = (least, most)

    async def _bad_frames(self, rates: Rates) -> None:
        self._rates.append(rates)
        try:
            self._world.mischief.rates = sum(self._rates, Rates())
            await trio.sleep(self._draw(GLITCH_SECONDS))
        finally:
            self._rates.remove(rates)
            self._world.mischief.rates = sum(self._rates, Rates())

    async def _reset(self) -> None:
        if len(pair := self._some(2)) == 2:
            self._world.network.reset(pair[0].address, pair[1].address)

    async def _clog(self) -> None:
        clogged = [peer.address for peer in self._some(2)]
        with self._cut((a, b) for a in clogged for b in clogged):
            await trio.sleep(self._draw(GLITCH_SECONDS))

    async def _asymmetric(self) -> None:
        hosts = self._some(self._random.randint(2, len(self._world.peers)))
        with self._cut((peer.address, hosts[0].address) for peer in hosts[1:]):
            await trio.sleep(self._long_or_short(0.2))

    async def _slow_disk(self) -> None:
        with ExitStack() as slow:
            for peer in self._some(1):
                slow.enter_context(peer.disk.slow(0.2))
            await trio.sleep(self._draw(GLITCH_SECONDS))

    @contextmanager
    def _cut(self, links: Iterable[Link]) -> Iterator[None]:
        """Silence links; others that are silent for another reason stay so."""
        silent = frozenset(links)
        self._cuts.append(silent)
        try:
            self._world.network.sever(frozenset().union(*self._cuts))
            yield
        finally:
            self._cuts.remove(silent)
            self._world.network.sever(frozenset().union(*self._cuts))

    # -- blows -----------------------------------------------------------------------------------

    async def _partition(self) -> None:
        hosts = [peer.address for peer in self._world.running]
        hosts += [f"{name}:1" for name in self._clients]
        self._random.shuffle(hosts)
        at = self._random.randint(1, len(hosts) - 1)
        sides = [(a, b) for a in hosts[:at] for b in hosts[at:]]
        with self._cut([*sides, *((b, a) for a, b in sides)]):
            await trio.sleep(self._long_or_short(0.7))

    async def _crash(self) -> None:
        (peer,) = self._some(1)
        with peer.disk.slow(self._random.choice((0.0, 0.05))):  # so that it may be half-way
            await trio.sleep(0.5)
            await self._world.crash(peer)
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
        with ExitStack() as slow:
            for peer in peers:
                slow.enter_context(peer.disk.slow(0.05))
            await trio.sleep(0.5)
            await self._world.crash(*peers)
        for peer in self._random.sample(peers, len(peers)):
            await trio.sleep(self._draw((0.0, 1.0)))
            self._world.start(peer)

    async def _churn(self) -> None:
        if self._random.random() < 0.5 and len(self._world.running) > PEERS_MIN:
            (peer,) = self._some(1)
            with trio.CancelScope(shield=True):  # else it may have gone when time is up, unnoted
                peer.gone = await self._world.leave(peer)
        else:
            peer = self._world.add(f"p{len(self._world.peers)}")
            self._world.start(peer)
