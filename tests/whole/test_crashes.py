"""Real processes, killed with -9 and started again while a client posts; its log is the judge."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
import trio

from meteor.client import connect
from meteor.errors import MeteorError
from tests.whole.rings_up import Process, free_ports, process

PEERS = 6


class Lab:
    """Peers by their number, each a process with a folder of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.port = free_ports(PEERS)
        self.peers: dict[int, Process] = {}

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.port + number}"

    def start(self, number: int) -> None:
        joins = [word for other in self.peers for word in ("--join", self.address(other))]
        state = str(self.folder / f"peer-{number}")
        peer = self.stack.enter_context(
            process("node", "--listen", self.address(number), "--state", state, *joins)
        )
        peer.wait_for("ready")
        self.peers[number] = peer

    def kill(self, number: int) -> None:
        self.peers.pop(number).end(signal.SIGKILL)

    async def whole(self) -> None:
        """Wait until every peer answers, and every copy has caught up."""
        async with connect(*map(self.address, self.peers), seconds=30) as ring:
            with trio.fail_after(60):
                while True:
                    report = await ring.report()
                    copies = [copy for peer in report.peers for copy in peer["copies_at"]]
                    # Posts go on meanwhile, so a copy may lack the very last ones.
                    behind = any(copy["behind"] > 5 or copy["catching_up"] for copy in copies)
                    if report.complete and len(report.peers) == len(self.peers) and not behind:
                        return
                    await trio.sleep(0.1)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with ExitStack() as stack:
        lab = Lab(tmp_path, stack)
        for number in range(PEERS):
            lab.start(number)
        yield lab


async def test_nothing_acknowledged_is_lost_when_peers_are_killed_and_return(lab: Lab) -> None:
    random = Random(6)
    kept: set[str] = set()
    unsure: set[str] = set()
    done = trio.Event()

    async def post() -> None:
        async with connect(lab.address(0), lab.address(1), seconds=30) as ring:
            number = 0
            while not done.is_set():
                number += 1
                name = str(number)
                try:
                    await ring.store(f"type=t{number % 7}, degree={number % 150}", name)
                    kept.add(name)
                    if number % 10 == 0:
                        victim = random.choice(sorted(kept))
                        kept.discard(victim)
                        unsure.add(victim)
                        value = int(victim)
                        profile = f"type=t{value % 7}, degree={value % 150}"
                        found = [
                            i.id for i in await ring.retrieve(profile).all() if i.text == victim
                        ]
                        for id_ in found:
                            if (await ring.delete(profile, only=id_)).complete:
                                unsure.discard(victim)
                except MeteorError:
                    unsure.add(name)
                await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(post)
        for _ in range(4):
            victim = random.choice(sorted(set(lab.peers) - {0, 1}))
            await trio.to_thread.run_sync(lab.kill, victim)
            await lab.whole()
            await trio.to_thread.run_sync(lab.start, victim)
            await lab.whole()
        done.set()
    async with connect(lab.address(0), seconds=30) as ring:
        retrieval = ring.retrieve("type=*")
        there = [item.text for item in await retrieval.all()]
    assert retrieval.complete
    assert len(there) == len(set(there))
    assert kept
    assert kept - set(there) == set(), "acknowledged, and gone"
    assert set(there) - kept - unsure == set(), "deleted, and back"


async def test_a_power_cut_of_the_whole_ring_loses_nothing_acknowledged(lab: Lab) -> None:
    kept: set[str] = set()
    enough = trio.Event()

    async def post() -> None:
        async with connect(lab.address(0), seconds=30) as ring:
            for number in range(10_000):
                await ring.store(f"type=t{number % 7}, degree={number % 150}", str(number))
                kept.add(str(number))
                if len(kept) == 100:
                    enough.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(post)
        await enough.wait()
        for peer in lab.peers.values():
            peer.popen.send_signal(signal.SIGKILL)
        nursery.cancel_scope.cancel()
    for peer in lab.peers.values():
        peer.wait()
    lab.peers.clear()
    for number in range(PEERS):
        lab.start(number)
    await lab.whole()
    async with connect(lab.address(3), seconds=30) as ring:
        retrieval = ring.retrieve("type=*")
        there = {item.text for item in await retrieval.all()}
    assert retrieval.complete
    assert kept <= there
