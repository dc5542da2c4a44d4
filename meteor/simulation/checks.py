"""Checkers: what must hold, judged by the clients' log and by a look at every peer.

Each has a name and is counted, so that a report says what was checked and how often. A violation
ends the simulation.
"""

from __future__ import annotations

import math

import trio

from arms.profile import Profile
from meteor.ring.invariants import violations
from meteor.simulation.workload import EXPIRY_SLACK_SECONDS, WATCHED, Item, Log, Query
from meteor.simulation.world import CONFIG, World


class Violation(Exception):  # noqa: N818 - it reads as what it is
    """Something that must hold does not."""

    def __init__(self, checker: str, words: str) -> None:
        super().__init__(words)
        self.checker, self.at_seconds = checker, trio.current_time()


class Checks:
    """All checkers of one simulation."""

    def __init__(self, world: World, log: Log) -> None:
        self.counts: dict[str, int] = {}
        self.log = log
        self._world = world
        self._profiles: dict[int, Profile] = {}

    def _evaluate(self, checker: str, problems: list[str]) -> None:
        self.counts[checker] = self.counts.get(checker, 0) + 1
        if problems:
            raise Violation(checker, "\n".join(problems[:10]))

    # -- the ring --------------------------------------------------------------------------------

    def ring_is_sound(self) -> None:
        """Zave's predicates: one ordered ring, and lists that lead into it."""
        found = violations(self._world.members(), CONFIG.successors)
        self._evaluate("the ring is one, and in order (Zave)", found)

    def ring_is_whole(self) -> None:
        """At rest: neighbours are right, and each identifier has one owner."""
        self._evaluate("each identifier has one owner", self._world.unsettled())

    def bounds_hold(self) -> None:
        """No queue, table or cache of a peer is longer than it may be."""
        found = [
            f"{peer.name} has {length:,} {what}, of at most {most:,}"
            for peer in self._world.running
            if peer.node is not None
            for what, (length, most) in peer.node.bounds().items()
            if length > most
        ]
        self._evaluate("queues, tables and caches have their bounds", found)

    def copies_are_made(self) -> None:
        """At rest: all copies are there, and nobody is waited for."""
        found = self._world.uncopied() + self._world.doubts()
        self._evaluate("copies are made again, and doubts end", found)

    # -- the content -----------------------------------------------------------------------------

    def query(self, asked: Query, *, last: bool = False) -> None:
        """Judge an answer: nothing is missing that must be there, nothing there that is gone."""
        wanted = Profile.parse(asked.interest)
        matching = [i for i in self.log.items.values() if wanted.selects(self._profile(i))]
        if asked.complete and not asked.doubted:
            missing = [
                item
                for item in matching
                if item.number not in asked.found
                and must(item, asked, last)
                and not any(take.selects(self._profile(item)) for take in self.log.takes.values())
            ]
            self._evaluate(
                "a complete answer is complete",
                [f"{asked} lacks {item}" for item in missing],
            )
        if not asked.doubted:
            back = [i for i in matching if i.number in asked.found and must_not(i, asked)]
            self._evaluate(
                "nothing deleted, taken or expired comes back",
                [f"{asked} has {item}" for item in back],
            )

    def takers(self) -> None:
        """See that no item was given to two takers."""
        twice = [item for item in self.log.items.values() if len(item.takers) > 1]
        self._evaluate("an item has one taker", [f"{item} has two" for item in twice])

    def unread(self) -> list[str]:
        """Say which notifications of the reliable watch have not come."""
        wanted = Profile.parse(WATCHED)
        return [
            f"the reader was not told of {item}"
            for item in self.log.items.values()
            if self.log.watched < item.posted
            and item.acked < math.inf
            and not item.doubted
            and wanted.selects(self._profile(item))
            and item.number not in self.log.notified
        ]

    def reliable_notifications(self) -> None:
        """See that the reader was told of everything that was acknowledged, and once."""
        twice = [f"told {n} times of {i}" for i, n in self.log.notified.items() if n > 1]
        self._evaluate("a reliable notification comes, and once", self.unread() + twice)

    def _profile(self, item: Item) -> Profile:
        if item.number not in self._profiles:
            self._profiles[item.number] = Profile.parse(item.profile)
        return self._profiles[item.number]


def must(item: Item, asked: Query, last: bool) -> bool:
    """Say whether a complete answer must have an item.

    What was acknowledged in doubt only the last answer must have, when nobody is waited for.
    """
    return (
        item.acked < asked.began
        and (last or not item.doubted)
        and item.doomed > asked.ended
        and item.posted + item.ttl - EXPIRY_SLACK_SECONDS > asked.ended
    )


def must_not(item: Item, asked: Query) -> bool:
    """Say whether no answer may have an item.

    A post that was never acknowledged may wait on a link that is cut, and begin to live much later.
    """
    return min(item.gone, item.acked + item.ttl + EXPIRY_SLACK_SECONDS) < asked.began
