"""The watches that a client has at the ring: posted, renewed, withdrawn, and told what came."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from arms.message import Action, Message, Modifiers, weight
from meteor.client.requests import batches
from meteor.client.results import Receipt, items_of
from meteor.client.watch import RENEW_SECONDS, Watch, WatchMany
from meteor.errors import InputError, MeteorError, ProtocolError
from meteor.limits import WATCHES_PER_CLIENT_MAX
from meteor.notifications import read
from meteor.transport.channel import Channel
from meteor.transport.frames import Value

log = logging.getLogger("meteor.client")

PostAll = Callable[[Sequence[Message], Sequence[float]], Awaitable[Sequence[Receipt | MeteorError]]]
Request = Callable[[str, Value], Awaitable[Value]]


class Standing:
    """Watches by the ids of their messages at the ring."""

    def __init__(self, post: PostAll, request: Request, ids: Iterator[str], seconds: float) -> None:
        self.notifications = 0
        self._post, self._request, self._ids, self._seconds = post, request, ids, seconds
        self._watches: dict[str, Watch | WatchMany] = {}

    def __len__(self) -> int:
        return len(self._watches)

    @asynccontextmanager
    async def hold(self, watch: Watch | WatchMany) -> AsyncIterator[None]:
        """Keep a watch at the ring."""
        mine = {message.id: watch for message in watch.messages}
        if len(self._watches) + len(mine) > WATCHES_PER_CLIENT_MAX:
            raise InputError(f"a client has at most {WATCHES_PER_CLIENT_MAX} watches")
        if mine.keys() & self._watches.keys():
            raise InputError("this client has this watch already")
        self._watches |= mine
        refused = False
        try:
            for outcome in await self._post_all(watch.messages, watch.ttl):
                if isinstance(outcome, MeteorError):
                    refused = isinstance(outcome, InputError) and len(mine) == 1
                    raise outcome
                watch.receipt = outcome
            yield
        finally:
            for id_ in mine:
                del self._watches[id_]
            watch.close()
            if not (refused or watch.stays):
                with trio.move_on_after(self._seconds) as scope:
                    scope.shield = True
                    await self._withdraw(watch)

    async def _withdraw(self, watch: Watch | WatchMany) -> None:
        deletes = []
        for message in watch.messages:
            header = replace(message.header, id=next(self._ids))
            wanted = Modifiers(only=message.id)
            deletes.append(Message(header, Action.DELETE_INTEREST, b"", wanted))
        try:
            for outcome in await self._post_all(deletes, 0):
                if isinstance(outcome, MeteorError):
                    raise outcome
        except MeteorError as error:
            log.info("a watch was not withdrawn: %s; it runs out by itself", error)

    async def _post_all(
        self, messages: Sequence[Message], ttl: float
    ) -> list[Receipt | MeteorError]:
        outcomes: list[Receipt | MeteorError] = []
        for batch in batches(messages, weight):
            outcomes += await self._post(batch, [ttl] * len(batch))
        return outcomes

    def pushed(self, method: str, body: Value) -> None:
        """Hand notifications to their watches."""
        match method, body:
            case "notify", [*notified, int() as missed]:
                for told, ids in read(notified):
                    self.notifications += len(ids) * len(told)
                    items = items_of(told)
                    for watch, theirs in self._whose(ids).items():
                        watch.offer(items, theirs)
                if missed:
                    for watch in self._each():
                        watch.missed(missed)
            case _:
                raise ProtocolError(f"nobody waits for {method!r}")

    def _whose(self, ids: list[Value]) -> dict[Watch | WatchMany, list[str]]:
        """Return the ids of each watch; those of watches that are over are left out."""
        whose: dict[Watch | WatchMany, list[str]] = {}
        for id_ in ids:
            if type(id_) is str and (watch := self._watches.get(id_)):
                whose.setdefault(watch, []).append(id_)
        return whose

    async def restore(self, channel: Channel) -> None:
        """Post the watches again through a peer that one has just moved to."""
        for posts in self._posts():
            await channel.request("post", [posts, self._seconds], self._seconds)
        for watch in self._each():
            if watch.receipt is not None:
                watch.missed(0)

    async def renew(self) -> None:
        """Renew the watches now and then, until cancelled."""
        while True:
            await trio.sleep(RENEW_SECONDS)
            try:
                for posts in self._posts():
                    await self._request("post", [posts, self._seconds])
            except MeteorError as error:
                log.info("watches are not renewed: %s; trying again", error)

    def _posts(self) -> Iterator[Value]:
        """Give the watches as requests to post."""
        standing = [(message, watch.ttl) for watch in self._each() for message in watch.messages]
        for batch in batches(standing, lambda entry: weight(entry[0])):
            yield [[message.to_wire(), ttl] for message, ttl in batch]

    def _each(self) -> Sequence[Watch | WatchMany]:
        """Return every watch once."""
        return tuple(dict.fromkeys(self._watches.values()))
