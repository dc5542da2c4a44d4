"""`connect` and `Ring`: what a program calls."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any

import trio

from arms.inbox import inbox_profile
from arms.message import Action, Header, Message, Modifiers, weight
from arms.notes import watch_id
from arms.profile import Profile
from meteor.background import background_nursery
from meteor.client.connection import Connection
from meteor.client.inbox import INBOX_LOOK_SECONDS, ReliableWatch, notes_of
from meteor.client.requests import batches, checked_action, checked_modifiers, failed, input_errors
from meteor.client.results import (
    TTL_SECONDS,
    Aggregated,
    Consumed,
    Post,
    Receipt,
    RingReport,
    item_of,
    read_outcome,
)
from meteor.client.retrieval import Retrieval
from meteor.client.watch import RENEW_SECONDS, Watch
from meteor.errors import Busy, InputError, MeteorError, NoAnswer, NoRing, ProtocolError
from meteor.limits import KEEP_SECONDS, WATCHES_PER_CLIENT_MAX
from meteor.matches import read_match
from meteor.transport.channel import Channel
from meteor.transport.frames import Value
from meteor.transport.network import Network
from meteor.transport.tcp import TcpNetwork

if TYPE_CHECKING:
    from meteor.node.errands import Trace

log = logging.getLogger("meteor.client")

DEADLINE_SECONDS = 10.0
"""How long an operation may take when the program does not say."""

ANSWER_SLACK_SECONDS = 2.0
"""What a peer's answer may take beyond the deadline that the peer itself keeps."""

REQUESTS_IN_FLIGHT = 16
"""Requests that `post_many` keeps on their way."""


@asynccontextmanager
async def connect(
    *addresses: str,
    name: str = "",
    credential: str = "",
    seconds: float = DEADLINE_SECONDS,
    network: Network | None = None,
    random: Random | None = None,
) -> AsyncIterator[Ring]:
    """Connect to a ring through any of its peers; when that peer dies, through another.

    `name` tells others who sent a message; `credential` protects what is posted from being deleted
    or consumed by others. `seconds` bounds every operation.
    """
    if not addresses:
        raise NoRing("connect needs the address of a peer, such as 127.0.0.1:7400")
    random = random or SystemRandom()
    client = f"{name or 'client'}-{random.getrandbits(64):016x}"
    connection = Connection(network or TcpNetwork(), addresses, client, random)
    ring = Ring(connection, client, credential, seconds, random)
    async with background_nursery() as nursery:
        await nursery.start(connection.keep, ring._pushed, ring._restore)
        nursery.start_soon(ring._renew)
        yield ring


