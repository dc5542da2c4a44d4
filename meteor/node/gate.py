"""A gate that many may pass at once, until somebody needs to be alone.

Errands pass it while they work on a peer's arc; the last step of a hand-over holds it closed, so
that no post lands in an arc that has just moved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class Gate:
    """Shared passage, exclusive closing. Closing waits for those inside; new ones wait outside."""

    def __init__(self) -> None:
        self._inside = 0
        self._closing = trio.Lock()
        self._opened = trio.Event()
        self._opened.set()
        self._empty = trio.Event()

    @property
    def is_open(self) -> bool:
        """Whether who comes passes at once; what needs no pause inside needs no `enter` then."""
        return self._opened.is_set()

    async def enter(self) -> None:
        """Pass, as soon as the gate is open; `leave` must follow."""
        while not self._opened.is_set():
            await self._opened.wait()
        self._inside += 1

    def leave(self) -> None:
        """Come out again."""
        self._inside -= 1
        if not self._inside:
            self._empty.set()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Keep the gate closed, alone inside."""
        async with self._closing:
            self._opened = trio.Event()
            try:
                while self._inside:
                    self._empty = trio.Event()
                    await self._empty.wait()
                yield
            finally:
                self._opened.set()
