"""The disk twin: a real SQLite file, on a disk that is slow and can lose its power.

What is emulated is what SQLite does in WAL mode with `synchronous = FULL`. A commit appends to the
log and syncs it; only then does it return. So at a power cut everything is safe that was committed
and reported, and of the one transaction that was being written any number of bytes may have reached
the disk. At a crash the database and its log are taken as they are at that moment, the log is cut
at a random byte at or after the end of the last commit that was reported, and the index of the log
(-shm), which is never synced, is gone. SQLite's own recovery then decides what is in the file.

Not emulated: a cut while SQLite copies the log into the database (it syncs the log first and the
database after, so either is whole), disks that lie about syncing, and bytes that rot.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import trio

LOG_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
LAST_FRAME_AT = 16
"""Where the index of the log has the number of its last valid frame."""

PAGE_SIZE_AT = 8
"""Where the log's header has the size of a page."""


class Disk:
    """One peer's disk; the pace of its writer."""

    def __init__(self, folder: Path, random: Random) -> None:
        self._slow: list[float] = []  # by each fault that makes it slow
        self._folder, self._random = folder, random
        self._safe = 0

    @property
    def slow_seconds(self) -> float:
        """How long a commit takes at most, before and after it is written."""
        return max(self._slow, default=0.0)

    @contextmanager
    def slow(self, seconds: float) -> Iterator[None]:
        """Be slow for a while."""
        self._slow.append(seconds)
        try:
            yield
        finally:
            self._slow.remove(seconds)

    async def begin(self) -> None:
        """Wait for the disk."""
        if self.slow_seconds:
            await trio.sleep(self._draw())

    async def finish(self) -> None:
        """Wait until what was written is synced."""
        if self.slow_seconds:
            await trio.sleep(self._draw())
        self._safe = log_end(self._log)

    def _draw(self) -> float:
        return round(self._random.uniform(0, self.slow_seconds), 3)

    @property
    def _database(self) -> Path:
        return self._folder / "profiles.db"

    @property
    def _log(self) -> Path:
        return self._folder / "profiles.db-wal"

    def wipe(self) -> None:
        """Be a new disk."""
        for file in self._folder.iterdir():
            file.unlink()
        self._safe = 0

    def lose_power(self) -> Callable[[], None]:
        """Take the files as a power cut leaves them.

        Returns what puts them in place, to be called when whoever uses them has closed them:
        closing a database tidies up, as no crash does.
        """
        if not self._database.exists():
            return lambda: None
        database = self._database.read_bytes()
        log = self._log.read_bytes() if self._log.exists() else b""
        end = log_end(self._log)
        # After SQLite began the log anew, what was safe before is in the database.
        safe = self._safe if self._safe <= end else LOG_HEADER_BYTES
        log = log[: self._random.randint(min(safe, end), end)]

        def restore() -> None:
            self._database.write_bytes(database)
            self._log.write_bytes(log)
            self._folder.joinpath("profiles.db-shm").unlink(missing_ok=True)
            self._safe = 0

        return restore


def log_end(log: Path) -> int:
    """Return where the valid part of a log ends, by SQLite's index of it."""
    index = log.with_name(log.name.removesuffix("-wal") + "-shm")
    if not (log.exists() and index.exists()) or log.stat().st_size < LOG_HEADER_BYTES:
        return 0
    with index.open("rb") as file:
        file.seek(LAST_FRAME_AT)
        (last,) = struct.unpack("=I", file.read(4))
    with log.open("rb") as file:
        file.seek(PAGE_SIZE_AT)
        (page,) = struct.unpack(">I", file.read(4))
    end: int = LOG_HEADER_BYTES + last * (FRAME_HEADER_BYTES + page)
    return min(end, log.stat().st_size)
