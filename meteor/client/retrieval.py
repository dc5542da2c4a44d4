"""Retrievals: async iterators over what matches, a page at a time, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace

from arms.aggregate import Aggregate
from arms.message import Message
from meteor.client.results import Item, item_of
from meteor.errors import ProtocolError
from meteor.node.errands import read_found
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
        self.peers = 0
        self.matches = 0
        self.aggregate = Aggregate()
        self._message, self._turn = message, turn
        self._items = self._iterate()

    def __aiter__(self) -> Retrieval:
        return self

    async def __anext__(self) -> Item:
        return await self._items.__anext__()

    async def all(self) -> list[Item]:
        """Return everything as a list."""
        return [item async for item in self]

    async def _iterate(self) -> AsyncGenerator[Item, None]:
        message, cursor = self._message, None
        while True:
            match await self._turn(message, cursor):
                case [
                    list() as found,
                    aggregate,
                    int() as matches,
                    int() as peers,
                    cursor,
                    bool() as progress,
                ]:
                    self.aggregate = self.aggregate.merge(Aggregate.from_wire(aggregate))
                    self.matches += matches
                    self.peers = max(self.peers, peers)
                case _:
                    raise ProtocolError("what came is not a page")
            for entry in found:
                yield item_of(read_found(entry).message)
            message = _less(message, len(found))
            if cursor is None or message.modifiers.limit == 0:
                self.complete = True
                return
            if not progress:  # the rest of the ring did not answer in all the time there was
                return


def _less(message: Message, count: int) -> Message:
    """Return the message that asks for what is left of its limit."""
    limit = message.modifiers.limit
    if limit is None:
        return message
    return replace(message, modifiers=replace(message.modifiers, limit=limit - count))
