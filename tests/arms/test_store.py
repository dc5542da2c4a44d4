"""The profile store: what is on disk, for how long, and what happens on a bad day."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rendezvous_point import LAB, Point, post

from arms.errors import StoreError
from arms.message import Kind, Message, modifiers, region_of
from arms.store import Store, Stored
from arms.writes import Bury, Drop, Put, Remove, Sweep, Take, Write
from squid import Region, Space
from squid.limits import RING_BITS
from tests.arms.rendezvous_point import stored_after

WHOLE = ((0, (1 << RING_BITS) - 1),)
NOW = 1_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store.db", LAB, sync="normal")
    yield store
    store.close()


def write(store: Store, *writes: Write, now_ms: int = NOW) -> list[int]:
    (results,) = store.apply(now_ms, [writes])
    return results


def region(profile: str, space: Space = LAB) -> Region:
    return region_of(space, post("retrieve", profile))


def ids(found: Iterator[tuple[int, Stored]]) -> list[str]:
    return [stored.message.id for _, stored in found]


def data(store: Store, profile: str = "type=*", now_ms: int = NOW) -> list[str]:
    return sorted(
        ids(store.candidates.points(now_ms, region(profile), WHOLE, {}))
        + ids(store.candidates.ranges(now_ms, region(profile), WHOLE, {}))
    )


# What is kept


def test_a_message_is_kept_as_it_came(tmp_path: Path) -> None:
    message = post(
        "notify_data",
        "type=a | degree>5 // room=12",
        "m1",
        data=b"\x00\xff",
        sender="c1",
        reply_to="10.0.0.1:7400",
        credential="secret",
        limit=3,
        context={"why": "Grüße"},
    )
    store = Store(tmp_path / "store.db", LAB)
    assert write(store, Put(message)) == [True]
    store.close()
    store = Store(tmp_path / "store.db", LAB)
    stored = store.find(NOW, "m1")
    assert stored is not None
    assert stored.message == message
    assert (stored.kind, stored.point) == (Kind.INTEREST, False)
    assert stored.identifier == region_of(LAB, message).lowest
    store.close()


def test_the_same_id_again_changes_nothing(store: Store) -> None:
    message = post("store", "type=a", "m1", data=b"first")
    assert write(store, Put(message), Put(message)) == [True, False]
    (before,) = stored_after(store, NOW, 0, 10)
    assert write(store, Put(post("store", "type=b", "m1", data=b"other"))) == [False]
    assert [*stored_after(store, NOW, 0, 10)] == [before]


def test_whoever_copies_what_came_after_sees_a_renewal(store: Store) -> None:
    """An interest that is renewed while its arc is handed over must not arrive as it was."""
    write(store, Put(post("notify_data", "type=a | type=c", "w1", expires_ms=5_000)))
    write(store, Put(post("store", "type=a", "d1")))
    copied = [*stored_after(store, NOW, 0, 10)]
    write(store, Put(post("notify_data", "type=a | type=c", "w1", expires_ms=6_000, reply_to="b")))
    (renewed,) = stored_after(store, NOW, copied[-1].seq, 10)
    assert renewed.message.header.expires_ms == 6_000
    assert renewed.message.header.reply_to == "b"
    for profile in ("type=a", "type=c"):
        assert len(list(store.candidates.meeting(NOW, Kind.INTEREST, region(profile)))) == 1


def test_a_reliable_watch_that_is_posted_again_keeps_notes_as_long_as_the_later_one_says(
    store: Store,
) -> None:
    for expires_ms, keep, kept in ((5_000, 60, 60), (9_000, 3600, 3600), (7_000, 1, 3600)):
        watch = post("notify_data", "type=a", "w1", expires_ms=expires_ms)
        write(store, Put(replace(watch, modifiers=modifiers(inbox="me", keep=keep))))
        stored = store.find(NOW, "w1")
        assert stored is not None
        assert stored.message.modifiers.keep == kept


def test_nobody_renews_what_another_posted(store: Store) -> None:
    write(store, Put(post("notify_data", "type=a", "w1", expires_ms=5_000, credential="secret")))
    taken = post("notify_data", "type=a", "w1", expires_ms=9_000, reply_to="thief")
    other = post("store", "type=a", "w1", expires_ms=9_000, credential="secret", reply_to="thief")
    assert write(store, Put(taken), Put(other)) == [False, False]
    stored = store.find(NOW, "w1")
    assert stored is not None
    assert stored.message.header.reply_to == "somebody's peer"
    assert stored.message.header.expires_ms == 5_000


def test_what_only_asks_is_not_kept(store: Store) -> None:
    with pytest.raises(StoreError, match="a retrieve message is not kept"):
        write(store, Put(post("store", "type=a")), Put(post("retrieve", "type=a")))
    assert data(store) == []


# TTL


def test_a_ttl_ends_at_its_millisecond_for_every_reader(store: Store) -> None:
    for action in ("store", "notify_data", "notify_interest"):
        write(store, Put(post(action, "type=a, degree=5", action, expires_ms=2_000)))
    write(store, Put(post("store", "type=a, degree=5..6", "range", expires_ms=2_000)))
    for now_ms, there in ((1_999, True), (2_000, False)):
        assert data(store, now_ms=now_ms) == (["range", "store"] if there else [])
        assert (store.find(now_ms, "store") is not None) == there
        assert (sum(store.counts(now_ms).values()) == 4) == there
        assert (len([*stored_after(store, now_ms, 0, 9)]) == 4) == there
        assert (store.quantile(now_ms, WHOLE, 0.5) is not None) == there
        for kind in (Kind.INTEREST, Kind.ADVERTISEMENT):
            assert bool(list(store.candidates.meeting(now_ms, kind, region("type=a")))) == there
    assert sum(store.counts(0).values()) == 4  # still on disk


def test_what_has_expired_is_swept_in_batches(store: Store) -> None:
    writes = [Put(post("store", f"type=a, degree={i}", expires_ms=1_500 + i)) for i in range(10)]
    writes += [Put(post("notify_data", "type=a | type=c", expires_ms=1_500)) for _ in range(3)]
    write(store, *writes, Remove((writes[9].message.id,)))
    assert write(store, Sweep(100), now_ms=1_499) == [0]
    assert write(store, Sweep(5), now_ms=1_504) == [5]
    assert write(store, Sweep(5), now_ms=1_504) == [3]
    assert store.counts(0) == {Kind.DATA: 4, Kind.INTEREST: 0, Kind.ADVERTISEMENT: 0}
    assert len(store.tombstones(0, 0, 9)) == 1
    assert write(store, Sweep(5), now_ms=1_509) == [5]  # four and the tombstone
    assert store.tombstones(0, 0, 9) == []
    assert list(store.candidates.meeting(0, Kind.INTEREST, region("type=a"))) == []


def test_sweeping_goes_on_while_there_are_tombstones(store: Store) -> None:
    puts = [Put(post("store", "type=a", expires_ms=1_500)) for _ in range(7)]
    write(store, *puts, Remove(tuple(put.message.id for put in puts)))
    swept = [write(store, Sweep(3), now_ms=1_500)[0] for _ in range(4)]
    assert swept == [3, 3, 1, 0]


# Deleting and taking


def test_a_deleted_message_does_not_come_back_until_its_ttl_has_passed(store: Store) -> None:
    message = post("store", "type=a", "m1", expires_ms=2_000)
    assert write(store, Put(message), Remove(("m1", "m2"))) == [True, 1]
    again = post("store", "type=a", "m1", expires_ms=9_000)
    assert write(store, Put(message), Put(again)) == [False, False]
    assert write(store, Put(again), now_ms=1_999) == [False]
    assert data(store) == []
    # From here on nobody can have the old one any more; and whether it was swept makes no odds.
    assert write(store, Put(again), now_ms=2_000) == [True]
    assert data(store, now_ms=2_000) == ["m1"]
    assert write(store, Take("m1", "t1", ""), now_ms=2_000) == [True]


def test_a_message_is_taken_once(store: Store) -> None:
    write(store, Put(post("store", "type=a", "m1")))
    assert write(store, Take("m1", "t1", ""), Take("m1", "t2", "")) == [True, False]
    assert write(store, Take("m1", "t1", "")) == [True]  # the first answer may have got lost
    assert data(store) == []
    assert write(store, Take("m2", "t1", "")) == [False]


def test_what_can_not_be_taken(store: Store) -> None:
    write(
        store,
        Put(post("store", "type=a", "secret", credential="x")),
        Put(post("store", "type=a", "deleted")),
        Put(post("store", "type=a", "expired", expires_ms=1_500)),
        Put(post("notify_data", "type=a", "interest")),
        Remove(("deleted",)),
    )
    for id_, taker in (
        ("secret", "t1"),
        ("deleted", "t1"),
        ("deleted", ""),
        ("expired", "t1"),
        ("expired", "t1"),
        ("interest", "t1"),
    ):
        assert write(store, Take(id_, taker, "y"), now_ms=1_500) == [False]
    assert write(store, Take("secret", "t1", "x")) == [True]
    assert store.counts(1_500)[Kind.INTEREST] == 1


def test_tombstones_go_from_peer_to_peer(store: Store, tmp_path: Path) -> None:
    write(
        store,
        Put(post("store", "type=a", "d1", expires_ms=5_000)),
        Put(post("store", "type=a", "d2", expires_ms=5_000)),
        Remove(("d1",)),
        Take("d2", "t1", ""),
    )
    ((first, one), (_, two)) = store.tombstones(NOW, 0, 10)
    assert [stone for _, stone in store.tombstones(NOW, first, 10)] == [two]
    assert store.tombstones(5_000, 0, 10) == []
    other = Store(tmp_path / "other.db", LAB, sync="normal")
    write(other, Put(post("store", "type=a", "d1", expires_ms=6_000)))  # renewed there
    assert write(other, Bury((one, two)), Bury((one,))) == [1, 0]
    assert data(other) == []
    late = post("store", "type=a", "d1", expires_ms=6_000)
    assert write(other, Put(late), now_ms=5_500) == [False]
    assert write(other, Take("d2", "t2", ""), Take("d2", "t1", "")) == [False, True]
    assert [stone.expires_ms for _, stone in other.tombstones(NOW, 0, 10)] == [6_000, 5_000]
    other.close()


def test_what_lives_elsewhere_is_dropped_without_a_trace(store: Store) -> None:
    message = post("store", "type=a", "m1")
    write(store, Put(message), Put(post("notify_data", "type=a", "w1")))
    seqs = tuple(stored.seq for stored in stored_after(store, NOW, 0, 10))
    assert write(store, Drop((*seqs, 999))) == [2]
    assert store.tombstones(0, 0, 10) == []
    assert write(store, Put(message)) == [True]
    (stored,) = stored_after(store, NOW, 0, 10)
    assert stored.seq > max(seqs)  # a seq is never used twice


# Walks


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=40),
    st.lists(st.integers(0, (1 << RING_BITS) - 1), min_size=2, max_size=4, unique=True),
)
def test_the_median_splits_the_data_of_an_arc(
    tmp_path_factory: pytest.TempPathFactory, degrees: list[int], ends: list[int]
) -> None:
    store = Store(tmp_path_factory.mktemp("median") / "store.db", LAB, sync="normal")
    messages = [post("store", f"type=a, degree={degree}") for degree in degrees]
    write(store, *map(Put, messages))
    places = sorted(region_of(LAB, message).lowest or 0 for message in messages)
    low, high = sorted(ends)[:2]
    whole = places
    inside = [place for place in places if low <= place <= high]
    around = [p for p in places if p >= high] + [p for p in places if p <= low]
    wrapping = ((0, low), (high, WHOLE[0][1]))
    for spans, expected in ((WHOLE, whole), (((low, high),), inside), (wrapping, around), ((), [])):
        middle = expected[(len(expected) - 1) // 2] if expected else None
        assert store.quantile(NOW, spans, 0.5) == middle
    store.close()


def test_a_walk_that_was_left_does_not_see_an_old_state_for_ever(store: Store) -> None:
    write(store, *(Put(post("store", "type=a", f"d{i}")) for i in range(3)))
    walk = store.candidates.points(NOW, region("type=a"), WHOLE, {})
    assert next(walk)[1].message.id == "d0"
    del walk
    write(store, Put(post("store", "type=a", "d9")))
    assert data(store) == ["d0", "d1", "d2", "d9"]


def test_candidates_come_once_though_many_boxes_meet(store: Store) -> None:
    write(store, Put(post("notify_data", "type=a | type=c | type=e | degree>50", "w1")))
    wide = region("type=a | type=c | degree=60..70")
    assert [s.message.id for s in store.candidates.meeting(NOW, Kind.INTEREST, wide)] == ["w1"]
    for box in ("type=a", "type=c", "type=e", "degree=60", "type=q | type=e"):
        assert list(store.candidates.meeting(NOW, Kind.INTEREST, region(box)))
    assert not list(store.candidates.meeting(NOW, Kind.INTEREST, region("type=q, degree=4")))


def test_what_is_gone_leaves_no_boxes_behind(store: Store) -> None:
    messages = [
        post("notify_data", "type=a | type=c | type=e", "w1", expires_ms=2_000),
        post("notify_interest", "type=*", "o1", expires_ms=2_000),
        post("store", "type=a, degree=5..7", "d1", expires_ms=2_000),
        post("store", "type=a, degree=5", "d2", expires_ms=2_000),
    ]
    reader = sqlite3.connect(store.path)

    def boxes() -> list[int]:
        tables = ("interest_box", "advertisement_box", "data_box")
        return [reader.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables]

    def seqs() -> tuple[int, ...]:
        return tuple(stored.seq for stored in stored_after(store, 0, 0, 9))

    puts = [Put(message) for message in messages]
    for now_ms, gone in (
        (NOW, lambda: Drop(seqs())),
        (2_000, lambda: Sweep(9)),
        (NOW, lambda: Remove(tuple(message.id for message in messages))),
    ):
        write(store, *puts)
        assert boxes() == [3, 1, 1]
        write(store, gone(), now_ms=now_ms)
        assert boxes() == [0, 0, 0]
    reader.close()


@pytest.mark.parametrize("dimensions", [1, 3, 5, 8])
def test_any_number_of_dimensions(tmp_path: Path, dimensions: int) -> None:
    """The R*Tree has five; the rest is left to the exact check."""
    names = [f"a{i}" for i in range(dimensions)]
    tables = "".join(f'[[dimension]]\nname = "{name}"\ncodec = "keyword"\n' for name in names)
    point = Point(tmp_path / "store.db", Space.from_toml(f'name = "s"\nversion = 1\n{tables}'))
    last = names[-1]
    same = ", ".join(f"{name}=x" for name in names[:-1])

    def profile(text: str) -> str:
        return f"{same}, {last}{text}" if same else f"{last}{text}"

    for text in ("=m*", "=n", ">=mb"):
        point.post(post("notify_data", profile(text), f"w{text}"))
    for text in ("=ma", "=n", "=ma..mz"):
        effect = point.post(post("store", profile(text), f"d{text}"))
        watches = {"=ma": {"w=m*"}, "=n": {"w=n", "w>=mb"}, "=ma..mz": {"w=m*"}}
        assert {note.watch for note in effect.notifications} == watches[text]
    assert sorted(point.retrieve(profile("=m*"))) == ["d=ma", "d=ma..mz"]
    assert point.retrieve(profile("=n")) == ["d=n"]
    point.store.close()


# Bad days


def fill(store: Store, pages_more: int | None) -> None:
    """Let the file grow by so many pages only, as a full disk would; None lets it grow again."""
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    most = 2**31 if pages_more is None else pages + pages_more
    store._writer.execute(f"PRAGMA max_page_count = {most}")


def groups(messages: Sequence[Message]) -> list[list[Write]]:
    return [[Put(message)] for message in messages]


def test_a_full_disk_leaves_nothing_of_a_group_and_passes(store: Store) -> None:
    write(store, Put(post("store", "type=a", "d0")), Put(post("notify_data", "type=a", "w0")))
    fill(store, 3)
    many = [post("notify_data", f"type=a, degree={i}", f"w{i}") for i in range(1, 30)]
    many += [post("store", "type=a", f"d{i}", data=bytes(2_000)) for i in range(1, 30)]
    with pytest.raises(StoreError, match=r"the disk of .*store\.db is full; nothing of this was"):
        store.apply(NOW, groups(many))
    assert store.counts(NOW) == {Kind.DATA: 1, Kind.INTEREST: 1, Kind.ADVERTISEMENT: 0}
    assert len(list(store.candidates.meeting(NOW, Kind.INTEREST, region("type=a")))) == 1
    fill(store, None)
    assert store.apply(NOW, groups(many)) == [[True]] * len(many)
    assert len(data(store)) == 30
    assert len(list(store.candidates.meeting(NOW, Kind.INTEREST, region("type=a")))) == 30


def test_an_error_in_the_middle_leaves_nothing_of_a_group(store: Store) -> None:
    good, bad = post("store", "type=a", "d1"), post("store", "degree=warm", "d2")
    write(store, Put(post("store", "type=a", "d0")))
    with pytest.raises(StoreError, match=r"degree: is a number here.*; nothing of this was stored"):
        store.apply(NOW, [[Put(good), Remove(("d0",))], [Put(bad)]])
    assert data(store) == ["d0"]
    assert write(store, Put(good), Remove(("d0",))) == [True, 1]
    assert data(store) == ["d1"]


def test_another_program_that_holds_the_file_is_named_as_the_trouble(store: Store) -> None:
    store._writer.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"store\.db: database is locked; nothing"):
        write(store, Put(post("store", "type=a")))
    other.execute("ROLLBACK")
    other.close()
    assert write(store, Put(post("store", "type=a"))) == [True]


def test_a_store_that_can_not_be_read_says_so(store: Store) -> None:
    write(store, Put(post("store", "type=a", "d1")))
    store._writer.execute("DROP TABLE message")
    with pytest.raises(StoreError, match=r"can't read .*store\.db: no such table"):
        store.find(NOW, "d1")
    with pytest.raises(StoreError, match="can't read"):
        list(store.candidates.points(NOW, region("type=a"), WHOLE, {}))
