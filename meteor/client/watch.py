"""Watches: standing messages at the ring, and async iterators of what they are notified of.

A watch is soft state: it lives at the ring for a short TTL and its client renews it. When the
client moves to another peer the same watch, with the same id, is posted again from there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import NamedTuple

import trio

from arms.message import Message
from meteor.client.results import Item, Receipt, made
from meteor.client.retrieval import Retrieval
from meteor.errors import ConnectionLost, NoAnswer
from meteor.limits import SEEN_IDS_MAX

WATCH_TTL_SECONDS = 60.0
"""How long a watch outlives a client that disappeared."""

RENEW_SECONDS = WATCH_TTL_SECONDS / 3
"""How often watches are renewed: two renewals may get lost."""

AGAIN_SECONDS = 5.0
"""The pause before a replay that was not complete is tried again."""

QUEUED_MAX = 10_000
"""Notifications that wait for a program to take them; further ones are lost and counted."""

ITEMS_PER_TURN = 2_048
"""Items that a program may take, if they are there, before other tasks have a turn: more than come
in with one read, so that one who does nothing else keeps up."""


class Watch:
    """An async iterator of items; `lost` counts those that did not get here.

    With a replay, what is stored already comes first. Whenever something may have been missed later
    (a reconnect, a queue that was full), what is stored is looked through again, and everything
    that was already given is left out.
    """

    ttl = WATCH_TTL_SECONDS
    """How long the watch stays at the ring when it is not renewed."""
    stays = False
    """Whether it stays there when its program goes."""

    def __init__(
        self,
        message: Message,
        replay: Callable[[], Retrieval] | None,
        look_seconds: float = math.inf,
    ) -> None:
        self.message = message
        self.messages = (message,)
        self.lost = 0
        self.receipt: Receipt | None = None
        """What the ring said when the watch was posted; `matches` counts what was there already."""
        self._replay = replay
        self._looked = 0.0
        self._look_seconds = look_seconds  # how often to look, though nothing seems to be missed
        self._behind = replay is not None
        self._seen: set[str] = set()
        self._seen_before: set[str] = set()
        self._queue: deque[Item] = deque()
        self._woken = trio.Event()
        self._closed = False
        self._turn = _Turn()
        self._replaying: Retrieval | None = None
        self._unfinished = False  # a part of the ring did not answer the last replay

    @property
    def id(self) -> str:
        """The id of the watch at the ring."""
        return self.message.id

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Item:
        await self._turn.take()
        while True:
            if self._queue and self._replaying is None and not self._behind:
                item: Item | None = self._queue.popleft()
            else:
                item = await self._next_stored() or await self._next_notified()
            if item is not None and self._is_new(item):
                return item

    async def _next_stored(self) -> Item | None:
        """Go on with the replay, or begin another if something may have been missed."""
        if self._behind and self._replay is not None and self._replaying is None:
            self._behind = False
            self._replaying = self._replay()
        if self._replaying is None:
            return None
        try:
            return await anext(self._replaying)
        except StopAsyncIteration:
            self._unfinished = not self._replaying.complete
        except (NoAnswer, ConnectionLost):
            self._unfinished = True
        self._replaying, self._looked = None, trio.current_time()
        return None

    async def _next_notified(self) -> Item | None:
        """Wait for a notification; None when it is time to look at what is stored."""
        seconds = AGAIN_SECONDS if self._unfinished else self._look_seconds
        with trio.move_on_at(self._looked + seconds):
            while not (self._queue or self._behind):
                if self._closed:
                    raise StopAsyncIteration
                self._woken = trio.Event()
                await self._woken.wait()
            return self._queue.popleft() if self._queue else None
        self._behind, self._unfinished = True, False
        return None

    def offer(self, items: Sequence[Item], watches: Sequence[str]) -> None:
        """Take notifications from the connection; `watches` are the ids that they are for."""
        room = QUEUED_MAX - len(self._queue)
        self._queue.extend(items[:room])
        self._woken.set()
        if len(items) > room:
            self.missed(len(items) - room)

    def missed(self, count: int) -> None:
        """Hear that notifications may not have come."""
        if self._replay is None:
            self.lost += count
            return
        self._behind = True
        self._woken.set()

    def close(self) -> None:
        """End the iteration once what is queued has been given."""
        self._closed = True
        self._woken.set()

    def _is_new(self, item: Item) -> bool:
        if item.id in self._seen or item.id in self._seen_before:
            return False
        if len(self._seen) >= SEEN_IDS_MAX // 2:
            self._seen, self._seen_before = set(), self._seen
        self._seen.add(item.id)
        return True


class Match(NamedTuple):
    """An item, and those of many watched profiles that it matches."""

    item: Item
    profiles: tuple[str, ...]


class WatchMany:
    """An async iterator of matches for many profiles; `lost` counts those that did not get here."""

    ttl = WATCH_TTL_SECONDS
    stays = False

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.lost = 0
        self.receipt: Receipt | None = None
        """What the ring said to the last of them."""
        self._profiles = {message.id: message.profile.text for message in messages}
        self._queue: deque[Match] = deque()
        self._woken = trio.Event()
        self._closed = False
        self._turn = _Turn()

    def __aiter__(self) -> WatchMany:
        return self

    async def __anext__(self) -> Match:
        await self._turn.take()
        while not self._queue:
            if self._closed:
                raise StopAsyncIteration
            self._woken = trio.Event()
            await self._woken.wait()
        return self._queue.popleft()

    def offer(self, items: Sequence[Item], watches: Sequence[str]) -> None:
        """Take notifications from the connection; `watches` are those of ours that they are for."""
        profiles = tuple([self._profiles[watch] for watch in watches])
        room = QUEUED_MAX - len(self._queue)
        self._queue.extend(map(made, repeat(Match), zip(items[:room], repeat(profiles))))
        self._woken.set()
        if len(items) > room:
            self.missed(len(items) - room)

    def missed(self, count: int) -> None:
        """Hear that notifications may not have come."""
        self.lost += count

    def close(self) -> None:
        """End the iteration once what is queued has been given."""
        self._closed = True
        self._woken.set()


class _Turn:
    """Gives other tasks a turn now and then, though there is always something to take."""

    def __init__(self) -> None:
        self._taken = 0

    async def take(self) -> None:
        """Take one more; before that, others may have their turn."""
        self._taken += 1
        if not self._taken % ITEMS_PER_TURN:
            await trio.lowlevel.checkpoint()
