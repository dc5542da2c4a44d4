"""Hosts that can be cut off from each other: network namespaces, with bridges in one of their own.

Nothing of the machine's own network is touched: both ends of every cable are in namespaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.whole.rings_up import PATIENCE_SECONDS

LEFT, RIGHT = "left", "right"


class Network:
    """Hosts by their number. All are at the left bridge, unless they were moved to the right."""

    def __init__(self, hosts: int, stack: ExitStack) -> None:
        self.hosts, self._stack = range(hosts), stack
        self._name = f"meteor-{os.getpid()}"
        self._switch = f"{self._name}-switch"

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def at(self, host: int, *command: str) -> list[str]:
        """Return the command that runs this command at a host; it has the same process id."""
        return ["ip", "netns", "exec", self._namespace(host), *command]

    def build(self) -> None:
        """Make it all, or raise `CalledProcessError` where that is not permitted."""
        self._add(self._switch)
        for bridge in (LEFT, RIGHT):
            _ip("-n", self._switch, "link", "add", bridge, "type", "bridge")
            _ip("-n", self._switch, "link", "set", bridge, "up")
        for host in self.hosts:
            namespace, port = self._namespace(host), f"port{host}"
            self._add(namespace)
            cable = ("type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("-n", self._switch, "link", "add", port, *cable)
            _ip("-n", namespace, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", namespace, "link", "set", device, "up")
            _ip("-n", self._switch, "link", "set", port, "master", LEFT, "up")
        _run(*self.at(0, "true"))

    def move(self, hosts: tuple[int, ...], bridge: str) -> None:
        """Plug hosts into the other bridge: they reach those at the same one, and nobody else."""
        for host in hosts:
            _ip("-n", self._switch, "link", "set", f"port{host}", "master", bridge)

    def _add(self, namespace: str) -> None:
        """Make a namespace; whatever happens, it is deleted, and its cables and bridges with it."""
        _ip("netns", "add", namespace)
        self._stack.callback(_ip, "netns", "delete", namespace)

    def _namespace(self, host: int) -> str:
        return f"{self._name}-{host}"


@contextmanager
def network(hosts: int) -> Iterator[Network]:
    with ExitStack() as stack:
        made = Network(hosts, stack)
        made.build()
        yield made


def why_not() -> str:
    """Return why there can be no such network on this machine; nothing when there can."""
    if shutil.which("ip") is None:
        return "there is no `ip` command"
    try:
        with network(1):
            return ""
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
