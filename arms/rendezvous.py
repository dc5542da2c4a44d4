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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from arms.aggregate import Aggregate, aggregate_of
from arms.audience import Audience, Watchers
from arms.candidates import Spans, contains
from arms.inbox import inbox_of
from arms.limits import DELETES_PER_COMMIT, MATCHES_COUNTED_MAX
from arms.message import Action, Kind, Message, Modifiers, region_of, weight
from arms.notes import Due, due, overflow_mark
from arms.profile import Profile
from arms.rows import Stored
from arms.sites import Site
from arms.store import WHOLE_RING, Store
from arms.writes import MARKED, Keep, Put, Remove, Write
from squid import Region, Space

Place = tuple[int, str]
"""Where a walk over stored data is: an identifier, and a message id there."""

COUNTED_ROWS = 500
"""Rows that a new interest looks at in one go; more are counted bit by bit."""


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
    rest: Place | None = None
    """Where a delete that is too long for one transaction goes on: plan it again from there."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a message did here."""

    matches: int = 0
    copies: int = 0
    notifications: tuple[Notification, ...] = ()
    notes: tuple[Due, ...] = ()
    """What must be in inboxes before the sender is told that its post was done."""
    rest: Place | None = None
    """Where counting what a new interest finds goes on, with `page`, if there is much of it."""


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
    resume: Place | None = None


