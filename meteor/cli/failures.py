"""Errors as people see them: `meteor: what was wrong`, an exit code, and never a traceback.

0  done      1  it failed      2  wrong usage, or an answer that a part of the ring is missing from
130  ended by Ctrl-C before it was done
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import IO, Any

import click

FAILED = 1
INCOMPLETE = 2
INTERRUPTED = 130  # what shells expect of a command that was ended by Ctrl-C


class Failure(click.ClickException):
    """Ends a command with `meteor: message` on standard error."""

    exit_code = FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message as it is, line for line."""
        click.echo(f"meteor: {self.message}", file=file or sys.stderr)


def failure(error: Exception) -> Failure | None:
    """Return what to tell people about an error; None when it is a bug of ours."""
    words = [_words(cause) for cause in leaves(error)]
    if None in words:
        return None
    return Failure("\n".join(dict.fromkeys(filter(None, words))))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Give the errors themselves where a nursery has put them into a group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def _words(error: BaseException) -> str | None:
    """Return what to say about an error that is meant for people; None for any other."""
    from arms.errors import ArmsError
    from meteor.errors import MeteorError
    from squid.errors import SquidError

    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    if isinstance(error, (MeteorError, ArmsError, SquidError, OSError)):
        return str(error)
    return None
