"""A group of commands: their order, their help, and what becomes of their errors."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any

import click

from meteor.cli.failures import INTERRUPTED, failure, leaves


class Commands(click.Group):
    """Lists commands in the order in which one comes to need them; none ends in a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names as they were added."""
        return list(self.commands)

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, whose examples keep their lines in its help."""
        cmd.help = _with_examples(cmd.help)
        super().add_command(cmd, name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; errors that are meant for people become one line for them."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a reader that is gone can still be noticed
            return result
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if any(isinstance(cause, BrokenPipeError) for cause in leaves(error)):
                _forget_standard_output()
                ctx.exit(0)
            if (for_people := failure(error)) is None:
                raise
            raise for_people from error
        except BaseExceptionGroup as group:  # a Ctrl-C that came while trio's nurseries were open
            if any(isinstance(cause, KeyboardInterrupt) for cause in leaves(group)):
                ctx.exit(INTERRUPTED)
            raise


def _with_examples(text: str | None) -> str | None:
    """Mark paragraphs that have indented lines, as click wants it: they are not wrapped."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(f"\b\n{p}" if "\n  " in p else p for p in paragraphs) or None


def _forget_standard_output() -> None:
    """Have what is still buffered go nowhere: `| head` has seen enough."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