class Ring:
    """A ring, as a program uses it. Made by `connect`."""

    def __init__(
        self, connection: Connection, client: str, credential: str, seconds: float, random: Random
    ) -> None:
        self.client = client
        """Who this client is to others: the sender of its messages."""
        self._connection, self._credential = connection, credential
        self._seconds, self._random = seconds, random
        self._watches: dict[str, Watch] = {}
        self._notifications = 0

    # -- posting -----------------------------------------------------------------------------------

    async def post(
        self,
        profile: str,
        action: Action | str = Action.STORE,
        data: bytes | str = b"",
        *,
        ttl: float = TTL_SECONDS,
        context: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Post one message: the primitive that everything else is made of."""
        (outcome,) = await self._post([self._message(profile, action, data, context)], [ttl])
        if isinstance(outcome, MeteorError):
            raise outcome
        return outcome

    async def store(
        self,
        profile: str,
        data: bytes | str = b"",
        *,
        ttl: float = TTL_SECONDS,
        context: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Store data under a profile; whoever watches for it is notified."""
        return await self.post(profile, Action.STORE, data, ttl=ttl, context=context)

    async def post_many(self, posts: Iterable[Post]) -> list[Receipt]:
        """Post many messages, many at a time; the receipts come in the order of the posts.

        A post that fails has its reason in the receipt's `error`; the others are not affected.
        """
        parts = batches(posts, lambda post: len(post.data) + len(post.profile))
        receipts: list[list[Receipt]] = [[] for _ in parts]
        limiter = trio.CapacityLimiter(REQUESTS_IN_FLIGHT)

        async def send(i: int) -> None:
            async with limiter:
                receipts[i] = await self._post_batch(parts[i])

        async with trio.open_nursery() as nursery:
            for i in range(len(parts)):
                nursery.start_soon(send, i)
        return [receipt for batch in receipts for receipt in batch]

    async def _post_batch(self, posts: Sequence[Post]) -> list[Receipt]:
        receipts: dict[int, Receipt] = {}
        messages: dict[int, Message] = {}
        for i, post in enumerate(posts):
            try:
                messages[i] = self._message(post.profile, post.action, post.data, post.context)
            except MeteorError as error:
                receipts[i] = failed("", error)
        outcomes: Sequence[Receipt | MeteorError]
        try:
            outcomes = await self._post(list(messages.values()), [posts[i].ttl for i in messages])
        except Busy as error:
            outcomes = [error] * len(messages)  # refused before anything happened
        except MeteorError as error:
            unsure = NoAnswer(f"{error}; it may or may not be stored")
            outcomes = [unsure] * len(messages)
        for (i, message), outcome in zip(messages.items(), outcomes, strict=True):
            if isinstance(outcome, MeteorError):
                outcome = failed(message.id, outcome)
            receipts[i] = outcome
        return [receipts[i] for i in range(len(posts))]

    async def delete(
        self, profile: str, *, interests: bool = False, only: str | None = None
    ) -> Receipt:
        """Delete all data (or interests) that a profile selects; `matches` counts them.

        `only` names the id of the one message to delete. What was posted with a credential is
        deleted only with the same one.
        """
        action = Action.DELETE_INTEREST if interests else Action.DELETE_DATA
        message = self._message(profile, action, b"", None, checked_modifiers(only=only))
        (outcome,) = await self._post([message], [0])
        if isinstance(outcome, MeteorError):
            raise outcome
        return outcome

    # -- finding -----------------------------------------------------------------------------------

    def retrieve(self, profile: str, *, limit: int | None = None) -> Retrieval:
        """Look for data: `async for item in ring.retrieve(...)`, or `.all()` for a list.

        `limit=1` is any one match. Matches come page by page, so there may be any number of them.
        """
        message = self._message(profile, Action.RETRIEVE, b"", None, checked_modifiers(limit=limit))
        return Retrieval(message, self._turn)

    async def aggregate(
        self, profile: str, name: str = "count", attribute: str | None = None
    ) -> Aggregated:
        """Compute count, min, max, sum or avg of an attribute, at the peers that have the data."""
        wanted = checked_modifiers(aggregate=name, attribute=attribute)
        retrieval = Retrieval(
            self._message(profile, Action.RETRIEVE, b"", None, wanted), self._turn
        )
        await retrieval.all()
        result = retrieval.aggregate.result(name)
        return Aggregated(result, retrieval.matches, retrieval.complete, retrieval.lost)

    async def consume(self, profile: str, *, limit: int = 1) -> Consumed:
        """Take matching data off the ring: each item goes to exactly one taker.

        When the connection is lost meanwhile, `ConnectionLost` says that it may have happened.
        """
        message = self._message(profile, Action.RETRIEVE, b"", None, checked_modifiers(limit=limit))
        body = [message.to_wire(), self._seconds]
        match await self._request("consume", body, repeatable=False):
            case [list() as found, bool() as complete]:
                return Consumed(tuple(item_of(read_match(entry)[1]) for entry in found), complete)
            case _:
                raise ProtocolError("what came are not consumed items")

    # -- watching ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def watch(
        self,
        profile: str,
        *,
        replay: bool = False,
        reliable: str | None = None,
        keep: float = KEEP_SECONDS,
    ) -> AsyncIterator[Watch]:
        """Be notified of data: `async with ring.watch(...) as matches: async for match in matches`.

        With `replay` what is stored already comes first, then what comes; nothing is left out in
        between and nothing comes twice. `reliable` names an inbox at the ring, where notifications
        wait for `keep` seconds until they are acknowledged: each is when the next is asked for. The
        watch stays when the program goes; whoever watches so again goes on where it was.
        """

        def stored() -> Retrieval:
            return self.retrieve(profile)

        if reliable is None:
            watch = Watch(self._message(profile, Action.NOTIFY_DATA), stored if replay else None)
            async with self._standing(watch):
                yield watch
            return
        message = self._reliable(profile, reliable, keep)
        notes = inbox_profile(reliable).text
        inbox = Watch(
            self._message(notes, Action.NOTIFY_DATA),
            lambda: self.retrieve(notes),
            INBOX_LOOK_SECONDS,
        )
        kept = ReliableWatch(message, inbox, stored, replay, self._delete_each)
        async with self._standing(inbox), self._standing(kept), kept.acknowledging():
            yield kept

    async def unwatch(self, profile: str, *, reliable: str) -> Receipt:
        """Withdraw a reliable watch and empty its inbox of what is its own."""
        watch = self._reliable(profile, reliable, KEEP_SECONDS)
        receipt = await self.delete(profile, interests=True, only=watch.id)
        inbox = inbox_profile(reliable).text
        notes = await notes_of(watch.id, self.retrieve(inbox))
        for batch in batches(notes, len):
            await self._delete_each(inbox, batch)
        return receipt

    def _reliable(self, profile: str, inbox: str, keep: float) -> Message:
        wanted = checked_modifiers(inbox=inbox, keep=keep)
        message = self._message(profile, Action.NOTIFY_DATA, wanted=wanted)
        header = replace(message.header, id=watch_id(inbox, message.profile.text))
        return replace(message, header=header)

    async def _delete_each(self, profile: str, ids: Sequence[str]) -> None:
        """Delete data by their ids, in one request."""
        deletes = [
            self._message(profile, Action.DELETE_DATA, wanted=checked_modifiers(only=id_))
            for id_ in ids
        ]
        for outcome in await self._post(deletes, [0] * len(deletes)):
            if isinstance(outcome, MeteorError):
                raise outcome
            if not outcome.complete:
                raise NoAnswer("a part of the ring did not answer")

    @asynccontextmanager
    async def notify_interest(self, profile: str) -> AsyncIterator[Watch]:
        """Be notified of interests in data that one could post: those there are and will be."""
        watch = Watch(self._message(profile, Action.NOTIFY_INTEREST), None)
        async with self._standing(watch):
            yield watch

    @asynccontextmanager
    async def _standing(self, watch: Watch) -> AsyncIterator[None]:
        """Keep a watch at the ring."""
        if len(self._watches) >= WATCHES_PER_CLIENT_MAX:
            raise InputError(f"a client has at most {WATCHES_PER_CLIENT_MAX} watches")
        if watch.id in self._watches:
            raise InputError("this client has this watch already")
        self._watches[watch.id] = watch
        refused = False
        try:
            (outcome,) = await self._post([watch.message], [watch.ttl])
            if isinstance(outcome, MeteorError):
                refused = isinstance(outcome, InputError)
                raise outcome
            watch.receipt = outcome
            yield
        finally:
            del self._watches[watch.id]
            watch.close()
            if not (refused or watch.stays):
                with trio.move_on_after(self._seconds) as scope:
                    scope.shield = True
                    await self._withdraw(watch)

    async def _withdraw(self, watch: Watch) -> None:
        try:
            await self.delete(str(watch.message.profile), interests=True, only=watch.id)
        except MeteorError as error:
            log.info("a watch was not withdrawn: %s; it runs out by itself", error)

    # -- looking at the ring -----------------------------------------------------------------------

    async def statistics(self) -> dict[str, Any]:
        """Return how the peer that serves this client is, and what the client has seen."""
        status = await self._request("status", None)
        if not isinstance(status, dict):
            raise ProtocolError("what came is not a status")
        return {
            "client": self.client,
            "peer": status,
            "watches": len(self._watches),
            "notifications": self._notifications,
            "reconnects": self._connection.reconnects,
        }

    async def report(self) -> RingReport:
        """Ask every peer of the ring how it is."""
        match await self._request("survey", [self._seconds]):
            case [list() as peers, bool() as complete, int() | float() as missing]:
                # A peer that was asked twice, as the ring changed, counts with its last word.
                latest = {int(peer["id"]): peer for peer in peers}
                ordered = tuple(latest[id_] for id_ in sorted(latest))
                return RingReport(ordered, complete, missing)
            case _:
                raise ProtocolError("what came is not a report")

    async def trace(
        self, profile: str, action: Action | str = Action.RETRIEVE
    ) -> tuple[list[Trace], bool]:
        """Return the tree that a post takes through the ring, and whether it reached everyone."""
        from meteor.node.errands import Trace  # with the rest of a peer: few programs need it

        message = self._message(profile, action)
        match await self._request("trace", [message.to_wire(), self._seconds]):
            case [list() as traces, bool() as complete]:
                return [Trace.from_wire(trace) for trace in traces], complete
            case _:
                raise ProtocolError("what came is not a trace")

    async def space(self) -> str:
        """Return the ring's information space, as TOML."""
        return str(await self._request("space", None))

    async def leave(self) -> None:
        """Have the peer that serves this client hand over its arc and leave the ring."""
        await self._request("leave", None, repeatable=False)

    # -- the connection ----------------------------------------------------------------------------

    def _message(
        self,
        profile: str,
        action: Action | str = Action.STORE,
        data: bytes | str = b"",
        context: Mapping[str, str] | None = None,
        wanted: Modifiers | None = None,
    ) -> Message:
        with input_errors():
            parsed = Profile.parse(profile)
        header = Header(
            parsed,
            f"{self._random.getrandbits(128):032x}",
            credential=self._credential,
            context=context or {},
        )
        if not isinstance(data, (bytes, bytearray, memoryview, str)):
            raise InputError(
                f"data are bytes or text, not {type(data).__name__}: encode them first"
            )
        payload = data.encode() if isinstance(data, str) else bytes(data)
        return Message(header, checked_action(action), payload, wanted or Modifiers())

    async def _post(
        self, messages: Sequence[Message], ttls: Sequence[float]
    ) -> list[Receipt | MeteorError]:
        for ttl in ttls:
            if isinstance(ttl, bool) or not isinstance(ttl, (int, float)):
                raise InputError(f"a TTL is a number of seconds, not {ttl!r}")
        posts = [[m.to_wire(), ttl] for m, ttl in zip(messages, ttls, strict=True)]
        outcomes = await self._request("post", [posts, self._seconds])
        if not isinstance(outcomes, list) or len(outcomes) != len(messages):
            raise ProtocolError("what came are not the receipts")
        return [read_outcome(m.id, wire) for m, wire in zip(messages, outcomes, strict=True)]

    async def _turn(self, message: Message, cursor: Value) -> Value:
        return await self._request("page", [message.to_wire(), cursor, self._seconds])

    async def _request(self, method: str, body: Value, *, repeatable: bool = True) -> Value:
        seconds = self._seconds + ANSWER_SLACK_SECONDS
        return await self._connection.request(method, body, seconds, repeatable=repeatable)

    def _pushed(self, method: str, body: Value) -> None:
        """Hand notifications to their watches."""
        match method, body:
            case "notify", [list() as deliveries, int() as missed]:
                for delivery in deliveries:
                    match delivery:
                        case [wire, list() as ids]:
                            message = Message.from_wire(wire)
                        case _:
                            raise ProtocolError("what came is not a notification")
                    self._notifications += len(ids)
                    for id_ in ids:
                        if watch := self._watches.get(id_):
                            watch.offer(message)
                if missed:
                    for watch in self._watches.values():
                        watch.missed(missed)
            case _:
                raise ProtocolError(f"nobody waits for {method!r}")

    async def _restore(self, channel: Channel) -> None:
        """Post the watches again through a peer that one has just moved to."""
        for posts in self._watch_posts():
            await channel.request("post", [posts, self._seconds], self._seconds)
        for watch in self._watches.values():
            if watch.receipt is not None:
                watch.missed(0)

    async def _renew(self) -> None:
        while True:
            await trio.sleep(RENEW_SECONDS)
            try:
                for posts in self._watch_posts():
                    await self._request("post", [posts, self._seconds])
            except MeteorError as error:
                log.info("watches are not renewed: %s; trying again", error)

    def _watch_posts(self) -> Iterator[Value]:
        """Give the watches as requests to post."""
        for batch in batches(self._watches.values(), lambda watch: weight(watch.message)):
            yield [[watch.message.to_wire(), watch.ttl] for watch in batch]
