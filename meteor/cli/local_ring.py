"""The processes of a local ring: started, listened to, and stopped together.

Each peer is `meteor node --until-eof` in a process group of its own: Ctrl-C reaches only this
process, which then stops them in order; and should this one be killed, their standard input ends
and they stop by themselves.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click
import trio

from meteor.cli.display import plain
from meteor.cli.failures import FAILED, Failure
from meteor.cli.node import STOP_SIGNALS
from meteor.cli.ring import broken_links
from meteor.errors import MeteorError
from meteor.ring.arcs import RING_SIZE

STOP_SECONDS = 5.0
"""How long a peer may take to stop before it is killed."""

SETTLE_SECONDS = 20.0
"""How long the ring may take to close after the last peer has joined, before one goes on anyway."""

SETTLE_PAUSE_SECONDS = 0.1

FIRST_DISCOVER_SECONDS = 0.5
"""The first peer looks for those it knew before: on the same machine they answer at once."""

LINE_BYTES_MAX = 65_536
"""A longer line of a peer is shown in pieces."""

LOG_LINE = re.compile(r"\d\d:\d\d:\d\d (\w+) +(.*)")

OWN_SETTINGS = ("LISTEN", "ADVERTISE", "JOIN", "STATE", "ID", "SPACE", "LOG", "PRESET")
"""Settings that the peers don't take from the environment: they can't all have the same, or they
are chosen here."""


@dataclass(eq=False)
class LocalPeer:
    """One peer's process, and what it has said."""

    name: str
    address: str
    command: list[str]
    process: trio.Process | None = None
    ready: trio.Event = field(default_factory=trio.Event)
    """Set when it is in the ring."""
    joined: bool = False
    said: deque[str] = field(default_factory=lambda: deque(maxlen=10))

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.returncode is None

    def last_words(self) -> str:
        """Return why it ended, as far as it said: its error, or the last line of its log."""
        for line in self.said:
            if line.startswith("meteor: "):
                return line.removeprefix("meteor: ")
        return self.said[-1] if self.said else "it said nothing"


