"""The network of sockets."""

from __future__ import annotations

import errno
import os
import socket

import trio

from meteor.errors import AddressError, ConnectionLost
from meteor.transport.network import Handler, PromptStream, format_address, parse_address

SILENT_SECONDS_MAX = 60
"""After this much silence the kernel asks whether the other host is still there: one that was
switched off says nothing, and its connection would be kept for ever."""


RECEIVE_BYTES = 64 * 1024
"""What is read at once when the caller does not say."""


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
        return TcpStream(stream)

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

        async def serve(stream: trio.SocketStream) -> None:
            await handler(TcpStream(stream))

        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, serve, listeners)
            task_status.started(format_address(host, bound))


class TcpStream(PromptStream):
    """A socket's stream, on the shortest way.

    trio's own tries to read before it waits, and looks whether it is cancelled after each attempt:
    that is half of what passing a small message on takes. It sets `TCP_NODELAY` for us.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream, self._socket = stream, stream.socket
        self._more = False  # the last read was full, so there may be more to read at once

    def send_now(self, data: bytes) -> int:
        """Send as much as the kernel has room for."""
        try:
            return os.write(self._socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _stream_error(error) from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; waits while the kernel has no room."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the kernel has room."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes, or none at the end of the stream."""
        if max_bytes is None:
            max_bytes = RECEIVE_BYTES
        if max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        if self._more:
            await trio.lowlevel.checkpoint()
        else:
            await self._something_to_read()
        while True:
            try:
                data = os.read(self._socket.fileno(), max_bytes)
            except BlockingIOError:
                await self._something_to_read()
            except OSError as error:
                raise _stream_error(error) from error
            else:
                self._more = len(data) == max_bytes
                return data

    async def _something_to_read(self) -> None:
        descriptor = self._socket.fileno()
        if descriptor < 0:
            raise trio.ClosedResourceError("this socket was already closed")
        await trio.lowlevel.wait_readable(descriptor)

    async def aclose(self) -> None:
        """Close the socket."""
        await self._stream.aclose()


def _stream_error(error: OSError) -> trio.ClosedResourceError | trio.BrokenResourceError:
    if error.errno == errno.EBADF:
        return trio.ClosedResourceError("this socket was already closed")
    return trio.BrokenResourceError(f"socket connection broken: {error}")


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
