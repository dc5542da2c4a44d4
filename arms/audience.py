"""Who watches for data: found once for a site, and kept until an interest comes, goes or ends.

Sensors post the same few profiles again and again, while interests change seldom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from arms.candidates import Candidates
from arms.limits import SITES_KEPT, TIME_MS_MAX, WATCHERS_KEPT
from arms.message import Message
from arms.notes import Due, due
from arms.sites import Site


@dataclass(slots=True, eq=False)
class Watchers:
    """Who watches for data with one profile. Sites with the same watchers share one of these."""

    count: int = 0
    ways: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """(client, watch) of those to be told now, by the address of the peer that can reach them."""
    notes: list[Due] = field(default_factory=list)
    """What must be in inboxes before the sender is told that its post was done."""


class Audience:
    """Who watches for the data of one store."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._changes = 0
        self._kept: dict[Site, Watchers] = {}
        self._same: dict[tuple[str, ...], Watchers] = {}
        self._watchers = 0
        self._until_ms = TIME_MS_MAX

    def of(self, now_ms: int, sites: Sequence[Site]) -> list[Watchers]:
        """Return who watches for data at each of several sites."""
        changes = self._candidates.index.interest_changes
        if changes != self._changes or now_ms >= self._until_ms:
            self._forget()
            self._changes = changes
        found = [*map(self._kept.get, sites)]
        if None in found:
            self._find(now_ms, list(dict.fromkeys(sites)))
            found = [*map(self._kept.get, sites)]
        return found  # type: ignore[return-value]

    def _find(self, now_ms: int, sites: Sequence[Site]) -> None:
        if len(self._kept) + len(sites) > SITES_KEPT or self._watchers > WATCHERS_KEPT:
            self._forget()
        new = [site for site in sites if site not in self._kept]
        selecting = self._candidates.selecting(now_ms, new)
        for site, interests in zip(new, selecting, strict=True):
            key = tuple([interest.header.id for interest in interests])
            ours = self._same.get(key)
            if ours is None:
                ours = self._same[key] = _watchers(interests)
                ends = [interest.header.expires_ms for interest in interests]
                self._until_ms = min([self._until_ms, *ends])
                self._watchers += len(interests)
            self._kept[site] = ours

    def _forget(self) -> None:
        self._kept.clear()
        self._same.clear()
        self._watchers, self._until_ms = 0, TIME_MS_MAX


def _watchers(interests: Sequence[Message]) -> Watchers:
    ours = Watchers(len(interests))
    for interest in interests:
        if interest.modifiers.inbox is None:
            header = interest.header
            ours.ways.setdefault(header.reply_to, []).append((header.sender, header.id))
        else:
            ours.notes.append(due(interest))
    return ours