class LocalRing:
    """A ring of processes."""

    def __init__(
        self,
        addresses: Sequence[str],
        state: Path,
        space_file: str,
        verbose: bool,
        welcome: Callable[[], None],
    ) -> None:
        self._state, self._space_file = state, space_file
        self._verbose, self._welcome = verbose, welcome
        self._started = self._stopping = False
        self._problem = ""
        self._running = trio.CancelScope()
        self._advance: Callable[[LocalPeer], None] = lambda peer: None
        new = not any(state.glob("peer-*/peer.json"))
        # The peers of a new ring have nothing yet to choose their places by: they get equal arcs.
        places = [i * (RING_SIZE // len(addresses)) if new else -1 for i in range(len(addresses))]
        self._peers = [
            LocalPeer(f"peer-{i}", address, self._command(i, address, addresses[0], place))
            for i, (address, place) in enumerate(zip(addresses, places, strict=True))
        ]

    def left_out(self) -> list[str]:
        """Return the peers that have data here, but are not among those to be started."""
        names = {peer.name for peer in self._peers}
        folders = [file.parent.name for file in self._state.glob("peer-*/peer.json")]
        return sorted(set(folders) - names)

    async def run(self) -> int:
        """Run the ring until a signal comes or the last peer is gone; return the exit code."""
        with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_on_signal, signals)
                with self._running:
                    async with trio.open_nursery() as peers:
                        await self._start(peers)
                nursery.cancel_scope.cancel()
        if self._problem:
            raise Failure(self._problem)
        if self._stopping:
            click.echo(f"Stopped; the data stay in {self._state}")
            return 0
        click.echo("No peer is left.")
        return FAILED if any(p.process and p.process.returncode for p in self._peers) else 0

    async def _stop_on_signal(self, signals: AsyncIterator[int]) -> None:
        async for _ in signals:  # more than one may come: `make` passes Ctrl-C on as well
            if not self._stopping:
                click.echo("\nStopping ...")
                self._stop()

    def _stop(self, problem: str = "") -> None:
        self._stopping = True
        self._problem = self._problem or problem
        self._running.cancel()

    async def _start(self, nursery: trio.Nursery) -> None:
        first, *others = self._peers
        with _progress(len(self._peers), plainly=self._verbose) as self._advance:
            for some in ([first], others):
                for peer in some:
                    nursery.start_soon(self._keep, peer)
                for peer in some:
                    await peer.ready.wait()
            settled = await self._settle()
        self._started = True
        self._welcome()
        if not settled:
            click.echo("meteor: the ring is not closed yet; `meteor ring` shows it", err=True)

    async def _settle(self) -> bool:
        """Wait until the peers agree on who follows whom."""
        from meteor.client import connect

        with trio.move_on_after(SETTLE_SECONDS):
            try:
                async with connect(self._peers[0].address) as ring:
                    while True:
                        report = await ring.report()
                        running = sum(peer.running for peer in self._peers)
                        if len(report.peers) >= running and not broken_links(report):
                            return True
                        await trio.sleep(SETTLE_PAUSE_SECONDS)
            except MeteorError:
                return False
        return False

    # -- one peer ----------------------------------------------------------------------------------

    def _command(self, i: int, address: str, first: str, place: int) -> list[str]:
        # -P: not a folder that is called meteor, as a clone is, in the folder one happens to be in.
        command = [sys.executable, "-P", "-m", "meteor", "node", "--until-eof", "--log", "info"]
        command += ["--listen", address, "--state", str(self._state / f"peer-{i}")]
        command += ["--id", str(place)]
        if self._space_file:
            command += ["--space", self._space_file]
        if i == 0:
            return [*command, "--discover-seconds", str(FIRST_DISCOVER_SECONDS)]
        return [*command, "--join", first]

    async def _keep(self, peer: LocalPeer) -> None:
        """Run a peer's process to its end, and say so if it was not to end."""
        taken = {f"METEOR_{name}" for name in OWN_SETTINGS}
        run = partial(
            trio.run_process,
            peer.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
            deliver_cancel=partial(_terminate, peer.name),
            process_group=0,
            env={name: text for name, text in os.environ.items() if name not in taken},
        )
        async with trio.open_nursery() as nursery:
            peer.process = process = await nursery.start(run)
            nursery.start_soon(self._hear, peer, process.stdout)
            nursery.start_soon(self._read_log, peer, process.stderr)
        if self._stopping:
            return
        if not peer.joined:
            self._stop(f"{peer.name} did not start: {peer.last_words()}")
            return
        if process.returncode == 0:
            self._say(peer, "has left the ring")
        else:
            self._say(peer, f"{_ending(process.returncode)}; its last words: {peer.last_words()}")

    async def _hear(self, peer: LocalPeer, stream: trio.abc.ReceiveStream) -> None:
        async for line in _lines(stream):
            if line.startswith("ready ") and not peer.joined:
                peer.joined = True
                peer.ready.set()
                self._advance(peer)

    async def _read_log(self, peer: LocalPeer, stream: trio.abc.ReceiveStream) -> None:
        async for line in _lines(stream):
            peer.said.append(line)
            if not self._stopping and (self._verbose or (self._started and _is_news(line))):
                self._say(peer, line)

    def _say(self, peer: LocalPeer, line: str) -> None:
        click.echo(f"{click.style(peer.name, fg='cyan')} | {plain(line)}")


def _is_news(line: str) -> bool:
    """Return whether a line is a warning, about the ring, or not from the log at all."""
    found = LOG_LINE.match(line)
    return found is None or found[1] not in ("debug", "info") or " ring" in found[2]


def _ending(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


async def _terminate(name: str, process: trio.Process) -> None:
    """Have a process stop; trio cancels this once it has."""
    process.terminate()
    await trio.sleep(STOP_SECONDS)
    click.echo(f"meteor: {name} did not stop within {STOP_SECONDS:.0f} s: killed", err=True)
    process.kill()


async def _lines(stream: trio.abc.ReceiveStream) -> AsyncIterator[str]:
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            lines, rest = [*lines, rest], b""
        for line in lines:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


@contextmanager
def _progress(peers: int, *, plainly: bool) -> Iterator[Callable[[LocalPeer], None]]:
    """Show how many peers have joined: a bar on a terminal, lines elsewhere."""
    if plainly or not sys.stdout.isatty():
        yield lambda peer: click.echo(f"{peer.name} is in the ring at {peer.address}")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("starting peers"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("", total=peers)
        yield lambda peer: bar.advance(task)
