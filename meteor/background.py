"""A nursery for what runs beside a body, and ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are cancelled when the body is done.

    What the body raises leaves as it is, and so does what a task raises: users catch `NoAnswer`,
    not a group with a `NoAnswer` in it.
    """
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except Exception as error:  # noqa: BLE001 - raised again outside of the nursery
                failure = error
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__
    if failure is not None:
        raise failure
