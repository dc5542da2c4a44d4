"""Rings of real peers in one process, for tests: over TCP, or in memory on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import trio

from meteor.config import Config
from meteor.node.node import Node, wall_clock_ms
from meteor.ring.arcs import WHOLE, union
from meteor.ring.invariants import ideal
from meteor.transport.memory import MemoryNetwork
from meteor.transport.network import Network
from meteor.transport.tcp import TcpNetwork
from squid import Space

SPACE = Space.from_toml(
    """
    name = "test"
    version = 1
    [[dimension]]
    name = "type"
    codec = "keyword"
    [[dimension]]
    name = "location"
    codec = "keyword"
    [[dimension]]
    name = "degree"
    codec = "number"
    min = -40
    max = 150
    """
)


@dataclass
class TestRing:
    """Peers by their names, each in a cancel scope of its own."""

    __test__ = False

    folder: Path
    nursery: trio.Nursery
    config: Config
    space: Space = SPACE
    memory: MemoryNetwork | None = None
    seed: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    scopes: dict[str, trio.CancelScope] = field(default_factory=dict)
    ended: dict[str, trio.Event] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The address of any live peer."""
        return next(iter(self.addresses.values()))

    def network(self, address: str = "client:1") -> Network:
        return TcpNetwork() if self.memory is None else self.memory.host(address)

    async def start(self, name: str, **settings: object) -> Node:
        """Start a peer; it joins through whoever is there. A name used before keeps its folder."""
        listen = "127.0.0.1:0" if self.memory is None else f"{name}:7400"
        config = replace(
            self.config,
            listen=listen,
            join=tuple(self.addresses.values()),
            state=str(self.folder / name),
            **settings,
        )
        in_memory = self.memory is not None
        node = Node(
            config,
            self.space,
            self.network(listen),
            clock=virtual_clock_ms if in_memory else wall_clock_ms,
            random=Random(f"{name} {self.seed}"),
            pace=AtOnce() if in_memory else None,
        )
        self.nodes[name] = node
        self.addresses[name] = await self.nursery.start(self._run, name, node)
        return node

    async def _run(
        self, name: str, node: Node, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        self.ended[name] = trio.Event()
        with trio.CancelScope() as scope:
            self.scopes[name] = scope
            await node.run(task_status=task_status)
        self.nodes.pop(name, None)
        self.addresses.pop(name, None)
        self.ended[name].set()

    async def stop(self, name: str) -> None:
        """End a peer at once, as a crash does for the others: nobody is told."""
        address = self.addresses[name]
        self.scopes[name].cancel()
        if self.memory is not None:
            self.memory.crash(address)
        await self.ended[name].wait()

    async def leave(self, name: str) -> None:
        """Have a peer hand over and go."""
        await self.nodes[name].leave()
        await self.ended[name].wait()

    def unsettled(self) -> list[str]:
        """Say what is not as it will be: neighbours, or responsibility for the ring."""
        overlays = [node.overlay for node in self.nodes.values()]
        members = {overlay.me.id: overlay.neighbours() for overlay in overlays}
        problems = ideal(members, self.config.successors)
        spans = [span for overlay in overlays for span in overlay.spans]
        if union(spans) != WHOLE or sum(high - low + 1 for low, high in spans) != 1 << 63:
            problems.append("the arcs do not cover the ring once")
        return problems

    async def settle(self, seconds: float = 60) -> None:
        """Wait until the ring is ideal and every identifier has one owner."""
        with trio.move_on_after(seconds):
            while self.unsettled():  # noqa: ASYNC110 - what settles it is spread over the peers
                await trio.sleep(0.02)
        assert self.unsettled() == []


class AtOnce:
    """A disk that takes no time."""

    async def begin(self) -> None:
        pass

    async def finish(self) -> None:
        pass


def virtual_clock_ms() -> int:
    return int(trio.current_time() * 1000) + 1_000_000


@asynccontextmanager
async def ring_of(
    count: int,
    folder: Path,
    memory: MemoryNetwork | None = None,
    space: Space = SPACE,
    seed: int = 0,
    **settings: object,
) -> AsyncIterator[TestRing]:
    """Run a settled ring of peers named p0, p1, ..."""
    config = replace(Config(stabilise_seconds=0.2, discover_seconds=2.0), **settings)
    async with trio.open_nursery() as nursery:
        ring = TestRing(folder, nursery, config, space, memory, seed)
        for i in range(count):
            await ring.start(f"p{i}")
        await ring.settle()
        yield ring
        nursery.cancel_scope.cancel()
