"""A ring on this machine: `meteor up`."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from squid import Space

HOST = "127.0.0.1"
PORT = 7400
PORT_MAX = 65_535
PEERS_MAX = 64
"""Processes on one machine: the size of the paper's testbed."""

SAMPLES = {"type": "temperature", "location": "hall", "degree": "91"}
"""Values for the example commands, for the dimensions of the sample space."""


@click.command()
@click.option(
    "--peers",
    type=click.IntRange(1, PEERS_MAX),
    default=5,
    show_default=True,
    help="How many peers, each a process of its own.",
)
@click.option(
    "--port",
    type=click.IntRange(1, PORT_MAX),
    default=PORT,
    show_default=True,
    help="The port of the first peer; the others have the next ones.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".meteor/ring"),
    show_default=True,
    metavar="FOLDER",
    help="Where the data are kept: peer-0, peer-1 and so on.",
)
@click.option(
    "--space",
    "space_file",
    default="",
    envvar="METEOR_SPACE",
    metavar="FILE",
    help="The information space; without it the sample space, lab.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show all that the peers log.")
def up(peers: int, port: int, state: Path, space_file: str, verbose: bool) -> None:
    """Run a ring on this machine until Ctrl-C.

    It says how to post to it, and then only shows warnings and what changes in the ring. The data
    stay when it is stopped: the same command brings the same ring back.

    Examples:
      meteor up
      meteor up --peers 16 --port 9000 --state big-ring
      meteor up --space house.toml
    """
    import trio

    from meteor.cli.local_ring import LocalRing
    from meteor.config import load_space

    if port + peers - 1 > PORT_MAX:
        raise click.UsageError(
            f"{peers} peers need the ports {port} to {port + peers - 1}; {PORT_MAX} is the last"
        )
    space = load_space(space_file)
    ring = LocalRing(
        [f"{HOST}:{port + i}" for i in range(peers)],
        state,
        space_file,
        verbose,
        lambda: click.echo(_how_to_use(peers, port, state, space)),
    )
    if left_out := ring.left_out():
        click.echo(
            f"meteor: {state} also has the data of {', '.join(left_out)}; they are not in the ring "
            f"without --peers {peers + len(left_out)}",
            err=True,
        )
    sys.exit(trio.run(ring.run))


def _how_to_use(peers: int, port: int, state: Path, space: Space) -> str:
    """Return the welcome: commands that can be copied as they are."""
    meteor = command_path()
    at = "" if port == PORT else f" --peer {HOST}:{port}"
    data = ", ".join(f"{d.name}={_sample(space, i)}" for i, d in enumerate(space.dimensions))
    interest = f"{space.dimensions[0].name}=*"
    if space.dimensions[0].name in SAMPLES:
        interest = f"{space.dimensions[0].name}={_sample(space, 0)[:4]}*"
    commands = [
        f"watch {shlex.quote(interest)}",
        f"post {shlex.quote(data)} 'hello, ring'",
        f"retrieve {shlex.quote(interest)}",
        f"trace {shlex.quote(interest)}",
        "ring",
    ]
    last = f" to {port + peers - 1}" if peers > 1 else ""
    ring = f"A ring of {peers} peers is" if peers > 1 else "A ring of one peer is"
    lines = [
        "",
        click.style(f"{ring} up at {HOST}:{port}{last}.", bold=True),
        f"Space: {space.name} ({', '.join(d.name for d in space.dimensions)}). Data: {state}",
        "",
        "In another shell:",
        *(click.style(f"  {meteor} {command}{at}", fg="cyan") for command in commands),
        "",
        "Ctrl-C stops it; the data stay.",
    ]
    return "\n".join(lines)


def _sample(space: Space, place: int) -> str:
    dimension = space.dimensions[place]
    codec = dimension.codec.describe()
    low, high = codec.get("min"), codec.get("max")
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        return SAMPLES.get(dimension.name, "example")
    sample = SAMPLES.get(dimension.name, "")
    if sample and low <= float(sample) <= high:
        return sample
    return f"{(low + high) / 2:g}"


def command_path() -> str:
    """Return how to call `meteor` from here: by its name if the shell finds this very one."""
    here = Path(sys.executable).parent / "meteor"
    found = shutil.which("meteor")
    if found and Path(found).resolve() == here.resolve():
        return "meteor"
    if not here.exists():
        return f"{shlex.quote(sys.executable)} -m meteor"
    if here.is_relative_to(Path.cwd()):
        here = here.relative_to(Path.cwd())
    return shlex.quote(str(here))
