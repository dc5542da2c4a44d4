"""Admission: how much work of clients a peer has in hand, and the word `busy` beyond it.

Every connection has a bound of its own, but there may be thousands of them. What all clients
together wait for is bounded here, in posts and in bytes. Who comes when it is full is refused at
once, before anything has happened, so that it can try again. Requests of other peers are not
counted: they carry out what was admitted elsewhere, and refusing them could have two peers wait
for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from meteor.errors import Busy
from meteor.limits import BYTES_IN_HAND_MAX, POSTS_IN_HAND_MAX


class Admission:
    """What a peer has in hand for its clients."""

    def __init__(
        self, posts_max: int = POSTS_IN_HAND_MAX, bytes_max: int = BYTES_IN_HAND_MAX
    ) -> None:
        self.posts_max, self.bytes_max = posts_max, bytes_max
        self.posts = self.bytes = 0
        self.refused = 0
        """Requests that were answered `busy`."""

    def check(self, posts: int, size: int) -> None:
        """Raise `Busy` when this would be too much; for work that is done at once."""
        if self.posts + posts > self.posts_max or self.bytes + size > self.bytes_max:
            self.refused += 1
            raise Busy(
                f"this peer is busy: {self.posts:,} messages of {self.bytes:,} bytes are in hand; "
                f"it takes {self.posts_max:,} of {self.bytes_max:,} bytes at once. Nothing has "
                "happened; try again later"
            )

    @contextmanager
    def in_hand(self, posts: int, size: int) -> Iterator[None]:
        """Count work for as long as it takes; raise `Busy` when it would be too much."""
        self.check(posts, size)
        self.posts += posts
        self.bytes += size
        try:
            yield
        finally:
            self.posts -= posts
            self.bytes -= size
