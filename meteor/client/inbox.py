"""Reliable watches: their notifications wait in an inbox at the ring until they are acknowledged.

The inbox is read by an ordinary watch with a replay, so what waits comes first, then what comes,
and after a reconnect it is looked through again. The ring delivers at least once; what came twice
is left out here. A note is acknowledged, by deleting it, when the program asks for the next item.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from arms.errors import MessageError
from arms.message import Message
from arms.notes import Note
from meteor.client.results import Item, item_of
from meteor.client.retrieval import Retrieval
from meteor.client.watch import AGAIN_SECONDS, WATCH_TTL_SECONDS, Watch
from meteor.errors import ConnectionLost, MeteorError, NoAnswer
from meteor.limits import ACK_SECONDS, ACKS_PER_REQUEST

log = logging.getLogger("meteor.client")

GOODBYE_ACK_SECONDS = 5.0
"""What the last acknowledgements may take; those that fail come again."""

Delete = Callable[[str, Sequence[str]], Awaitable[None]]
"""Deletes data of a profile by their ids."""


INBOX_LOOK_SECONDS = 30.0
"""How often a reader looks through its inbox: notes that came in with another part of the ring, or
with a copy, are not announced."""


class ReliableWatch(Watch):
    """An async iterator of items, each given once; `lost` counts times that the inbox was full.

    After that, what is stored is looked through, so that what is still at the ring is found.
    """

    stays = True

    def __init__(
        self,
        message: Message,
        inbox: Watch,
        stored: Callable[[], Retrieval],
        replay: bool,
        delete: Delete,
    ) -> None:
        super().__init__(message, None)
        assert message.modifiers.keep is not None
        # The watch itself lives at least as long as a plain one, which its renewals are made for.
        self.ttl = max(message.modifiers.keep, WATCH_TTL_SECONDS)
        self._inbox, self._stored, self._delete = inbox, stored, delete
        self._looking: Retrieval | None = stored() if replay else None
        self._given: str | None = None  # the note that the program deals with
        self._acks: list[str] = []

    async def __anext__(self) -> Item:
        self._dealt_with()
        while True:
            if self._looking is not None:
                item = await self._look(self._looking)
                if item is not None and self._is_new(item):
                    return item
                continue
            note = await self._next_note()
            item = self._read(note)
            if item is not None and self._is_new(item):
                self._given = note.id
                return item
            if item is not None:
                self._acks.append(note.id)

    def missed(self, count: int) -> None:
        """Nothing is pushed to this watch; its inbox is told instead."""

    @asynccontextmanager
    async def acknowledging(self) -> AsyncIterator[None]:
        """Acknowledge the rest at the end; the last item only if no error came from the body."""
        try:
            yield
            self._dealt_with()
        finally:
            with trio.move_on_after(GOODBYE_ACK_SECONDS) as scope:
                scope.shield = True
                while self._acks and await self._acknowledge():
                    pass

    def _dealt_with(self) -> None:
        if self._given is not None:
            self._acks.append(self._given)
            self._given = None

    async def _look(self, looking: Retrieval) -> Item | None:
        """Go on looking through what is stored; None when something else is to be done first."""
        try:
            return await anext(looking)
        except StopAsyncIteration:
            if looking.complete:
                self._looking = None
                return None
        except (NoAnswer, ConnectionLost) as error:
            log.info("what is stored could not be looked through: %s; trying again", error)
        self._looking = self._stored()
        await trio.sleep(AGAIN_SECONDS)
        return None

    def _read(self, item: Item) -> Item | None:
        """Return what a note is about, if it is for this watch."""
        try:
            note = Note.read(item.data)
        except MessageError as error:
            log.warning("%s: %s", item.id, error)
            return None
        if note.watch != self.id:
            return None
        if note.about is None:
            self.lost += 1
            self._acks.append(item.id)
            self._looking = self._stored()
            return None
        return item_of(note.about)

    async def _next_note(self) -> Item:
        """Wait for a note; acknowledge the earlier ones when there are many, or time for it."""
        failed = False
        while self._acks:
            if failed or len(self._acks) < ACKS_PER_REQUEST:
                with trio.move_on_after(AGAIN_SECONDS if failed else ACK_SECONDS):
                    return await anext(self._inbox)
            failed = not await self._acknowledge()
        return await anext(self._inbox)

    async def _acknowledge(self) -> bool:
        batch = self._acks[:ACKS_PER_REQUEST]
        try:
            await self._delete(self._inbox.message.profile.text, batch)
        except MeteorError as error:
            log.info("notes are not acknowledged: %s; trying again", error)
            return False
        del self._acks[: len(batch)]
        return True


async def notes_of(watch: str, inbox: Retrieval) -> list[str]:
    """Return the ids of the notes of one watch in an inbox."""
    ids = []
    async for item in inbox:
        try:
            if Note.read(item.data).watch == watch:
                ids.append(item.id)
        except MessageError as error:
            log.warning("%s: %s", item.id, error)
    return ids
