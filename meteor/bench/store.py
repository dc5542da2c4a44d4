"""Measures durable posts at one store, by group size and sync level, against bare SQLite.

Bare SQLite does the same inserts: the same rows into a table with the same columns and indexes, the
same number in each transaction, and nothing else.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from arms.batch import Batch
from arms.message import Action, Header, Kind, Message, Voters, region_of
from arms.profile import Profile
from arms.rows import INSERT, write_row
from arms.sites import Sites
from arms.store import Store
from arms.writes import Put, PutBatch
from meteor.bench.report import Plot, Report, Spread, interleaved
from meteor.config import load_space

NAMES = ("as a batch", "one by one", "bare sqlite3")
GROUPS = (1, 10, 100, 1_000)
DATA = b"." * 100
NOW_MS = 1_700_000_000_000
TTL_MS = 3_600_000

Work = Callable[[Path, Sequence[Batch], str], float]
"""Writes batches into a new file; returns the seconds that it took."""


def run(
    messages: int = 20_000, repeats: int = 3, groups: Sequence[int] = GROUPS, seed: int = 7
) -> Report:
    """Measure all group sizes and both sync levels, taking turns."""
    report = Report("store", {"messages": messages, "repeats": repeats, "seed": seed})
    space = load_space("")
    batches = {group: _batches(Sites(space), messages, group, seed) for group in groups}
    for sync in ("full", "normal"):
        section = report.section(
            f"Posts a second with sync = {sync}",
            "posts in a group",
            "meteor, as a batch",
            "meteor, one by one",
            "bare sqlite3",
            "batch / bare",
        )
        plot = Plot(f"sync = {sync}", "posts in a group", "posts a second", x_log=True)
        for group, parts in batches.items():
            some = parts[: _share(group, len(parts))]
            works = [_timed(work, some, sync) for work in (_as_batches, _one_by_one, _bare)]
            measured = interleaved(works, repeats)
            batch, single, bare = measured
            section.add(
                group,
                Spread.of(batch),
                Spread.of(single),
                Spread.of(bare),
                Spread.of_ratios(batch, bare),
            )
            for name, rates in zip(NAMES, measured, strict=True):
                plot.series.setdefault(name, []).append((group, Spread.of(rates).median))
        report.plots.append(plot)
    return report


def _share(group: int, parts: int) -> int:
    """Return how many groups to write: those of one are slow, and a tenth of them is enough."""
    return max(1, parts // 10) if group == 1 else parts


def _batches(sites: Sites, messages: int, group: int, seed: int) -> list[Batch]:
    random = Random(f"store {seed}")
    batches = []
    for first in range(0, messages, group):
        batch = Batch("bench", "127.0.0.1:7400", "", voters=Voters(0, (1, 2, 3)))
        for number in range(first, min(first + group, messages)):
            text = f"type=t{random.randrange(50)}, location=room{random.randrange(500)}, degree=20"
            site = sites.of(text)
            assert site is not None
            batch.ids.append(f"{seed:016x}{number:012x}")
            batch.sites.append(site)
            batch.data.append(DATA)
            batch.expires_ms.append(NOW_MS + TTL_MS)
        batches.append(batch)
    return batches


def _timed(work: Work, batches: Sequence[Batch], sync: str) -> Callable[[], float]:
    """Return what measures posts a second of some work, in a folder of its own."""
    count = sum(map(len, batches))

    def measure() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return count / work(Path(folder) / "profiles.db", batches, sync)

    return measure


def _as_batches(path: Path, batches: Sequence[Batch], sync: str) -> float:
    store = Store(path, load_space(""), sync)
    begin = time.perf_counter()
    for batch in batches:
        store.apply(NOW_MS, [[PutBatch(batch)]])
    seconds = time.perf_counter() - begin
    store.close()
    return seconds


def _one_by_one(path: Path, batches: Sequence[Batch], sync: str) -> float:
    """Write messages each with a write of its own, as copies and odd messages are."""
    store = Store(path, load_space(""), sync)
    groups = [
        [Put(_message(batch, row)) for row in range(len(batch))] for batch in batches
    ]  # made before: what is measured is the store
    begin = time.perf_counter()
    for group in groups:
        store.apply(NOW_MS, [group])
    seconds = time.perf_counter() - begin
    store.close()
    return seconds


def _message(batch: Batch, row: int) -> Message:
    header = Header(
        Profile.parse(batch.sites[row].text),
        batch.ids[row],
        batch.expires_ms[row],
        batch.sender,
        batch.reply_to,
        voters=batch.voters,
    )
    return Message(header, Action.STORE, batch.data[row])


def _bare(path: Path, batches: Sequence[Batch], sync: str) -> float:
    space = load_space("")
    Store(path, space, sync).close()  # the same table and indexes
    groups = [
        [
            write_row(NOW_MS, Kind.DATA, message, region_of(space, message))
            for message in (_message(batch, row) for row in range(len(batch)))
        ]
        for batch in batches
    ]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {sync}")
    begin = time.perf_counter()
    for rows in groups:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(INSERT, rows)
        connection.execute("COMMIT")
    seconds = time.perf_counter() - begin
    connection.close()
    return seconds
