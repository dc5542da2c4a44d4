"""The interface to a network: dial an address, or listen at one. Addresses are `host:port`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from meteor.errors import AddressError

Handler = Callable[[trio.abc.Stream], Awaitable[object]]


class Network(Protocol):
    """A place where streams can be opened and accepted."""

    async def dial(self, address: str) -> trio.abc.Stream:
        """Open a stream to an address; `ConnectionLost` when nobody is there."""
        ...

    async def listen(
        self,
        address: str,
        handler: Handler,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve streams until cancelled; reports the address once it is open."""
        ...


def parse_address(address: str) -> tuple[str, int]:
    """Split `host:port` (or `[v6]:port`), or say what is wrong with it."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise AddressError(f"{address!r} is no address; write host:port, such as 127.0.0.1:7400")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Join a host and a port, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
