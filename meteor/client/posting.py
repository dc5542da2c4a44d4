"""Plain posts, many in one request.

While a few requests are on their way, the next one gathers what other tasks post. Nobody waits to
fill a request: a task that posts sends at once what waits, its own and that of others, if it may,
and leads. A leader that is cancelled leaves the posts of the others to the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count, islice, repeat
from random import Random
from typing import NamedTuple

import trio

from arms.limits import TTL_SECONDS_MAX
from arms.message import Action, check_data, check_ttl
from arms.profile import Profile
from meteor.client.requests import POSTS_PER_REQUEST, batches, input_errors
from meteor.client.results import Post, Receipt, made, read_outcome
from meteor.errors import InputError, MeteorError, ProtocolError
from meteor.limits import PAGE_BYTES
from meteor.transport.frames import Value

REQUESTS_IN_FLIGHT = 16
"""Requests of `post_many` that are on their way at once."""

LEADERS_MAX = 3
"""Requests with posts of single tasks that are on their way at once: so many that one is worked on
while the others travel. The fewer they are, the more posts share one."""

Outcome = Receipt | MeteorError


class Poster:
    """Posts plain data for one client."""

    def __init__(
        self,
        request: Callable[[str, Value], Awaitable[Value]],
        credential: str,
        seconds: float,
        random: Random,
    ) -> None:
        self._request, self._credential, self._seconds = request, credential, seconds
        self.ids = _ids(random)
        """Ids of messages that nobody else uses, in order: those of one request lie side by side
        in a store, which makes them cheap to look for and to write."""
        self._waiting: deque[_Entry] = deque()
        self._in_flight = 0

    async def one(self, profile: str, data: bytes, ttl: float) -> Receipt:
        """Post one message, along with what others have posted and is not sent yet."""
        entry = _Entry(profile, data, ttl)
        self._waiting.append(entry)
        try:
            while entry.outcome is None:
                if entry.sent or self._in_flight >= LEADERS_MAX:
                    await entry.woken.wait()
                    entry.woken = trio.Event()
                else:
                    await self._lead()
        finally:
            if entry.outcome is None and not entry.sent:
                self._waiting.remove(entry)
                self._next()
        if isinstance(entry.outcome, MeteorError):
            raise entry.outcome
        return entry.outcome

    async def _lead(self) -> None:
        """Send what waits in one request, for everyone."""
        entries = self._take()
        self._in_flight += 1
        self._next()
        try:
            outcomes: Sequence[Outcome] = await self._send(
                [entry.id for entry in entries],
                [entry.profile for entry in entries],
                [entry.data for entry in entries],
                [entry.ttl for entry in entries],
                again=any(entry.again for entry in entries),
            )
        except MeteorError as error:
            outcomes = [error] * len(entries)
        except trio.Cancelled:
            for entry in entries:
                entry.sent, entry.again = False, True
            self._waiting.extendleft(reversed(entries))
            raise
        finally:
            self._in_flight -= 1
            self._next()
        for entry, outcome in zip(entries, outcomes, strict=True):
            entry.outcome = outcome
            entry.woken.set()

    def _take(self) -> list[_Entry]:
        entries: list[_Entry] = []
        size = 0
        while self._waiting and len(entries) < POSTS_PER_REQUEST and size < PAGE_BYTES:
            entry = self._waiting.popleft()
            entry.sent = True
            entry.id = entry.id or next(self.ids)
            entries.append(entry)
            size += len(entry.data) + len(entry.profile)
        return entries

    def _next(self) -> None:
        """Have the first that waits see whether it should lead."""
        if self._waiting:
            self._waiting[0].woken.set()

    async def many(self, posts: Plain) -> list[Outcome]:
        """Post messages in one request; returns what came of each."""
        return await self._send(list(islice(self.ids, len(posts.data))), *posts)

    async def _send(
        self,
        ids: Sequence[str],
        profiles: Sequence[str],
        data: Sequence[bytes],
        ttls: Sequence[float],
        *,
        again: bool = False,
    ) -> list[Outcome]:
        """Send posts; `again`: some of them were sent before, with the same ids."""
        times = ttls[0] if ttls.count(ttls[0]) == len(ttls) else ttls
        body = [ids, profiles, data, times, self._credential, self._seconds]
        match await self._request("store again" if again else "store", body):
            case [list() as copies, list() as matches, list() as others] if len(copies) == len(
                matches
            ) == len(ids) and not {*map(type, copies), *map(type, matches)} - {int}:
                outcomes: list[Outcome] = _receipts(ids, copies, matches)
            case _:
                raise ProtocolError("what came are not the receipts")
        for other in others:
            match other:
                case [int() as row, outcome] if 0 <= row < len(ids):
                    outcomes[row] = read_outcome(ids[row], outcome)
                case _:
                    raise ProtocolError("what came are not the receipts")
        return outcomes


class _Entry:
    """A post that waits to be sent, or for what comes of it."""

    __slots__ = ("again", "data", "id", "outcome", "profile", "sent", "ttl", "woken")

    def __init__(self, profile: str, data: bytes, ttl: float) -> None:
        self.profile, self.data, self.ttl = profile, data, ttl
        self.id = ""  # given when it is first sent, and kept when it is sent again
        self.sent = self.again = False
        self.outcome: Outcome | None = None
        self.woken = trio.Event()


def _ids(random: Random) -> Iterator[str]:
    return map(f"{random.getrandbits(64):016x}%012x".__mod__, count())


def _receipts(ids: Sequence[str], copies: list[int], matches: list[int]) -> list[Outcome]:
    """Return the receipts of posts that each were done by the one peer responsible."""
    same = Receipt("", complete=True, peers=1, copies=0, matches=0)[5:]
    fields = zip(ids, repeat(True), repeat(1), copies, matches, *map(repeat, same), strict=False)
    return [*map(made, repeat(Receipt), fields)]


class Plain(NamedTuple):
    """Plain data to be posted in one request, by columns."""

    profiles: Sequence[str]
    data: Sequence[bytes]
    ttls: Sequence[float]


def requests_of(posts: Sequence[Post]) -> Iterator[Plain | Sequence[Post]]:
    """Cut posts into requests of a good size."""
    for begin in range(0, len(posts), POSTS_PER_REQUEST):
        some = posts[begin : begin + POSTS_PER_REQUEST]
        plain = _plain(some)
        if plain is not None:
            yield plain
        else:
            yield from batches(map(_checked, some), _size)


def _plain(posts: Sequence[Post]) -> Plain | None:
    """Return posts by columns, if all are plain data, in which there is nothing to check."""
    if {*map(type, posts)} != {Post}:
        return None
    profiles, data, actions, ttls, contexts = zip(*posts, strict=True)
    if (
        {*map(type, profiles)} != {str}
        or {*map(type, data)} != {bytes}
        or not {*map(type, ttls)} <= {int, float}
        or not all(0 <= ttl <= TTL_SECONDS_MAX for ttl in {*ttls})
        or actions.count(Action.STORE) < len(posts)
        or any(contexts)
        or not all(map(str.isascii, profiles))
        or sum(map(len, data)) + sum(map(len, profiles)) > PAGE_BYTES
    ):
        return None
    return Plain(profiles, data, ttls)


def _checked(post: Post) -> Post:
    if not isinstance(post, Post):
        raise InputError(f"what is posted are `Post`s, not {type(post).__name__}: {post!r}")
    return post


def _size(post: Post) -> int:
    """Return about how large a post is; one with a mistake in it is refused later."""
    return sum(len(part) for part in (post.data, post.profile) if isinstance(part, (str, bytes)))


def checked_profile(profile: str) -> str:
    """Return a profile that can be sent; what is wrong with it in itself, the ring says."""
    if not isinstance(profile, str):
        raise InputError(f"a profile is text, not {type(profile).__name__}")
    if not profile.isascii():
        with input_errors():
            Profile.parse(profile)  # half a surrogate pair can't be sent
    return profile


def checked_data(data: bytes | str) -> bytes:
    """Return data as they are sent."""
    if not isinstance(data, (bytes, bytearray, memoryview, str)):
        raise InputError(f"data are bytes or text, not {type(data).__name__}: encode them first")
    sent = data.encode() if isinstance(data, str) else bytes(data)
    with input_errors():
        return check_data(sent)


def checked_ttl(ttl: float) -> float:
    """Return a TTL that is one: else all that share its request would be refused."""
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)):
        raise InputError(f"a TTL is a number of seconds, not {ttl!r}")
    with input_errors():
        return check_ttl(ttl)