class Rendezvous:
    """Matches messages against a store."""

    def __init__(self, space: Space, store: Store) -> None:
        self.space, self.store = space, store
        self._watching_now = Audience(store.candidates)

    def plan(self, now_ms: int, message: Message, spans: Spans, since: Place | None = None) -> Plan:
        """Say what must be written for a message; `since` is where a long delete goes on."""
        region = region_of(self.space, message)  # what does not fit the space fails here, alone
        match message.action:
            case Action.DELETE_DATA | Action.DELETE_INTEREST:
                # Their ids only: the data of all of them may be more than memory holds.
                ids, mine, rows = [], 0, 0
                for rows, (at, stored) in enumerate(self._doomed(now_ms, message, since), start=1):
                    if stored is not None and _may_delete(message, stored.message):
                        ids.append(stored.message.id)
                        mine += _meets_in(spans, region, self._region(stored))
                    if rows == DELETES_PER_COMMIT:
                        since = at
                        break
                rest = since if rows == DELETES_PER_COMMIT else None
                return Plan(message, spans, (Remove(tuple(ids)),) if ids else (), mine, rest)
            case _ if message.stored_as is not None and message.header.expires_ms > now_ms:
                is_note = message.action is Action.STORE and inbox_of(message.profile) is not None
                return Plan(message, spans, (Keep(message) if is_note else Put(message),))
            case _:
                return Plan(message, spans)

    def react(self, now_ms: int, plan: Plan, written: Sequence[int]) -> Effect:
        """Say what follows now that the plan's writes are on disk (`written`: their results).

        The incoming action comes first, then those of the matched profiles. A message that was
        here already, sent again after a lost answer or to renew an interest, moves nobody twice;
        its notes are due again, as the answer may have been lost before they were placed.
        """
        return self.react_many(now_ms, [plan], [written])[0]

    def react_many(
        self, now_ms: int, plans: Sequence[Plan], written: Sequence[Sequence[int]]
    ) -> list[Effect]:
        """Say so for many plans; data that are points are matched all at once."""
        messages = [_as_kept(plan, results) for plan, results in zip(plans, written, strict=True)]
        interests: dict[int, list[Message]] = {}
        asked: list[int] = []
        for i, (plan, message) in enumerate(zip(plans, messages, strict=True)):
            if message.action is Action.STORE:
                region = region_of(self.space, message)
                if region.is_point:
                    interests[i] = []
                    if contains(plan.spans, cast(int, region.lowest)):
                        asked.append(i)
        found = self.store.candidates.selecting(now_ms, [messages[i].profile for i in asked])
        interests.update(zip(asked, found, strict=True))
        return [
            self._effect(now_ms, plan, message, results, interests.get(i))
            for i, (plan, message, results) in enumerate(zip(plans, messages, written, strict=True))
        ]

    def _effect(
        self,
        now_ms: int,
        plan: Plan,
        message: Message,
        written: Sequence[int],
        interests: list[Message] | None,
    ) -> Effect:
        spans, copies = plan.spans, len(plan.writes)
        again = bool(plan.writes) and isinstance(plan.writes[0], Put | Keep) and not written[0]
        if message.action is Action.STORE:
            if interests is None:
                interests = list(self._watching(now_ms, message, spans))
            notes = tuple([due(one) for one in interests if one.modifiers.inbox is not None])
            if again:
                return Effect(copies=1, notes=notes)
            about = message.without_credential()
            told = tuple([_notify(one, about) for one in interests if one.modifiers.inbox is None])
            return Effect(len(told) + len(notes), copies, told, notes)
        if again:
            return Effect(copies=1)
        match message.action:
            case Action.NOTIFY_DATA:
                told = tuple(self._advertised(now_ms, message, spans))
                page = self.page(now_ms, counting(message), spans, {}, 1, COUNTED_ROWS)
                return Effect(page.matches, copies, told, rest=page.resume)
            case Action.NOTIFY_INTEREST:
                told = tuple(self._audience(now_ms, message, spans))
                return Effect(len(told), copies, told)
            case _:
                return Effect(plan.matches)

    def watchers(self, now_ms: int, sites: Sequence[Site]) -> list[Watchers]:
        """Say who watches for data at each of these sites.

        The sites are points that this peer speaks for, so it is the one that reacts.
        """
        return self._watching_now.of(now_ms, sites)

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
        for row, (at, stored) in enumerate(self._walk(now_ms, message, spans, resume), start=1):
            if stored is not None:
                page.matches += 1
                if name is None:
                    page.found.append(Found(at[0], stored.message))
                    size += weight(stored.message)
                else:
                    value = aggregate_of(stored.message.profile, message.modifiers.attribute)
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
    ) -> Iterator[tuple[Place, Stored | None]]:
        """Walk stored data in the order of their places: each row's place, and the match."""
        region = region_of(self.space, message)
        selects = message.profile.compile()
        walks = (self.store.candidates.points, self.store.candidates.ranges)
        data = heapq.merge(*(walk(now_ms, region, spans, resume) for walk in walks), key=_place)
        for at, stored in data:
            hit = selects(stored.message.profile)
            yield (at, stored.message.id), stored if hit else None

    def _watching(self, now_ms: int, data: Message, spans: Spans) -> Iterator[Message]:
        """Who watches for data that are a region."""
        return self._met(
            now_ms, Kind.INTEREST, data, spans, lambda other: other.selects(data.profile)
        )

    def _advertised(self, now_ms: int, interest: Message, spans: Spans) -> Iterator[Notification]:
        """Who wants to know that there is an interest in what they could send."""
        for offer in self._met(
            now_ms, Kind.ADVERTISEMENT, interest, spans, interest.profile.could_select
        ):
            yield _notify(offer, interest.without_credential())

    def _audience(self, now_ms: int, offer: Message, spans: Spans) -> Iterator[Notification]:
        """Which interests there are already in what this sender could send."""
        for interest in self._met(
            now_ms, Kind.INTEREST, offer, spans, lambda other: other.could_select(offer.profile)
        ):
            yield _notify(offer, interest.without_credential())

    def _met(
        self,
        now_ms: int,
        kind: Kind,
        message: Message,
        spans: Spans,
        matches: Callable[[Profile], bool],
    ) -> Iterator[Message]:
        """Give the stored messages that match one and first meet it in the spans."""
        region = region_of(self.space, message)
        for stored in self.store.candidates.meeting(now_ms, kind, region):
            if matches(stored.message.profile) and _meets_in(spans, region, self._region(stored)):
                yield stored.message

    def _doomed(
        self, now_ms: int, message: Message, since: Place | None
    ) -> Iterator[tuple[Place, Stored | None]]:
        """Walk what a delete may remove from this store, also copies that others speak for."""
        if message.modifiers.only is not None:
            stored = self.store.find(now_ms, message.modifiers.only)
            is_data = message.action is Action.DELETE_DATA
            if stored is not None and (stored.kind is Kind.DATA) == is_data:
                yield (stored.identifier, stored.message.id), stored
        elif message.action is Action.DELETE_DATA:
            at, id_ = since or (0, "")
            yield from self._walk(now_ms, message, ((at, WHOLE_RING[0][1]),), {at: id_})
        else:
            selects = message.profile.compile()
            for stored in self.store.candidates.meeting(
                now_ms, Kind.INTEREST, region_of(self.space, message)
            ):
                if selects(stored.message.profile):
                    yield (0, ""), stored  # removed by then, so the next plan begins anew

    def _region(self, stored: Stored) -> Region:
        return region_of(self.space, stored.message)


def counting(interest: Message) -> Message:
    """Return the retrieval that counts what an interest selects, up to a bound."""
    wanted = Modifiers(limit=MATCHES_COUNTED_MAX, aggregate="count")
    return replace(interest, action=Action.RETRIEVE, modifiers=wanted)


def _meets_in(spans: Spans, a: Region, b: Region) -> bool:
    """Say whether the lowest identifier that both regions have lies in the spans."""
    lowest = a.intersect(b).lowest
    return lowest is not None and contains(spans, lowest)


def _as_kept(plan: Plan, written: Sequence[int]) -> Message:
    """Return the message as it was written: a note that did not fit its inbox is a mark there."""
    if plan.writes and isinstance(plan.writes[0], Keep) and written[0] == MARKED:
        return overflow_mark(plan.message)
    return plan.message


def _may_delete(message: Message, stored: Message) -> bool:
    return stored.header.credential in ("", message.header.credential)


def _place(entry: tuple[int, Stored]) -> Place:
    at, stored = entry
    return at, stored.message.id


def _notify(watcher: Message, about: Message) -> Notification:
    header = watcher.header
    return Notification(header.id, header.sender, header.reply_to, about)
