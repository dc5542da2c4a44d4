"""The network of sockets."""

from __future__ import annotations

import errno
import os
import socket

import trio

from meteor.errors import AddressError, ConnectionLost
from meteor.transport.network import Handler, format_address, parse_address

SILENT_SECONDS_MAX = 60
"""After this much silence the kernel asks whether the other host is still there: one that was
switched off says nothing, and its connection would be kept for ever."""


class TcpNetwork:
    """Streams over TCP."""

    async def dial(self, address: str) -> trio.abc.Stream:
        """Connect to an address."""
        host, port = parse_address(address)
        try:
            stream = await trio.open_tcp_stream(host, port)
            _keep_alive(stream.socket)
        except OSError as error:
            raise ConnectionLost(f"nobody answers at {address}: {_reason(error)}") from error
        except ValueError as error:  # a name that can't be: a label too long, a zero byte
            raise AddressError(f"{address!r} is no address: {error}") from error
        return stream

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
        except ValueError as error:
            raise AddressError(f"{address!r} is no address: {error}") from error
        for listener in listeners:
            _keep_alive(listener.socket)  # what it accepts inherits this
        bound: int = listeners[0].socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, handler, listeners)
            task_status.started(format_address(host, bound))


def _keep_alive(opened: trio.socket.SocketType) -> None:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # elsewhere the system's own, longer time holds
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_SECONDS_MAX)


def _why_not_open(address: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"can't listen at {address}: the port is in use, perhaps by another peer; "
            "choose another port, or 0 for any free one"
        )
    return f"can't listen at {address}: {_reason(error)}"


def _reason(error: OSError) -> str:
    match error.__cause__:
        case ExceptionGroup(exceptions=[OSError() as first, *_]):  # one for each of its addresses
            error = first
    if error.errno is not None and error.errno > 0:  # negative: a name that was not resolved
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
