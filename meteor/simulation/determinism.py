"""One seed, one history: trio's scheduling is drawn from the seed, and all that happens is hashed.

Trio has no public switch for this; Hypothesis' own plugin uses the same two names. They are touched
here only, and put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from random import Random

import trio
from trio._core import _run as scheduler


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Have trio run ready tasks in an order that depends on the seed and nothing else."""
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    state = scheduler._r.getstate()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    scheduler._r.setstate(Random(f"scheduling {seed}").getstate())
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
        scheduler._r.setstate(state)


class History:
    """Everything that happened, as one digest, and counted by kind."""

    def __init__(self) -> None:
        self._digest = sha256()
        self.counts: dict[str, int] = {}

    def note(self, kind: str, *details: object, data: bytes = b"") -> None:
        """Add an event: now, its kind, who and what."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        line = f"{trio.current_time():.6f} {kind} {' '.join(map(str, details))} {len(data)}\n"
        self._digest.update(line.encode())
        self._digest.update(data)

    @property
    def digest(self) -> str:
        """The digest of all events so far."""
        return self._digest.hexdigest()
