"""A client's connection: to one peer at a time, moving to another when that one dies."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import trio

from meteor.errors import Busy, ConnectionLost, MeteorError, NoAnswer, NoRing, Refused
from meteor.limits import PROTOCOL
from meteor.transport.channel import Channel, PushHandler, dialled
from meteor.transport.frames import Value
from meteor.transport.network import Network, parse_address
from meteor.version import VERSION

log = logging.getLogger("meteor.client")

PEERS_REMEMBERED_MAX = 64
"""Addresses of peers that a client may move to."""

DIAL_SECONDS = 3.0
"""How long one peer may take to accept a connection before the next is tried."""

RETRY_SECONDS = 0.2
"""The pause after no known peer answered; doubled each time, up to RETRY_SECONDS_MAX."""

RETRY_SECONDS_MAX = 5.0

PING_SECONDS = 5.0
"""After so long without a word from its peer a client asks whether it is there."""

PONG_SECONDS = 3.0
"""How long the peer may take to say so before the client moves to another."""

BUSY_SECONDS = 0.05
"""The pause, on average, after a peer said that it is busy; doubled each time, up to
BUSY_SECONDS_MAX. Half of it is chance, so that many clients don't come back at once."""

BUSY_SECONDS_MAX = 2.0

AGAIN = {"post": "post again", "store": "store again"}
"""What requests are called when they may have been carried out already: where the ring can't tell,
it sees to it that what was posted twice is not taken twice."""


class Connection:
    """Requests to the ring, whichever peer serves them."""

    def __init__(
        self, network: Network, addresses: Sequence[str], client: str, random: Random
    ) -> None:
        for address in addresses:
            parse_address(address)
        self.address = ""
        """The peer that serves this client now, or served it last."""
        self.reconnects = 0
        self._network, self._client, self._random = network, client, random
        self._addresses: dict[str, None] = dict.fromkeys(addresses)
        self._channel: Channel | None = None
        self._connected = trio.Event()
        self._over = False

    async def request(
        self, method: str, body: Value, seconds: float, *, repeatable: bool = True
    ) -> Value:
        """Ask the ring. A request that is safe to repeat moves to another peer with us.

        A busy peer has done nothing: it is asked again, after a while. When half of the time has
        passed that ends, with `Busy`: what is begun late would end in a silence instead.
        """
        deadline = trio.current_time() + seconds
        last_try = deadline - seconds / 2
        pause = BUSY_SECONDS
        while True:
            channel = await self._usable(deadline)
            left = deadline - trio.current_time()
            try:
                return await channel.request(method, body, left)
            except Busy:
                wait = pause * (0.5 + self._random.random())
                if trio.current_time() + wait >= last_try:
                    raise
                await trio.sleep(wait)
                pause = min(pause * 2, BUSY_SECONDS_MAX)
            except ConnectionLost:
                if not repeatable:
                    raise ConnectionLost(
                        f"the connection to {self.address} was lost; {method} may or may not have "
                        "happened"
                    ) from None
                method = AGAIN.get(method, method)

    async def _usable(self, deadline: float) -> Channel:
        while self._channel is None or self._channel.closed.is_set():
            if self._over:
                raise ConnectionLost("this connection is over")
            with trio.move_on_at(deadline) as waited:
                await self._connected.wait()
            if waited.cancelled_caught:
                raise NoAnswer("no peer of the ring answered in time")
            if self._channel is not None and self._channel.closed.is_set():
                await trio.sleep(0.01)  # the keeper has not noticed yet
        return self._channel

    async def keep(
        self,
        on_push: PushHandler,
        on_connect: Callable[[Channel], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Stay connected until cancelled; reports after the first connection.

        Raises only if the first connection can't be had.
        """
        try:
            await self._keep(on_push, on_connect, task_status)
        finally:  # nobody waits for a connection that won't come, such as a watch that is withdrawn
            self._over = True
            self._connected.set()

    async def _keep(
        self,
        on_push: PushHandler,
        on_connect: Callable[[Channel], Awaitable[None]],
        task_status: trio.TaskStatus[None],
    ) -> None:
        pause, first = RETRY_SECONDS, True
        while True:
            problems: list[str] = []
            for address in self._candidates():
                try:
                    await self._serve_from(address, on_push, on_connect, task_status, first)
                    first, pause = False, RETRY_SECONDS
                    break
                except MeteorError as error:
                    if first and isinstance(error, Refused):
                        raise
                    words = str(error)
                    problems.append(words if address in words else f"{address}: {words}")
            else:
                if first:
                    raise NoRing("no peer answers; is the ring up?\n  " + "\n  ".join(problems))
                log.warning("no peer answers; trying again in %.1f s", pause)
                await trio.sleep(pause)
                pause = min(pause * 2, RETRY_SECONDS_MAX)

    def _candidates(self) -> list[str]:
        """Return the addresses to try: those that were given first, then others in any order."""
        others = [address for address in self._addresses if address != self.address]
        self._random.shuffle(others)
        return others if self.address and self.reconnects else list(self._addresses)

    async def _serve_from(
        self,
        address: str,
        on_push: PushHandler,
        on_connect: Callable[[Channel], Awaitable[None]],
        task_status: trio.TaskStatus[None],
        first: bool,
    ) -> None:
        """Connect to a peer and use it until it goes away."""
        with trio.move_on_after(DIAL_SECONDS) as dialling:
            stream = await self._network.dial(address)
        if dialling.cancelled_caught:
            raise NoAnswer(f"{address} did not accept a connection within {DIAL_SECONDS:.0f} s")
        hello = {
            "protocol": PROTOCOL,
            "role": "client",
            "version": VERSION,
            "client": self._client,
        }
        async with dialled(stream, hello, on_push) as channel:
            self.address, self._channel = address, channel
            self._learn(await channel.request("ping", None, DIAL_SECONDS))
            await on_connect(channel)
            self._connected.set()
            if first:
                task_status.started()
            await self._until_gone(channel)
            self._connected = trio.Event()
            self.reconnects += 1
            log.info("the connection to %s was lost; moving to another peer", address)

    async def _until_gone(self, channel: Channel) -> None:
        """Wait until the connection is closed, or the other side does not answer any more.

        A host that was switched off, or is behind a cut, closes nothing: it is silent.
        """
        while not channel.closed.is_set():
            with trio.move_on_after(PING_SECONDS):
                await channel.closed.wait()
            if not channel.closed.is_set() and silent_seconds(channel) >= PING_SECONDS:
                try:
                    self._learn(await channel.request("ping", None, PONG_SECONDS))
                except NoAnswer:
                    return
                except MeteorError as error:
                    log.debug("an odd answer to a ping: %s", error)

    def _learn(self, successors: Value) -> None:
        """Remember other peers to move to."""
        for address in successors if isinstance(successors, list) else ():
            if isinstance(address, str) and len(self._addresses) < PEERS_REMEMBERED_MAX:
                self._addresses.setdefault(address, None)


def silent_seconds(channel: Channel) -> float:
    """Return for how long nothing has come from the other side."""
    return trio.current_time() - channel.heard
