"""Places the notes that posts are due, before their senders are told that all was done.

The owner of data says in its answer which reliable watches they match; the notes are posted from
here, by the peer that the sender asked. They can't be posted where the data lie: errands are
carried out inside that peer's gate, a hand-over waits for all that are inside, and two owners that
wait for each other's inboxes while their gates are closing would wait for ever. If this peer dies
before the notes are placed, the sender has no answer, and asks again through another: the notes are
due again then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from arms.message import Message, weight
from meteor.limits import NOTES_SECONDS_MIN, PAGE_BYTES
from meteor.node.errands import Answer, Errand, errand_for
from meteor.node.router import Router
from meteor.ring.arcs import missing
from squid import Space


class Notices:
    """Posts notes to inboxes."""

    def __init__(self, space: Space, router: Router, clock: Callable[[], int]) -> None:
        self._space, self._router, self._clock = space, router, clock

    async def place(
        self, errands: Sequence[Errand], answers: Sequence[Answer], deadline: float
    ) -> None:
        """Place what the answers are due; an answer whose notes are not all placed gets a fault."""
        now_ms = self._clock()
        left: list[tuple[Answer, Message]] = []
        for errand, answer in zip(errands, answers, strict=True):
            if isinstance(errand.task, Message):
                for due in {due.watch: due for due in answer.notes}.values():
                    left.append((answer, due.note(now_ms, errand.task)))
        while left:
            batch, size = 0, 0
            while batch < len(left) and (not batch or size < PAGE_BYTES):
                size += weight(left[batch][1])
                batch += 1
            await self._place(left[:batch], deadline)
            left = left[batch:]

    async def _place(self, notes: Sequence[tuple[Answer, Message]], deadline: float) -> None:
        errands = [errand_for(self._space, note) for _, note in notes]
        seconds = max(NOTES_SECONDS_MIN, deadline - trio.current_time())
        placed = await self._router.ask(errands, seconds)
        for (answer, _), errand, result in zip(notes, errands, placed, strict=True):
            unplaced = missing(errand.members(self._space), errand.spans, result.covered)
            if result.faults or unplaced:
                why = "; ".join(result.faults) or "their inbox did not answer"
                answer.faults.append(
                    f"it is done, but not every reliable watcher could be told ({why}); post it "
                    "again: with the same id nothing is doubled"
                )
