"""The interface to a network: dial an address, or listen at one. Addresses are `host:port`."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from meteor.errors import AddressError

Handler = Callable[[trio.abc.Stream], Awaitable[object]]


class PromptStream(trio.abc.Stream):
    """A stream that takes bytes without a pause, as long as there is room for them."""

    @abstractmethod
    def send_now(self, data: bytes) -> int:
        """Send as much as can be sent at once; returns how many bytes that were.

        Not while `send_all` is under way. Raises what `send_all` raises.
        """


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
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressError(f"{address!r} is no address; write an IPv6 host as [::1]:7400")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise AddressError(f"{address!r} is no address; write host:port, such as 127.0.0.1:7400")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Join a host and a port, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
