"""The `meteor` command: the group of all commands."""

from __future__ import annotations

import sys

import click

from meteor.cli.bench import bench
from meteor.cli.completion import completion
from meteor.cli.failures import INTERRUPTED
from meteor.cli.find import retrieve, unwatch, watch
from meteor.cli.group import Commands
from meteor.cli.node import node
from meteor.cli.post import delete, post
from meteor.cli.ring import forget, leave, ring, status
from meteor.cli.simulate import simulate
from meteor.cli.simulate_cores import simulate_cores
from meteor.cli.space import space
from meteor.cli.trace import trace
from meteor.cli.up import up
from meteor.version import VERSION


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(VERSION, prog_name="meteor")
def cli() -> None:
    """Post by what a message is about, from any peer, to all who are interested.

    Begin with `meteor up`: it starts a ring on this machine and says how to use it.
    """


for command in (
    up,
    post,
    retrieve,
    watch,
    unwatch,
    delete,
    trace,
    ring,
    status,
    space,
    node,
    leave,
    forget,
    simulate,
    simulate_cores,
    bench,
    completion,
):
    cli.add_command(command)


def main() -> None:
    """Run the command that the shell asks for; Ctrl-C, whenever it comes, ends it quietly."""
    try:
        sys.exit(cli.main(prog_name="meteor", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
