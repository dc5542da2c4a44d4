"""The front of a peer: who connects to its address, and which ring they are served by.

While a ring moves to its next space, a peer and its heir (`meteor.node.moving`) live at one
address. Other peers say in their greeting which ring they are of. Clients don't know of any of it:
they are served by the peer until the ring has moved, and by the heir from then on, over the same
connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from arms.limits import TEXT_FIELD_MAX
from meteor.errors import Refused
from meteor.limits import CONNECTIONS_MAX, PROTOCOL, Bounds
from meteor.node.sessions import Session
from meteor.transport.channel import Answer, Channel, Hello, accepted
from meteor.transport.frames import Value
from meteor.transport.network import Handler, Network
from meteor.version import VERSION

if TYPE_CHECKING:
    from meteor.node.node import Node


class Front:
    """Accepts the connections to one address."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._connections = 0
        self._clients: dict[Channel, trio.Nursery] = {}

    def _generations(self) -> Iterator[Node]:
        """Give the peer, its heir, and so on."""
        node: Node | None = self._node
        while node is not None:
            yield node
            node = node.heir

    @property
    def _serving(self) -> Node:
        """The one that serves clients now."""
        return [node for node in self._generations() if node.serves_clients][-1]

    def admit(self, hello: Hello) -> Hello:
        """Return our hello to whom we talk to; raise `Refused`, in words, to whom we don't."""
        if self._connections > CONNECTIONS_MAX:
            raise Refused(f"this peer has {CONNECTIONS_MAX} connections already; try another")
        protocol, role = hello.get("protocol"), hello.get("role")
        if protocol != PROTOCOL:
            raise Refused(
                f"you speak protocol {protocol!r}, this peer speaks {PROTOCOL} "
                f"(Meteor {VERSION}): use the same Meteor version on both sides"
            )
        if role not in ("peer", "client"):
            raise Refused(f"you say you are a {role!r}; only peers and clients are served")
        client = hello.get("client")
        if role == "client" and not (isinstance(client, str) and 0 < len(client) <= TEXT_FIELD_MAX):
            raise Refused("a client must say who it is")
        return self._called(hello).hello()

    def _called(self, hello: Hello) -> Node:
        """Return whom somebody wants to talk to."""
        if hello.get("role") == "client":
            return self._serving
        for node in self._generations():
            if node.space.fingerprint() == hello.get("fingerprint"):
                return node
        space = self._serving.space
        raise Refused(
            f"your space is {hello.get('space')!r} ({hello.get('fingerprint')}), this ring's is "
            f"{space.name!r} ({space.fingerprint()}): start the peer with the ring's space file"
        )

    def bounds(self) -> Bounds:
        """Say how many connections there are."""
        return {"connections": (self._connections, CONNECTIONS_MAX + 1)}  # one is being refused

    async def connected(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends."""
        self._connections += 1
        try:
            channel = await accepted(stream, self.admit)
            if channel is None:
                return
            if channel.hello.get("role") == "client":
                await self._serve_client(channel)
            else:
                await self._serve_peer(channel)
        finally:
            self._connections -= 1

    async def _serve_peer(self, channel: Channel) -> None:
        def answer(method: str, body: Value) -> Answer:
            # Looked up each time: an heir that could not enter its ring is followed by another.
            return self._called(channel.hello).answer_peer(method, body)

        await channel.run(answer)

    async def _serve_client(self, channel: Channel) -> None:
        client: str = channel.hello["client"]

        def answer(method: str, body: Value) -> Answer:
            return self._serving.answer_client(client, method, body)

        async with trio.open_nursery() as nursery:
            self._clients[channel] = nursery
            try:
                for node in self._generations():
                    _open_session(node, channel, nursery)
                await channel.run(answer)
            finally:
                del self._clients[channel]
            nursery.cancel_scope.cancel()

    def introduce(self, heir: Node) -> None:
        """Have those who are connected hear of what the heir's ring tells them."""
        for channel, nursery in self._clients.items():
            _open_session(heir, channel, nursery)


def _open_session(node: Node, channel: Channel, nursery: trio.Nursery) -> None:
    if node.serving:
        nursery.start_soon(node.sessions.serve, channel.hello["client"], Session(channel))


class Inside:
    """The network of an heir: it dials as its elder does, whose front passes on who calls it."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def dial(self, address: str) -> trio.abc.Stream:
        """Open a stream to an address; `ConnectionLost` when nobody is there."""
        return await self._network.dial(address)

    async def listen(
        self,
        address: str,
        handler: Handler,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Be reached at the elder's address until cancelled."""
        task_status.started(address)
        await trio.sleep_forever()
