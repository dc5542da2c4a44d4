"""What people use today, as systems under test, if it is installed: Mosquitto, NATS, Zenoh."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from meteor.bench.flow import MATCHED, Flow, Watched, pause, payload, topic, topics

START_SECONDS = 10.0

UNACKNOWLEDGED = 1_000
"""Messages that an MQTT publisher has on their way at once."""

PUBLISHED_A_TURN = 20
"""Messages that it publishes before it reads and writes."""

FILTERS_AT_ONCE = 100

TURN_SECONDS = 0.05
"""For how long an MQTT client waits for something to do."""


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def absent(program: str, module: str, package: str) -> str:
    """Say what of a system is not installed."""
    lacks = []
    if program and shutil.which(program, path=_path()) is None:
        lacks.append(f"the program {program} is not installed")
    if importlib.util.find_spec(module) is None:
        lacks.append(f"the Python package {package} is not installed")
    return ", and ".join(lacks)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin"  # where Debian puts servers


@contextmanager
def server(command: list[str], port: int) -> Iterator[None]:
    """Run a server until it is not needed any more."""
    program = shutil.which(command[0], path=_path())
    process = subprocess.Popen(
        [program or command[0], *command[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError(f"{command[0]} did not start") from None
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(5)


def _groups(flow: Flow) -> int:
    """Return how often every topic is subscribed to."""
    return MATCHED if flow.watches else 1


def _names(flow: Flow) -> list[str]:
    return topics()[: max(1, flow.watches // MATCHED)] if flow.watches else []


def _subject(flow: Flow, reading: tuple[str, int, int]) -> str:
    """Return a topic that somebody subscribed to."""
    names = _names(flow)
    return names[crc32(topic(reading).encode()) % len(names)] if names else topic(reading)


class Mosquitto:
    """The MQTT broker, through paho-mqtt; each subscriber to a topic has its own connection."""

    def __init__(self, qos: int) -> None:
        self.name, self._qos = f"mosquitto QoS {qos}", qos

    def missing(self) -> str:
        """Say what is not installed."""
        return absent("mosquitto", "paho", "paho-mqtt")

    @contextmanager
    def running(self, folder: str) -> Iterator[str]:
        """Run the broker."""
        port = free_port()
        config = Path(folder) / f"mosquitto-{port}.conf"
        config.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 0\n"
            "max_queued_messages 0\nset_tcp_nodelay true\n",
            encoding="utf-8",
        )
        with server(["mosquitto", "-c", str(config)], port):
            yield f"127.0.0.1:{port}"

    def _client(self, address: str) -> Any:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        made = Client(CallbackAPIVersion.VERSION2)
        made.max_inflight_messages_set(UNACKNOWLEDGED)
        made.max_queued_messages_set(0)
        host, port = address.split(":")
        made.connect(host, int(port))
        while not made.is_connected():
            made.loop(TURN_SECONDS)
        return made

    def watch(self, address: str, flow: Flow, ready: Callable[[], None]) -> Watched:
        """Take all deliveries."""
        watched, acknowledged = Watched(), 0

        def on_message(_client: Any, _userdata: Any, message: Any) -> None:
            watched.take(message.payload)

        def on_subscribe(*_: Any) -> None:
            nonlocal acknowledged
            acknowledged += 1

        names = [(name, self._qos) for name in _names(flow)] or [("#", self._qos)]
        filters = [names[i : i + FILTERS_AT_ONCE] for i in range(0, len(names), FILTERS_AT_ONCE)]
        clients = [self._client(address) for _ in range(_groups(flow))]
        for made in clients:
            made.on_message, made.on_subscribe = on_message, on_subscribe
            for some in filters:
                made.subscribe(some)
        while acknowledged < len(clients) * len(filters):
            _turn(clients)
        ready()
        while watched.count < flow.deliveries:
            _turn(clients)
        return watched.end()

    def post(self, address: str, flow: Flow, begin: Callable[[], None]) -> None:
        """Send all messages."""
        made, acknowledged = self._client(address), 0

        def on_publish(*_: Any) -> None:
            nonlocal acknowledged
            acknowledged += 1

        made.on_publish = on_publish
        readings = list(flow.readings())
        if flow.per_second:
            made.loop_start()  # so that it is awake when something comes
        begin()
        started = time.monotonic()
        for sent, reading in enumerate(readings):
            if wait := pause(flow, started, sent):
                time.sleep(wait)
            made.publish(_subject(flow, reading), payload(), self._qos)
            if not flow.per_second and not sent % PUBLISHED_A_TURN:
                made.loop(0)
            while sent - acknowledged > UNACKNOWLEDGED:
                made.loop(TURN_SECONDS)
        while acknowledged < flow.messages:
            if flow.per_second:
                time.sleep(TURN_SECONDS)
            else:
                made.loop(TURN_SECONDS)


def _turn(clients: list[Any]) -> None:
    """Have MQTT clients read and write; without a thread for each, which costs them half."""
    for made in clients:
        made.loop(TURN_SECONDS if len(clients) == 1 else 0)


class Nats:
    """The NATS server, through nats-py on asyncio."""

    name = "nats"

    def missing(self) -> str:
        """Say what is not installed."""
        return absent("nats-server", "nats", "nats-py")

    @contextmanager
    def running(self, folder: str) -> Iterator[str]:
        """Run the server."""
        port = free_port()
        with server(["nats-server", "-a", "127.0.0.1", "-p", str(port)], port):
            yield f"nats://127.0.0.1:{port}"

    def watch(self, address: str, flow: Flow, ready: Callable[[], None]) -> Watched:
        """Take all deliveries."""

        async def main(connection: Any, sleep: Callable[[float], Awaitable[None]]) -> Watched:
            watched = Watched()

            async def take(message: Any) -> None:
                watched.take(message.data)

            names = [name.replace("/", ".") for name in _names(flow)] or [">"]
            for _ in range(_groups(flow)):
                for name in names:
                    await connection.subscribe(
                        name, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1
                    )
            await connection.flush()
            ready()
            while watched.count < flow.deliveries:
                await sleep(0.001)
            return watched.end()

        result: Watched = _with_nats(address, main)
        return result

    def post(self, address: str, flow: Flow, begin: Callable[[], None]) -> None:
        """Send all messages."""

        async def main(connection: Any, sleep: Callable[[float], Awaitable[None]]) -> None:
            readings = list(flow.readings())
            begin()
            started = time.monotonic()
            for sent, reading in enumerate(readings):
                if wait := pause(flow, started, sent):
                    await sleep(wait)
                await connection.publish(_subject(flow, reading).replace("/", "."), payload())
            await connection.flush()

        _with_nats(address, main)


def _with_nats(address: str, main: Callable[[Any, Any], Awaitable[Any]]) -> Any:
    import asyncio

    import nats

    async def run() -> Any:
        connection = await nats.connect(address)
        try:
            return await main(connection, asyncio.sleep)
        finally:
            await connection.close()

    return asyncio.run(run())


class Zenoh:
    """Zenoh, peer to peer: the watcher listens, the publisher connects."""

    name = "zenoh"

    def missing(self) -> str:
        """Say what is not installed."""
        return absent("", "zenoh", "eclipse-zenoh")

    @contextmanager
    def running(self, folder: str) -> Iterator[str]:
        """Choose where the watcher listens."""
        yield f"tcp/127.0.0.1:{free_port()}"

    def _open(self, **endpoints: str) -> Any:
        import zenoh

        config = zenoh.Config()
        config.insert_json5("mode", '"peer"')
        config.insert_json5("scouting/multicast/enabled", "false")
        config.insert_json5("listen/endpoints", "[]")
        for kind, address in endpoints.items():
            config.insert_json5(f"{kind}/endpoints", f'["{address}"]')
        return zenoh.open(config)

    def watch(self, address: str, flow: Flow, ready: Callable[[], None]) -> Watched:
        """Take all deliveries."""
        watched = Watched()

        def take(sample: Any) -> None:
            watched.take(sample.payload.to_bytes())

        with self._open(listen=address) as session:
            names = _names(flow) or ["**"]
            kept = [
                session.declare_subscriber(name, take)
                for _ in range(_groups(flow))
                for name in names
            ]
            ready()
            while watched.count < flow.deliveries:
                time.sleep(0.001)
            del kept
        return watched.end()

    def post(self, address: str, flow: Flow, begin: Callable[[], None]) -> None:
        """Send all messages."""
        import zenoh

        with self._open(connect=address) as session:
            time.sleep(1.0)  # until it has heard of the subscribers
            readings = list(flow.readings())
            begin()
            started = time.monotonic()
            for sent, reading in enumerate(readings):
                if wait := pause(flow, started, sent):
                    time.sleep(wait)
                # By default it drops what does not fit, and here everything has to arrive.
                session.put(
                    _subject(flow, reading),
                    payload(),
                    congestion_control=zenoh.CongestionControl.BLOCK,
                )
