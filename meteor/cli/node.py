"""One peer, in the foreground: `meteor node`."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import trio

    from meteor.config import Config
    from squid import Space

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SETTINGS: tuple[tuple[str, str | tuple[str, ...], str], ...] = (
    ("preset", ("local", "lab", "wide"), "Where the other settings start from."),
    ("listen", "HOST:PORT", "Where the peer listens; port 0 is any free one."),
    ("advertise", "HOST:PORT", "Where others reach it, if not at --listen."),
    ("join", "HOST:PORT", "A peer of the ring to join; repeatable. None: begin a ring."),
    ("state", "FOLDER", "Where its data and its identity are kept."),
    ("space", "FILE", "The information space; without it the sample space, lab."),
    ("id", "NUMBER", "Its place on the ring; -1 splits the busiest peer."),
    ("samples", "NUMBER", "Places to look at for the busiest peer."),
    ("successors", "NUMBER", "Successors to keep: one less may die at once."),
    ("copies", "NUMBER", "Copies of every message."),
    ("ack", ("owner", "quorum", "all"), "Which copies must be on disk before a post is done."),
    ("fingers", "NUMBER", "Fingers in each octave: more of them make shorter routes."),
    ("repair-seconds", "SECONDS", "How often copies are compared and mended."),
    ("stabilise-seconds", "SECONDS", "How often neighbours are checked."),
    ("request-seconds", "SECONDS", "How long a neighbour may take to answer."),
    ("post-seconds", "SECONDS", "How long a post or query may take in all."),
    ("discover-seconds", "SECONDS", "How long to wait for a peer of --join."),
    ("sync", ("full", "normal"), "full: on disk before it is acknowledged."),
    ("log", ("debug", "info", "warning", "error"), "How much is logged."),
)
"""The settings of `meteor.config.Config`, with what they take; values are checked there."""


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command a flag for each setting."""
    for name, takes, words in reversed(SETTINGS):
        kind = click.Choice(takes) if isinstance(takes, tuple) else str
        metavar = None if isinstance(takes, tuple) else takes
        many = name == "join"
        command = click.option(f"--{name}", type=kind, metavar=metavar, help=words, multiple=many)(
            command
        )
    return command


@click.command()
@click.option(
    "--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="Settings, in TOML."
)
@setting_options
@click.option(
    "--until-eof", is_flag=True, help="Stop when standard input ends: with whoever started it."
)
def node(file: Path | None, until_eof: bool, **flags: Any) -> None:
    """Run one peer until Ctrl-C.

    Settings come from the preset, then from --config, then from the environment (METEOR_LISTEN and
    so on), then from flags; later ones win. Once the peer is in the ring it prints `ready` and its
    address. It logs to standard error. Stopped, it keeps its data and comes back to its place;
    the others wait for it. `meteor leave` is how it goes for good.

    Examples:
      meteor node --listen 127.0.0.1:7400 --state peer-a
      meteor node --listen 127.0.0.1:7401 --state peer-b --join 127.0.0.1:7400
      meteor node --preset lab --advertise 192.168.1.20:7400 --join 192.168.1.10:7400
    """
    import trio

    from meteor.config import load_config, load_space

    flags["join"] = flags["join"] or None
    config = load_config(file, os.environ, flags)
    space = load_space(config.space)
    log_lines(config.log)
    trio.run(_serve, config, space, until_eof)


async def _serve(config: Config, space: Space, until_eof: bool) -> None:
    import trio

    from meteor.node.node import Node

    async with trio.open_nursery() as nursery:
        await nursery.start(_stop_on_signal, nursery.cancel_scope)
        if until_eof:
            nursery.start_soon(_stop_on_eof, nursery.cancel_scope)
        async with trio.open_nursery() as serving:
            address = await serving.start(Node(config, space).run)
            click.echo(f"ready {address}")
        nursery.cancel_scope.cancel()  # the peer has left the ring


async def _stop_on_signal(scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
    import trio

    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        task_status.started()
        async for number in signals:
            logging.getLogger("meteor.cli").info(
                "stopping: %s; the others wait for me to come back (`meteor leave` is for good)",
                signal.Signals(number).name,
            )
            scope.cancel()


async def _stop_on_eof(scope: trio.CancelScope) -> None:
    import trio

    def drain() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass

    await trio.to_thread.run_sync(drain, abandon_on_cancel=True)
    scope.cancel()


class LogLine(logging.Formatter):
    """`HH:MM:SS level  message`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        record.levelname = f"{record.levelname.lower():<7}"
        return super().format(record)


def log_lines(level: str) -> None:
    """Log to standard error, a line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLine("%(asctime)s %(levelname)s  %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
