"""The simulated world: real peers and clients on a network in memory, each peer with a disk."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import trio

from arms.store import Store
from meteor.client import Ring, connect
from meteor.config import Config, load_space
from meteor.errors import MeteorError
from meteor.node.node import Node
from meteor.ring.arcs import WHOLE, size, union
from meteor.ring.invariants import ideal
from meteor.ring.questions import Neighbours
from meteor.simulation.determinism import History
from meteor.simulation.disk import Disk
from meteor.simulation.faults import Mischief
from meteor.transport.memory import MemoryNetwork

EPOCH_MS = 1_700_000_000_000
"""The time of day at which every simulation begins."""

CLOCKS_APART_MS = 200
"""How far a peer's clock may be off: what keeps clocks in step turns it round there."""

DRIFT_PER_MILLE = 5
"""How much too fast or too slow a clock may run: worse than the worst that are sold."""

RESTART_SECONDS = 1.0
"""After this a peer that could not start is started again, as a supervisor does."""

OPERATION_SECONDS = 20.0
"""What a client gives each of its operations."""

CONFIG = Config(stabilise_seconds=1.0, discover_seconds=2.0, repair_seconds=10.0)
"""The settings of every simulated peer: slower rounds than a real one's, for more time per second
of ours."""


@dataclass(eq=False)
class Peer:
    """A peer of the world: its process, if it runs, and what stays when it dies."""

    name: str
    disk: Disk
    clock_off_ms: int = 0
    """How far its clock is off when the simulation begins."""
    drift_per_mille: float = 0.0
    """How much too fast it runs."""
    lives: int = 0
    node: Node | None = None
    up: bool = False
    gone: bool = False
    """It has left in good order, and does not come back."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self.name}:7400"


class World:
    """Peers by their names, and the network between them."""

    def __init__(
        self, folder: Path, nursery: trio.Nursery, seed: int, latency_seconds: float, drift: bool
    ) -> None:
        self.peers: dict[str, Peer] = {}
        self.history = History()
        self.network = MemoryNetwork(seed, (0.001, latency_seconds))
        self.mischief = Mischief(seed, self.history)
        self.network.meddler = self.mischief
        self.space = load_space("")
        self._folder, self._nursery, self._seed, self._drift = folder, nursery, seed, drift
        self._random = Random(f"world {seed}")
        self._empty = folder / "profiles.db"
        Store(self._empty, self.space, CONFIG.sync).close()

    # -- peers -----------------------------------------------------------------------------------

    def add(self, name: str) -> Peer:
        """Make a host for a peer, with an empty disk and a clock that may be off."""
        off, drift = 0, 0.0
        if self._drift:
            off = self._random.randint(-CLOCKS_APART_MS, CLOCKS_APART_MS)
            drift = self._random.uniform(-DRIFT_PER_MILLE, DRIFT_PER_MILLE)
        folder = self._folder / name
        folder.mkdir(parents=True)
        shutil.copy(self._empty, folder / self._empty.name)  # quicker than to make it
        disk = Disk(folder, Random(f"disk {name} {self._seed}"))
        self.peers[name] = Peer(name, disk, off, drift)
        return self.peers[name]

    def start(self, peer: Peer) -> None:
        """Start a peer's process; it joins through others, and returns with its old folder."""
        peer.lives += 1
        peer.scope, peer.ended = trio.CancelScope(), trio.Event()
        self.history.note("start", peer.name)
        self._nursery.start_soon(self._run, peer)

    async def _run(self, peer: Peer) -> None:
        with peer.scope:
            while True:
                try:
                    await self._live(peer)
                    break  # it has left in good order
                except MeteorError as error:
                    self.history.note("could not start", peer.name, error)
                await trio.sleep(RESTART_SECONDS)
        peer.node, peer.up = None, False
        peer.ended.set()

    async def _live(self, peer: Peer) -> None:
        others = [p.address for p in self.peers.values() if p is not peer and p.lives]
        config = replace(
            CONFIG,
            listen=peer.address,
            join=tuple(others[:3]),
            state=str(self._folder / peer.name),
        )
        network = self.network.host(peer.address)
        random = Random(f"{peer.name} {peer.lives} {self._seed}")
        peer.node = Node(config, self.space, network, self.clock(peer), random, peer.disk)
        await peer.node.run(task_status=_Started(lambda: self._started(peer)))

    def _started(self, peer: Peer) -> None:
        peer.up = True
        self.history.note("up", peer.name)

    def clock(self, peer: Peer) -> Callable[[], int]:
        """Return a peer's clock, which may be off and run fast or slow."""

        def now_ms() -> int:
            seconds = trio.current_time()
            off = folded(peer.clock_off_ms + seconds * peer.drift_per_mille, CLOCKS_APART_MS)
            return EPOCH_MS + int(seconds * 1000 + off)

        return now_ms

    async def crash(self, *peers: Peer) -> None:
        """Kill peers at once, as a power cut does; they keep what their disks had synced."""
        restores = []
        for peer in peers:
            self.history.note("crash", peer.name)
            restores.append(peer.disk.lose_power())
            peer.up = False
            peer.scope.cancel()
            self.network.crash(peer.address)
        for peer, restore in zip(peers, restores, strict=True):
            await peer.ended.wait()
            restore()

    async def leave(self, peer: Peer) -> bool:
        """Have a peer hand over and go; says whether it could."""
        self.history.note("leave", peer.name)
        assert peer.node is not None
        try:
            await peer.node.leave()
        except MeteorError as error:
            self.history.note("could not leave", peer.name, error)
            return False
        await peer.ended.wait()
        return True

    @property
    def running(self) -> list[Peer]:
        """The peers that are in a ring."""
        return [peer for peer in self.peers.values() if peer.up]

    # -- clients ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def client(self, name: str, addresses: list[str]) -> AsyncIterator[Ring]:
        """Connect a program on a host of its own."""
        network = self.network.host(f"{name}:1")
        random = Random(f"{name} {self._seed}")
        async with connect(
            *addresses, name=name, seconds=OPERATION_SECONDS, network=network, random=random
        ) as ring:
            yield ring

    # -- how it is -------------------------------------------------------------------------------

    def members(self) -> dict[int, Neighbours]:
        """Return what the peers in the ring say of their neighbours."""
        nodes = [peer.node for peer in self.running]
        return {node.me.id: node.overlay.neighbours() for node in nodes if node is not None}

    def down(self) -> list[str]:
        """Say who has been started and is not in a ring yet."""
        return [f"{p.name} is not up" for p in self.peers.values() if not (p.up or p.gone)]

    def unsettled(self) -> list[str]:
        """Say what is not as it will be at rest: neighbours, owners, copies, doubts."""
        problems = ideal(self.members(), CONFIG.successors)
        nodes = [peer.node for peer in self.running if peer.node is not None]
        spans = [span for node in nodes for span in node.overlay.spans]
        if union(spans) != WHOLE or size(tuple(spans)) != size(WHOLE):
            problems.append("some identifiers have no owner, or two")
        return problems

    def uncopied(self) -> list[str]:
        """Say which copies are not there yet, and who is still waited for."""
        problems: list[str] = []
        for peer in self.running:
            assert peer.node is not None
            report = peer.node.report()
            for copy in report["copies_at"]:
                if copy["behind"] or copy["catching_up"]:
                    problems.append(f"{copy['address']} lacks copies of {peer.name}")
            if report["voters_change"]:
                problems.append(f"voters of {peer.name} change")
        return problems

    def doubts(self) -> list[str]:
        """Say who is waited for."""
        nodes = [peer.node for peer in self.running if peer.node is not None]
        return [
            f"{node.me.address} waits for {lost}"
            for node in nodes
            for lost in node.report()["in_doubt"]
        ]


class _Started(trio.TaskStatus[str]):
    """Hears when a peer serves."""

    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard

    def started(self, value: str | None = None) -> None:
        """Hear it."""
        self._heard()


def folded(value: float, bound: float) -> float:
    """Return a value that goes on and on, turned round wherever it reaches a bound."""
    turn = (value + bound) % (4 * bound)
    return min(turn, 4 * bound - turn) - bound
