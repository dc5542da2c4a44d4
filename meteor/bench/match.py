"""Measures matching at one peer against a full scan in SQL and against SQLite's R*Tree.

All have the same boxes in memory and answer the same questions with lists of numbers; they take
turns within each repeat. SQLite is given every advantage: no file, no other table, one prepared
statement.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from arms.matching import PackedIndex
from arms.message import Action, Header, Message, region_of
from arms.profile import Profile
from arms.rendezvous import Rendezvous
from arms.rows import INSERT
from arms.store import WHOLE_RING, Store
from arms.writes import Put, Sweep
from meteor.bench.match_workload import DENSE_SHARE, SPARSE_MATCHES, Workload, workload
from meteor.bench.report import Plot, Report, Section, Spread, interleaved

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Result = TypeVar("Result")

REPEATS = 5
EVENTS = 2_000
"""Different points that are asked for, in turns."""
BATCH = 500
"""Points matched as one batch."""
WHOLE_PEER_MAX = 10_000
"""Profiles of the cases that go through a whole peer: parsing them all takes its time."""
R_TREE_DIMENSIONS_MAX = 5
R_TREE_BITS_MAX = 31
CHANGES = 10_000
"""Boxes added to, and taken from, an index that is full."""
ROUNDS = 3
"""How often they are."""
FAR_MS = 10**15


def run(sizes: Sequence[int], dimensions: Sequence[int], seconds: float, seed: int) -> Report:
    """Measure all cases, each contender of each for about so many seconds."""
    report = Report("match", {"seconds": seconds, "seed": seed, "repeats": REPEATS})
    for direction in ("data against interests", "interests against data"):
        section = report.section(
            f"{direction}, answers a second",
            "case", "full scan", "R*Tree", "packed", "x scan", "x R*Tree", "batches", "x one",
        )  # fmt: skip
        plot = Plot(direction, "stored profiles", "answers a second", x_log=True, y_log=True)
        report.plots.append(plot)
        for d, size in ((d, size) for d in dimensions for size in sizes):
            for name, share in (("sparse", SPARSE_MATCHES / size), ("dense", DENSE_SHARE)):
                forward = direction.startswith("data")
                counts = (size, EVENTS) if forward else (EVENTS, size)
                load = workload(*counts, d, share, seed, fine=forward)
                _compare(section, plot, name, load, forward, seconds)
    changes = report.section(
        "changes to the index in memory, a second, and the longest step",
        "case", "bytes a profile", "added", "R*Tree added", "deleted", "R*Tree deleted",
        "longest step ms",
    )  # fmt: skip
    opening = report.section(
        "opening a store again",
        "case",
        "file MiB",
        "seconds",
        "of the processor",
        "checking the file",
    )
    for d, size in ((d, size) for d in dimensions for size in sizes):
        load = workload(size + CHANGES, 1, d, SPARSE_MATCHES / size, seed)
        _changes(changes, load, size)
        _opening(opening, load, size)
    peer = report.section(
        "a whole peer: profiles parsed, stored and checked exactly, a second",
        "case", "interests put", "reactions", "in batches", "x one", "retrievals", "swept",
    )  # fmt: skip
    for d in dimensions:
        size = min(WHOLE_PEER_MAX, max(sizes))
        _whole_peer(peer, workload(size, EVENTS, d, SPARSE_MATCHES / size, seed), size, seconds)
    report.notes.append(
        f"sparse: about {SPARSE_MATCHES} matches; dense: about {DENSE_SHARE:.0%} of all; "
        f"in brackets: how many they were. Batches are of {BATCH} points."
    )
    return report


def _compare(
    section: Section, plot: Plot, name: str, load: Workload, forward: bool, seconds: float
) -> None:
    """Compare the contenders on one workload, stored boxes against asked ones."""
    stored = (load.lows, load.highs) if forward else (load.points, load.points)
    asked = (load.points, load.points) if forward else (load.lows, load.highs)
    size, d = stored[0].shape
    index = PackedIndex(d, load.bits, of_points=not forward)
    index.load(np.arange(size), *stored)
    tables = sqlite3.connect(":memory:", isolation_level=None)
    questions = [
        tuple(np.stack((high, low), axis=1).ravel().tolist())
        for low, high in zip(*asked, strict=True)
    ]
    boxes = [(low, high) for low, high in zip(asked[0].tolist(), asked[1].tolist(), strict=True)]
    _plain_table(tables, *stored)
    scan = _asking(tables, "plain", questions, d)
    with_r_tree = _fits_r_tree(load)

    def ask(i: int) -> int:
        low, high = boxes[i]
        return len(index.meeting(low, high).tolist())

    works = [scan, ask]
    if with_r_tree:
        _r_tree(tables, *stored)
        works.append(_asking(tables, "tree", questions, d))
    found = [[work(i) for work in works] for i in range(3)]
    assert all(len(set(counts)) == 1 for counts in found), f"the contenders disagree: {found}"
    matches = sum(ask(i) for i in range(200)) / 200

    def batch(i: int) -> int:
        begin = i * BATCH % EVENTS
        points = load.points[begin : begin + BATCH]
        found = index.meeting_each(points, points)
        return sum(len(codes.tolist()) for codes in found)

    share = seconds / REPEATS
    timed: list[Callable[[], float]] = [partial(_rate, work, EVENTS, share) for work in works]
    if forward:
        timed.append(lambda: BATCH * _rate(batch, EVENTS // BATCH, share))
    measured = interleaved(timed, REPEATS)
    scans, ours = measured[:2]
    trees = measured[2] if with_r_tree else None
    batches = measured[-1] if forward else None
    section.add(
        f"{size:,}, {d}d, {name} ({matches:,.0f})", median(scans),
        None if trees is None else median(trees), median(ours),
        Spread.of_ratios(ours, scans),
        None if trees is None else Spread.of_ratios(ours, trees),
        None if batches is None else median(batches),
        None if batches is None else Spread.of_ratios(batches, ours),
    )  # fmt: skip
    for label, rates in (("scan", scans), ("R*Tree", trees), ("packed", ours)):
        if rates is not None:
            line = plot.series.setdefault(f"{label}, {d} dimensions, {name}", [])
            line.append((size, Spread.of(rates).median))
    tables.close()


def _changes(section: Section, load: Workload, size: int) -> None:
    """Fill an index, add and delete more, and see how long the longest step takes."""
    d = load.lows.shape[1]
    index = PackedIndex(d, load.bits)
    index.load(np.arange(size), load.lows[:size], load.highs[:size])
    nbytes = index.nbytes / size
    added = np.stack((load.lows[size:], load.highs[size:]), axis=2).tolist()
    longest, adds, deletes = [], [], []
    for _ in range(ROUNDS):
        steps = _Steps()
        begin = time.perf_counter()
        for i in range(0, CHANGES, 100):
            steps.time(partial(index.add, range(size + i, size + i + 100), added[i : i + 100]))
            steps.time(index.tidy)
        while steps.time(index.tidy):
            pass
        adds.append(CHANGES / (time.perf_counter() - begin))
        begin = time.perf_counter()
        for i in range(0, CHANGES, 100):
            steps.time(partial(index.discard, range(size + i, size + i + 100), added[i : i + 100]))
            steps.time(index.tidy)
        while steps.time(index.tidy):
            pass
        deletes.append(CHANGES / (time.perf_counter() - begin))
        longest.append(steps.longest_ms)
    tree_added = tree_deleted = None
    if _fits_r_tree(load):
        tables = sqlite3.connect(":memory:", isolation_level=None)
        _r_tree(tables, load.lows[:size], load.highs[:size])
        begin = time.perf_counter()
        _insert(tables, "tree", load.lows[size:], load.highs[size:], size)
        tree_added = CHANGES / (time.perf_counter() - begin)
        begin = time.perf_counter()
        tables.executemany("DELETE FROM tree WHERE seq = ?", [(size + i,) for i in range(CHANGES)])
        tree_deleted = CHANGES / (time.perf_counter() - begin)
        tables.close()
    section.add(
        f"{size:,}, {d}d",
        nbytes,
        median(adds),
        tree_added,
        median(deletes),
        tree_deleted,
        Spread.of(longest),
    )


class _Steps:
    """Times steps and remembers the longest."""

    longest_ms = 0.0

    def time(self, step: Callable[[], Result]) -> Result:
        begin = time.thread_time()  # of this process alone: others may have the processor between
        result = step()
        self.longest_ms = max(self.longest_ms, (time.thread_time() - begin) * 1000)
        return result


def _opening(section: Section, load: Workload, size: int) -> None:
    """Write a store of interests as a killed peer leaves it, and open it."""
    from arms import schema

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profiles.db"
        Store(path, load.space, "normal").close()
        tables = sqlite3.connect(path, isolation_level=None)
        d = load.lows.shape[1]
        tables.execute("BEGIN")
        tables.executemany(INSERT, (_row(i, load) for i in range(size)))
        ends = np.stack((load.lows[:size], load.highs[:size]), axis=2).reshape(size, -1)
        marks = ", ".join("?" * (3 + 2 * d))
        tables.executemany(
            f"INSERT INTO interest_box VALUES ({marks})",
            ((seq, 0, 0, *row) for seq, row in enumerate(ends.tolist(), start=1)),
        )
        tables.execute("COMMIT")
        tables.close()
        begin = time.perf_counter()
        schema.inspect(path, load.space)
        checked = time.perf_counter() - begin
        begin, used = time.perf_counter(), time.process_time()
        store = Store(path, load.space, "normal")
        opened, used = time.perf_counter() - begin, time.process_time() - used
        store.close()
        section.add(f"{size:,}, {d}d", path.stat().st_size / 2**20, opened, used, checked)


def _row(i: int, load: Workload) -> tuple[object, ...]:
    profile = load.interests[i % len(load.interests)]
    fixed = ("client", "127.0.0.1:7400", "", "{}", "[null, null, null, null]", b"", 0, "", i)
    return (f"{i:032x}", "interest", "notify_data", profile, i, 0, 0, FAR_MS, *fixed)


def _whole_peer(section: Section, load: Workload, size: int, seconds: float) -> None:
    """Measure the steps of a rendezvous on a real store."""
    interests = [
        _message(Action.NOTIFY_DATA, text, f"w{i}") for i, text in enumerate(load.interests)
    ]
    data = [_message(Action.STORE, text, f"d{i}") for i, text in enumerate(load.data)]
    for message in data:
        region_of(load.space, message)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "profiles.db", load.space, "normal")
        rendezvous = Rendezvous(load.space, store)
        begin = time.perf_counter()
        for i in range(0, size, 100):
            store.apply(0, [[Put(message)] for message in interests[i : i + 100]])
        put = size / (time.perf_counter() - begin)
        while store.tidy():
            pass
        plans = [rendezvous.plan(0, message, WHOLE_RING) for message in data]
        store.apply(0, [plan.writes for plan in plans])
        written = [[1]] * len(plans)

        def one(i: int) -> int:
            return rendezvous.react(0, plans[i], written[i]).matches

        def batch(i: int) -> int:
            part = slice(i * BATCH, (i + 1) * BATCH)
            return len(rendezvous.react_many(0, plans[part], written[part]))

        def retrieve(i: int) -> int:
            wanted = Message(interests[i].header, Action.RETRIEVE)
            return len(rendezvous.page(0, wanted, WHOLE_RING, {}, 2**20, 500).found)

        matches = sum(one(i) for i in range(len(data))) / len(data)
        share = seconds / REPEATS
        singles, batches, retrievals = interleaved(
            [
                lambda: _rate(one, len(data), share),
                lambda: BATCH * _rate(batch, len(data) // BATCH, share),
                lambda: _rate(retrieve, size, share),
            ],
            REPEATS,
        )
        begin = time.perf_counter()
        swept = sum(store.apply(FAR_MS, [[Sweep(100)]])[0][0] for _ in range(20))
        sweep = swept / (time.perf_counter() - begin)
        store.close()
    section.add(
        f"{size:,}, {load.lows.shape[1]}d ({matches:,.0f})", put, median(singles),
        median(batches), Spread.of_ratios(batches, singles), median(retrievals), sweep,
    )  # fmt: skip


def _message(action: Action, profile: str, id_: str) -> Message:
    return Message(Header(Profile.parse(profile), id_, FAR_MS, "client", "127.0.0.1:7400"), action)


def _plain_table(tables: sqlite3.Connection, lows: Integers, highs: Integers) -> None:
    ends = ", ".join(f"low_{i} INTEGER, high_{i} INTEGER" for i in range(lows.shape[1]))
    tables.execute(f"CREATE TABLE plain (seq INTEGER PRIMARY KEY, {ends})")
    _insert(tables, "plain", lows, highs)


def _fits_r_tree(load: Workload) -> bool:
    return load.lows.shape[1] <= R_TREE_DIMENSIONS_MAX and load.bits <= R_TREE_BITS_MAX


def _r_tree(tables: sqlite3.Connection, lows: Integers, highs: Integers) -> None:
    ends = ", ".join(f"low_{i}, high_{i}" for i in range(lows.shape[1]))
    tables.execute(f"CREATE VIRTUAL TABLE tree USING rtree_i32(seq, {ends})")
    _insert(tables, "tree", lows, highs)


def _insert(
    tables: sqlite3.Connection, table: str, lows: Integers, highs: Integers, first: int = 0
) -> None:
    ends = np.stack((lows, highs), axis=2).reshape(len(lows), -1).tolist()
    marks = ", ".join("?" * (1 + 2 * lows.shape[1]))
    tables.execute("BEGIN")
    tables.executemany(
        f"INSERT INTO {table} VALUES ({marks})",
        ((seq, *row) for seq, row in enumerate(ends, start=first)),
    )
    tables.execute("COMMIT")


def _asking(
    tables: sqlite3.Connection, table: str, questions: Sequence[tuple[int, ...]], dimensions: int
) -> Callable[[int], int]:
    tests = " AND ".join(f"low_{i} <= ? AND high_{i} >= ?" for i in range(dimensions))
    sql = f"SELECT seq FROM {table} WHERE {tests}"
    return lambda i: len([seq for (seq,) in tables.execute(sql, questions[i])])


def _rate(work: Callable[[int], object], count: int, seconds: float) -> float:
    """Return how often a second the work is done, going round through so many questions."""
    done, begin = 0, time.perf_counter()
    while True:
        work(done % count)
        done += 1
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            return done / elapsed
