"""A rendezvous point for tests: one store, a clock to set, and the three steps of every message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

from arms.aggregate import Aggregate
from arms.message import Action, Header, Message, modifiers
from arms.profile import Profile
from arms.rendezvous import WHOLE_RING, Effect, Found, Rendezvous, counting
from arms.rows import Stored, read_row
from arms.store import Spans, Store
from arms.writes import Take
from squid import Space

LAB = Space.from_toml(
    """
    name = "lab"
    version = 1

    [[dimension]]
    name = "type"
    codec = "keyword"

    [[dimension]]
    name = "degree"
    codec = "number"
    min = 0
    max = 100
    """
)

FOREVER_MS = 10**15
NUMBERS = count(1)


def post(
    action: str,
    profile: str,
    id_: str = "",
    *,
    expires_ms: int = FOREVER_MS,
    data: bytes = b"",
    sender: str = "somebody",
    reply_to: str = "",
    credential: str = "",
    limit: int | None = None,
    aggregate: str | None = None,
    attribute: str | None = None,
    only: str | None = None,
    context: Mapping[str, str] | None = None,
) -> Message:
    """Return a message; what a test does not care about is made up."""
    header = Header(
        Profile.parse(profile),
        id_ or f"message-{next(NUMBERS):06}",
        expires_ms,
        sender,
        reply_to or f"{sender}'s peer",
        credential,
        context or {},
    )
    return Message(header, Action(action), data, modifiers(limit, aggregate, attribute, only))


class Point:
    """One peer's part of a rendezvous."""

    def __init__(self, path: Path, space: Space = LAB, spans: Spans = WHOLE_RING) -> None:
        self.store = Store(path, space, sync="normal")
        self.rendezvous = Rendezvous(space, self.store)
        self.spans = spans
        self.now_ms = 1_000

    def post(self, message: Message) -> Effect:
        """Plan, commit and react, as often as the message has more to write."""
        matches, since = 0, None
        while True:
            plan = self.rendezvous.plan(self.now_ms, message, self.spans, since)
            (written,) = self.store.apply(self.now_ms, [plan.writes])
            effect = self.rendezvous.react(self.now_ms, plan, written)
            matches += effect.matches
            counted = effect.rest
            while counted is not None:
                at, id_ = counted
                page = self.rendezvous.page(
                    self.now_ms, counting(message), _from(self.spans, at), {at: id_}, 1, 500
                )
                matches, counted = matches + page.matches, page.resume
            since = plan.rest
            if since is None:
                return Effect(matches, effect.copies, effect.notifications)

    def take(self, id_: str, taker: str, credential: str = "") -> bool:
        """Take one message for one taker."""
        ((taken,),) = self.store.apply(self.now_ms, [[Take(id_, taker, credential)]])
        return bool(taken)

    def pages(
        self, message: Message, bytes_max: int = 10**9, rows_max: int = 10**9
    ) -> tuple[list[Found], Aggregate, int]:
        """Stitch all pages of a retrieval together; also says how many there were."""
        found: list[Found] = []
        aggregate, spans, resume, pages = Aggregate(), self.spans, dict[int, str](), 0
        while True:
            page = self.rendezvous.page(self.now_ms, message, spans, resume, bytes_max, rows_max)
            pages += 1
            found += page.found
            aggregate = aggregate.merge(page.aggregate)
            if page.resume is None:
                return found, aggregate, pages
            assert page.resume not in resume.items(), "a page gets on"
            at, id_ = page.resume
            spans = [(max(low, at), high) for low, high in spans if high >= at]
            resume = {at: id_}

    def retrieve(self, profile: str) -> list[str]:
        """Return the ids of what an interest finds, in order."""
        found, _, _ = self.pages(post("retrieve", profile))
        return [match.message.id for match in found]


def told(effect: Effect) -> list[tuple[str, str]]:
    """Return whom an effect tells about what: (watch, message), sorted."""
    return sorted((note.watch, note.message.id) for note in effect.notifications)


def _from(spans: Spans, low: int) -> Spans:
    return [(max(low, start), end) for start, end in spans if end >= low]


def stored_after(store: Store, now_ms: int, seq: int, limit: int) -> Iterator[Stored]:
    """Give the messages that were stored after another, oldest first."""
    return map(read_row, store.rows_after(now_ms, seq, limit))
