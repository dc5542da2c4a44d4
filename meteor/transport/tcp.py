"""The network of sockets."""

from __future__ import annotations

import errno
import socket

import trio

from meteor.errors import AddressError, ConnectionLost
from meteor.transport.network import Handler, format_address, parse_address


class TcpNetwork:
    """Streams over TCP."""

    async def dial(self, address: str) -> trio.abc.Stream:
        """Connect to an address."""
        host, port = parse_address(address)
        try:
            stream = await trio.open_tcp_stream(host, port)
        except OSError as error:
            raise ConnectionLost(f"nobody answers at {address}: {_reason(error)}") from error
        return _without_delay(stream)

    async def listen(
        self,
        address: str,
        handler: Handler,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept connections until cancelled; reports the address once the port is open."""
        host, port = parse_address(address)
        try:
            listeners = await trio.open_tcp_listeners(port, host=host)
        except OSError as error:
            raise AddressError(_why_not_open(address, error)) from error

        async def accepted(stream: trio.SocketStream) -> None:
            await handler(_without_delay(stream))

        bound: int = listeners[0].socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, accepted, listeners)
            task_status.started(format_address(host, bound))


def _without_delay(stream: trio.SocketStream) -> trio.SocketStream:
    """Send at once: what is ready is coalesced above, so Nagle's waiting only costs time."""
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def _why_not_open(address: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"can't listen at {address}: the port is in use, perhaps by another peer; "
            "choose another port, or 0 for any free one"
        )
    return f"can't listen at {address}: {_reason(error)}"


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
