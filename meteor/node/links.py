"""Connections to other peers: one for each address, opened when needed, shared by all tasks."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

import trio

from meteor.errors import ConnectionLost, MeteorError, NoAnswer
from meteor.limits import LINKS_MAX, Bounds
from meteor.transport.channel import Channel, Hello, dialled
from meteor.transport.frames import Value
from meteor.transport.network import Network

log = logging.getLogger("meteor.node")


class Links:
    """What this peer asks others through."""

    def __init__(
        self, network: Network, hello: Callable[[], Hello], silence_seconds: float
    ) -> None:
        self._network, self._hello, self._silence_seconds = network, hello, silence_seconds
        self._links: OrderedDict[str, _Link] = OrderedDict()
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the connections until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def request(self, address: str, method: str, body: Value, seconds: float) -> Value:
        """Ask the peer at an address; the time includes connecting."""
        asked = trio.current_time()
        channel = await self._channel(address, seconds)
        left = max(0.001, asked + seconds - trio.current_time())
        try:
            return await channel.request(method, body, left)
        except NoAnswer:
            # Not a word for so long: the host may be gone for good. A shorter silence says nothing,
            # and closing the link would make others take a live peer for dead.
            if trio.current_time() - max(asked, channel.heard) >= self._silence_seconds:
                self._give_up(address, channel)
            raise

    def bounds(self) -> Bounds:
        """Say how many connections there are."""
        return {"connections to others": (len(self._links), LINKS_MAX)}

    def _give_up(self, address: str, channel: Channel) -> None:
        """Close a link whose other side is silent; the next request opens a new one."""
        link = self._links.get(address)
        if link is not None and link.channel is channel:
            link.scope.cancel()

    def identity(self, address: str) -> int | None:
        """Return the id of the peer at an address, as it said when the link was opened."""
        link = self._links.get(address)
        return None if link is None or link.channel is None else link.channel.hello.get("id")

    async def _channel(self, address: str, seconds: float) -> Channel:
        assert self._nursery is not None, "links are used while they run"
        link = self._links.get(address)
        if link is None or link.ended:
            link = self._links[address] = _Link(address)
            self._nursery.start_soon(self._keep, link)
            self._make_room()
        self._links.move_to_end(address)
        with trio.move_on_after(seconds):
            await link.ready.wait()
        if link.error is not None:
            raise link.error
        if link.channel is None:
            raise ConnectionLost(f"{address} did not accept a connection within {seconds:.1f} s")
        return link.channel

    async def _keep(self, link: _Link) -> None:
        """Open a link and keep it until the other side closes it."""
        try:
            with link.scope:
                stream = await self._network.dial(link.address)
                async with dialled(stream, self._hello()) as channel:
                    link.channel = channel
                    link.ready.set()
                    await channel.closed.wait()
        except MeteorError as error:
            link.error = error
            log.debug("no link to %s: %s", link.address, error)
        finally:
            link.ended = True
            if link.error is None and not link.ready.is_set():
                link.error = ConnectionLost(f"the connection to {link.address} was given up")
            link.ready.set()
            if self._links.get(link.address) is link:
                del self._links[link.address]

    def _make_room(self) -> None:
        while len(self._links) > LINKS_MAX:
            _, oldest = self._links.popitem(last=False)
            oldest.scope.cancel()


class _Link:
    def __init__(self, address: str) -> None:
        self.address = address
        self.ready = trio.Event()
        self.ended = False
        self.scope = trio.CancelScope()
        self.channel: Channel | None = None
        self.error: MeteorError | None = None
