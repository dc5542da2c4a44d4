"""The rendezvous: a message comes in, effects go out (Table 1 and section 2.1 of the paper).

A message is handled in two steps, because what is promised must be on disk first:

    plan   = rendezvous.plan(now_ms, message, spans)        what to write
    ...the owner of the store commits plan.writes...
    effect = rendezvous.react(now_ms, plan, written)        whom to tell; only after the commit

`spans` are the parts of the ring that this peer speaks for. Data and interests may meet at several
peers; only the one whose spans hold the lowest identifier that both have reacts, so that every
match counts once, whatever copies lie where.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from arms.aggregate import Aggregate, aggregate_of
from arms.limits import DELETES_PER_COMMIT, MATCHES_COUNTED_MAX
from arms.message import Action, Kind, Message, region_of
from arms.store import Put, Remove, Spans, Store, Stored, Write
from squid import Region, Space

ENVELOPE_BYTES = 256
"""What a message takes on the wire besides its data, roughly."""


@dataclass(frozen=True, slots=True)
class Notification:
    """Tell the sender of a stored message, `watch`, about a message that matches it.

    To be sent only after that message is on disk.
    """

    watch: str
    to: str
    reply_to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write for a message, and what was counted before the write changes it."""

    message: Message
    spans: Spans
    writes: tuple[Write, ...] = ()
    matches: int = 0
    more: bool = False
    """The message has more to write than one transaction should: plan it again after the commit."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a message did here."""

    matches: int = 0
    copies: int = 0
    notifications: tuple[Notification, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A data message that a retrieval found, and where both met."""

    identifier: int
    message: Message


@dataclass(slots=True)
class Page:
    """One slice of a retrieval: matches in the order of their identifiers.

    It speaks for everything up to `resume` (an identifier and the last id seen there), or for all
    that was asked when that is None.
    """

    found: list[Found] = field(default_factory=list)
    aggregate: Aggregate = field(default_factory=Aggregate)
    matches: int = 0
    resume: tuple[int, str] | None = None


class Rendezvous:
    """Matches messages against a store."""

    def __init__(self, space: Space, store: Store) -> None:
        self.space, self.store = space, store

    def plan(self, now_ms: int, message: Message, spans: Spans) -> Plan:
        """Say what must be written for a message."""
        match message.action:
            case Action.DELETE_DATA | Action.DELETE_INTEREST:
                doomed = list(islice(self._doomed(now_ms, message), DELETES_PER_COMMIT))
                region = region_of(self.space, message)
                mine = sum(_meets_in(spans, region, self._region(stored)) for stored in doomed)
                ids = tuple(stored.message.id for stored in doomed)
                more = len(doomed) == DELETES_PER_COMMIT
                return Plan(message, spans, (Remove(ids),) if ids else (), mine, more)
            case _ if message.stored_as is not None and message.header.expires_ms > now_ms:
                return Plan(message, spans, (Put(message),))
            case _:
                return Plan(message, spans)

    def react(self, now_ms: int, plan: Plan, written: Sequence[int]) -> Effect:
        """Say what follows now that the plan's writes are on disk (`written`: their results).

        The incoming action comes first, then those of the matched profiles. A message that was
        here already, sent again after a lost answer or to renew an interest, moves nobody twice.
        """
        message, spans = plan.message, plan.spans
        if plan.writes and isinstance(plan.writes[0], Put) and not written[0]:
            return Effect(copies=1)
        copies = len(plan.writes)
        match message.action:
            case Action.STORE:
                told = tuple(self._interested(now_ms, message, spans))
                return Effect(len(told), copies, told)
            case Action.NOTIFY_DATA:
                data = islice(self._matches(now_ms, message, spans, {}), MATCHES_COUNTED_MAX)
                count = sum(1 for found in data if isinstance(found, Found))
                return Effect(count, copies, tuple(self._advertised(now_ms, message, spans)))
            case Action.NOTIFY_INTEREST:
                told = tuple(self._audience(now_ms, message, spans))
                return Effect(len(told), copies, told)
            case _:
                return Effect(plan.matches)

    def page(
        self,
        now_ms: int,
        message: Message,
        spans: Spans,
        resume: Mapping[int, str],
        bytes_max: int,
        rows_max: int,
    ) -> Page:
        """Carry a retrieval on: at most about `bytes_max` of data, `rows_max` rows looked at."""
        page = Page()
        limit, name = message.modifiers.limit, message.modifiers.aggregate
        size = 0
        for row, (at, found) in enumerate(self._walk(now_ms, message, spans, resume), start=1):
            if found is not None:
                page.matches += 1
                if name is None:
                    page.found.append(found)
                    size += weight(found.message)
                else:
                    value = aggregate_of(found.message.profile, message.modifiers.attribute)
                    page.aggregate = page.aggregate.merge(value)
                if limit is not None and page.matches >= limit:
                    return page  # enough: the rest need not be looked at
            if size >= bytes_max or row >= rows_max:
                page.resume = at
                return page
        return page

    # -- who meets whom ----------------------------------------------------------------------------

    def _walk(
        self, now_ms: int, message: Message, spans: Spans, resume: Mapping[int, str]
    ) -> Iterator[tuple[tuple[int, str], Found | None]]:
        """Walk stored data in the order of (identifier, id): each row's place, and the match."""
        region = region_of(self.space, message)
        selects = message.profile.compile()
        points = (
            (stored.identifier, stored.message.id, stored)
            for stored in self.store.points(now_ms, region, spans, resume)
        )
        ranges = sorted(
            (at, stored.message.id, stored)
            for stored in self.store.candidates(now_ms, Kind.DATA, region)
            if (at := region.intersect(self._region(stored)).lowest) is not None
            and _contains(spans, at)
            and stored.message.id > resume.get(at, "")
        )
        for at, id_, stored in heapq.merge(points, ranges, key=lambda entry: entry[:2]):
            hit = selects(stored.message.profile)
            yield (at, id_), Found(at, stored.message) if hit else None

    def _matches(
        self, now_ms: int, message: Message, spans: Spans, resume: Mapping[int, str]
    ) -> Iterator[Found | None]:
        return (found for _, found in self._walk(now_ms, message, spans, resume))

    def _interested(self, now_ms: int, data: Message, spans: Spans) -> Iterator[Notification]:
        """Who watches for this data."""
        region = region_of(self.space, data)
        for stored in self.store.candidates(now_ms, Kind.INTEREST, region):
            interest = stored.message
            if interest.profile.selects(data.profile) and self._first_here(spans, region, stored):
                yield _notify(interest, data)

    def _advertised(self, now_ms: int, interest: Message, spans: Spans) -> Iterator[Notification]:
        """Who wants to know that there is an interest in what they could send."""
        region = region_of(self.space, interest)
        for stored in self.store.candidates(now_ms, Kind.ADVERTISEMENT, region):
            offer = stored.message
            if interest.profile.could_select(offer.profile) and self._first_here(
                spans, region, stored
            ):
                yield _notify(offer, interest)

    def _audience(self, now_ms: int, offer: Message, spans: Spans) -> Iterator[Notification]:
        """Which interests there are already in what this sender could send."""
        region = region_of(self.space, offer)
        for stored in self.store.candidates(now_ms, Kind.INTEREST, region):
            interest = stored.message
            if interest.profile.could_select(offer.profile) and self._first_here(
                spans, region, stored
            ):
                yield _notify(offer, interest)

    def _doomed(self, now_ms: int, message: Message) -> Iterator[Stored]:
        """Give what a delete removes from this store, also copies that others speak for."""
        for stored in self._deletable(now_ms, message):
            if stored.message.header.credential in ("", message.header.credential):
                yield stored

    def _deletable(self, now_ms: int, message: Message) -> Iterator[Stored]:
        if message.modifiers.only is not None:
            stored = self.store.find(now_ms, message.modifiers.only)
            is_data = message.action is Action.DELETE_DATA
            if stored is not None and (stored.kind is Kind.DATA) == is_data:
                yield stored
            return
        region = region_of(self.space, message)
        selects = message.profile.compile()
        kind = Kind.DATA if message.action is Action.DELETE_DATA else Kind.INTEREST
        if kind is Kind.DATA:
            whole = ((0, (1 << 63) - 1),)
            yield from (
                stored
                for stored in self.store.points(now_ms, region, whole, {})
                if selects(stored.message.profile)
            )
        for stored in self.store.candidates(now_ms, kind, region):
            if selects(stored.message.profile):
                yield stored

    def _first_here(self, spans: Spans, region: Region, stored: Stored) -> bool:
        return _meets_in(spans, region, self._region(stored))

    def _region(self, stored: Stored) -> Region:
        return region_of(self.space, stored.message)


def weight(message: Message) -> int:
    """Return about how many bytes a message takes on the wire."""
    return len(message.data) + ENVELOPE_BYTES


def _meets_in(spans: Spans, a: Region, b: Region) -> bool:
    """Say whether the lowest identifier that both regions have lies in the spans."""
    lowest = a.intersect(b).lowest
    return lowest is not None and _contains(spans, lowest)


def _contains(spans: Spans, identifier: int) -> bool:
    return any(low <= identifier <= high for low, high in spans)


def _notify(watcher: Message, about: Message) -> Notification:
    header = watcher.header
    return Notification(header.id, header.sender, header.reply_to, about)
