"""What commands that talk to a ring share: their options, the connection, and how they end."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from meteor.cli.failures import INTERRUPTED, Failure

if TYPE_CHECKING:
    import trio

    from meteor.client import Ring

Command = TypeVar("Command", bound=Callable[..., Any])
T = TypeVar("T")

DEFAULT_PEER = "127.0.0.1:7400"
HOW_TO_START = (
    "Start a local ring with `make up` or `meteor up`, or name another peer with --peer HOST:PORT."
)
TIDY_SECONDS = 1.0
"""After Ctrl-C: time to withdraw a watch from the ring, if the ring is still there."""


@dataclass(frozen=True)
class Access:
    """How to reach the ring, from the options of a command."""

    peers: tuple[str, ...]
    seconds: float
    credential: str = ""

    def run(self, work: Callable[[Ring], Awaitable[T]], *, endless: bool = False) -> T | None:
        """Connect and do the work; Ctrl-C ends it in order.

        Work that is endless has done its job when it is interrupted: it returns None.
        """
        import trio

        _log_to_standard_error(logging.INFO if endless else logging.WARNING)
        return trio.run(self._run, work, endless)

    async def _run(self, work: Callable[[Ring], Awaitable[T]], endless: bool) -> T | None:
        import trio

        from meteor.background import background_nursery
        from meteor.client import connect
        from meteor.errors import NoRing

        working, everything = trio.CancelScope(), trio.CancelScope()
        async with background_nursery() as nursery:
            await nursery.start(_cancel_on_signal, working, everything)
            with everything:
                try:
                    async with connect(
                        *self.peers, name=_name(), credential=self.credential, seconds=self.seconds
                    ) as ring:
                        with working:
                            return await work(ring)
                except NoRing as error:
                    raise Failure(f"{error}\n{HOW_TO_START}") from error
        if not endless:
            raise click.exceptions.Exit(INTERRUPTED)
        return None


def client_command(command: Command) -> Command:
    """Give a command the options that all clients have; it is called with an `Access`."""
    import functools

    @click.option(
        "--peer",
        "peers",
        metavar="HOST:PORT",
        envvar="METEOR_PEER",
        default=DEFAULT_PEER,
        show_default=True,
        show_envvar=True,
        callback=_addresses,
        help="A peer of the ring; several are separated by commas.",
    )
    @click.option(
        "--seconds",
        type=click.FloatRange(0, 300, min_open=True),
        default=10.0,
        show_default=True,
        help="How long the ring may take to answer.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @functools.wraps(command)
    def wrapped(peers: tuple[str, ...], seconds: float, **options: Any) -> Any:
        return command(Access(peers, seconds, options.pop("credential", "")), **options)

    return wrapped  # type: ignore[return-value]  # click decorators keep what they wrap


def credential_option(command: Command) -> Command:
    """Give a client command --credential, which becomes part of its `Access`."""
    return click.option(
        "--credential",
        default="",
        metavar="TEXT",
        envvar="METEOR_CREDENTIAL",
        show_envvar=True,
        help="What is posted with it is deleted or consumed only with the same one.",
    )(command)


async def _cancel_on_signal(
    working: trio.CancelScope,
    everything: trio.CancelScope,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """On Ctrl-C cancel the work, and the connection only when that has had time to tidy up.

    A second Ctrl-C ends everything at once.
    """
    import trio

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            break
    working.cancel()
    await trio.sleep(TIDY_SECONDS)
    everything.cancel()


def _addresses(ctx: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    addresses = tuple(entry.strip() for entry in value.split(",") if entry.strip())
    if not addresses:
        raise click.BadParameter("give the address of a peer, such as 127.0.0.1:7400")
    return addresses


def _name() -> str:
    """Return who the person is to others, as far as the system knows."""
    return os.environ.get("USER", "") or "client"


def _log_to_standard_error(level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("meteor: %(message)s"))
    logger = logging.getLogger("meteor")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(level)
