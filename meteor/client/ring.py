"""`connect` and `Ring`: what a program calls."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any

import trio

from arms.inbox import inbox_profile
from arms.message import Action, Header, Message, Modifiers
from arms.notes import watch_id
from arms.profile import Profile
from meteor.background import background_nursery
from meteor.client.connection import Connection
from meteor.client.inbox import INBOX_LOOK_SECONDS, ReliableWatch, notes_of
from meteor.client.posting import (
    REQUESTS_IN_FLIGHT,
    Plain,
    Poster,
    checked_data,
    checked_profile,
    checked_ttl,
    requests_of,
)
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
from meteor.client.standing import Standing
from meteor.client.watch import Watch, WatchMany
from meteor.errors import Busy, InputError, MeteorError, NoAnswer, NoRing, ProtocolError
from meteor.limits import KEEP_SECONDS
from meteor.matches import read_match
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
        standing = ring._standing
        await nursery.start(connection.keep, standing.pushed, standing.restore)
        nursery.start_soon(standing.renew)
        yield ring


class Ring:
    """A ring, as a program uses it. Made by `connect`."""

    def __init__(
        self, connection: Connection, client: str, credential: str, seconds: float, random: Random
    ) -> None:
        self.client = client
        """Who this client is to others: the sender of its messages."""
        self._connection, self._credential = connection, credential
        self._seconds = seconds
        self._poster = Poster(self._request, credential, seconds, random)
        self._standing = Standing(self._post, self._request, self._poster.ids, seconds)

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
        if not context and checked_action(action) is Action.STORE:
            return await self._poster.one(
                checked_profile(profile), checked_data(data), checked_ttl(ttl)
            )
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
        parts = list(requests_of(list(posts)))
        receipts: list[list[Receipt]] = [[] for _ in parts]
        limiter = trio.CapacityLimiter(REQUESTS_IN_FLIGHT)

        async def send(i: int) -> None:
            async with limiter:
                receipts[i] = await self._post_batch(parts[i])

        async with trio.open_nursery() as nursery:
            for i in range(len(parts)):
                nursery.start_soon(send, i)
        return list(chain.from_iterable(receipts))

    async def _post_batch(self, posts: Plain | Sequence[Post]) -> list[Receipt]:
        count = len(posts.data) if isinstance(posts, Plain) else len(posts)
        try:
            if isinstance(posts, Plain):
                outcomes = await self._poster.many(posts)
            else:
                outcomes = await self._post_all(posts)
        except (Busy, InputError) as error:
            outcomes = [error] * count  # refused before anything happened
        except MeteorError as error:
            outcomes = [NoAnswer(f"{error}; it may or may not be stored")] * count
        return [failed("", o) if isinstance(o, MeteorError) else o for o in outcomes]

    async def _post_all(self, posts: Sequence[Post]) -> list[Receipt | MeteorError]:
        """Post messages, the plain ones in one request and the others in another."""
        outcomes: list[Receipt | MeteorError] = [NoAnswer("")] * len(posts)
        plain: list[tuple[int, str, bytes, float]] = []
        others: list[tuple[int, Message, float]] = []
        for i, post in enumerate(posts):
            try:
                ttl = checked_ttl(post.ttl)
                if post.context or checked_action(post.action) is not Action.STORE:
                    message = self._message(post.profile, post.action, post.data, post.context)
                    others.append((i, message, ttl))
                else:
                    plain.append((i, checked_profile(post.profile), checked_data(post.data), ttl))
            except InputError as error:
                outcomes[i] = error
        done: list[tuple[int, Receipt | MeteorError]] = []
        if plain:
            places, *columns = zip(*plain, strict=True)
            done += zip(places, await self._poster.many(Plain(*columns)), strict=True)
        if others:
            places, messages, ttls = zip(*others, strict=True)
            done += zip(places, await self._post(messages, ttls), strict=True)
        for i, outcome in done:
            outcomes[i] = outcome
        return outcomes

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
            async with self._standing.hold(watch):
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
        async with self._standing.hold(inbox), self._standing.hold(kept), kept.acknowledging():
            yield kept

    @asynccontextmanager
    async def watch_many(self, profiles: Iterable[str]) -> AsyncIterator[WatchMany]:
        """Be notified of data by many profiles at once; each match says which of them it met.

        One request stands for hundreds of watches, and one iterator has all that comes.
        """
        watch = WatchMany([self._message(profile, Action.NOTIFY_DATA) for profile in profiles])
        async with self._standing.hold(watch):
            yield watch

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
        async with self._standing.hold(watch):
            yield watch

    # -- looking at the ring -----------------------------------------------------------------------

    async def statistics(self) -> dict[str, Any]:
        """Return how the peer that serves this client is, and what the client has seen."""
        status = await self._request("status", None)
        if not isinstance(status, dict):
            raise ProtocolError("what came is not a status")
        return {
            "client": self.client,
            "peer": status,
            "watches": len(self._standing),
            "notifications": self._standing.notifications,
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

    async def move(self, definition: str) -> bool:
        """Have the ring move to its next space, in TOML; True: all peers have heard of it."""
        return bool(await self._request("move", definition))

    async def leave(self) -> None:
        """Have the peer that serves this client hand over its arc and leave the ring."""
        await self._request("leave", None, repeatable=False)

    async def forget(self, address: str) -> int:
        """End the doubts about a lost peer that will not come back; says how many peers had some.

        Answers do not name it any more. Should it come back after all, it joins like any other.
        """
        if any(peer["address"] == address for peer in (await self.report()).peers):
            raise InputError(f"{address} is in the ring; only a peer that is lost can be forgotten")
        match await self._request("forget", [address, self._seconds]):
            case [int() as count, True]:
                return count
            case _:
                raise NoAnswer(f"not every peer heard that {address} is to be forgotten; try again")

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
            parsed, next(self._poster.ids), credential=self._credential, context=context or {}
        )
        return Message(header, checked_action(action), checked_data(data), wanted or Modifiers())

    async def _post(
        self, messages: Sequence[Message], ttls: Sequence[float]
    ) -> list[Receipt | MeteorError]:
        posts = [[m.to_wire(), checked_ttl(ttl)] for m, ttl in zip(messages, ttls, strict=True)]
        outcomes = await self._request("post", [posts, self._seconds])
        if not isinstance(outcomes, list) or len(outcomes) != len(messages):
            raise ProtocolError("what came are not the receipts")
        return [read_outcome(m.id, wire) for m, wire in zip(messages, outcomes, strict=True)]

    async def _turn(self, message: Message, cursor: Value) -> Value:
        return await self._request("page", [message.to_wire(), cursor, self._seconds])

    async def _request(self, method: str, body: Value, *, repeatable: bool = True) -> Value:
        seconds = self._seconds + ANSWER_SLACK_SECONDS
        return await self._connection.request(method, body, seconds, repeatable=repeatable)
