"""Retrievals: async iterators over what matches, a page at a time, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace

from arms.aggregate import Aggregate
from arms.message import Message
from meteor.client.results import Item, item_of
from meteor.errors import ProtocolError
from meteor.matches import read_match
from meteor.transport.frames import Value

Turn = Callable[[Message, Value], Awaitable[Value]]
"""Asks the ring for the page of a message at a cursor."""


class Retrieval:
    """An async iterator of items.

    At its end `complete` says whether every responsible peer has answered; if not, `items` may be
    missing from what was given.
    """

    def __init__(self, message: Message, turn: Turn) -> None:
        self.complete = False
        self.lost: tuple[str, ...] = ()
        """Peers out of reach that may know of more: others answered in their place."""
        self.peers = 0
        self.matches = 0
        self.aggregate = Aggregate()
        self._message, self._turn = message, turn
        self._cursor: Value = None
        self._page: deque[Item] = deque()
        self._ended = False

    def __aiter__(self) -> Retrieval:
        return self

    async def __anext__(self) -> Item:
        while not self._page:
            if self._ended:
                raise StopAsyncIteration
            await self._turn_page()
        return self._page.popleft()

    async def all(self) -> list[Item]:
        """Return everything as a list."""
        return [item async for item in self]

    async def _turn_page(self) -> None:
        match await self._turn(self._message, self._cursor):
            case [
                list() as found,
                aggregate,
                int() as matches,
                int() as peers,
                cursor,
                bool() as progress,
                list() as lost,
            ]:
                self.aggregate = self.aggregate.merge(Aggregate.from_wire(aggregate))
                self.matches += matches
                self.peers = max(self.peers, peers)
                self.lost = tuple(sorted({*self.lost, *map(str, lost)}))
            case _:
                raise ProtocolError("what came is not a page")
        self._page.extend(item_of(read_match(entry)[1]) for entry in found)
        self._message, self._cursor = _less(self._message, len(found)), cursor
        self.complete = cursor is None or self._message.modifiers.limit == 0
        # Without progress the rest of the ring did not answer in all the time there was.
        self._ended = self.complete or not progress


def _less(message: Message, count: int) -> Message:
    """Return the message that asks for what is left of its limit."""
    limit = message.modifiers.limit
    if limit is None:
        return message
    return replace(message, modifiers=replace(message.modifiers, limit=limit - count))
