"""Batches do what their messages would do one by one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arms.batch import Batch
from arms.errors import MessageError
from arms.message import Voters
from arms.rendezvous import Rendezvous
from arms.rows import add_row, is_plain_row
from arms.sites import Sites
from arms.store import Store
from arms.writes import Put, PutBatch, Remove
from tests.arms.rendezvous_point import LAB, Point, post, stored_after

NOW = 1_000
LATER = 60_000


def batch_of(*posts: tuple[str, str], sites: Sites | None = None) -> Batch:
    sites = sites or Sites(LAB)
    batch = Batch("me", "here:1", "", voters=Voters(0, (1, 2)))
    for id_, text in posts:
        site = sites.of(text)
        assert site is not None
        batch.ids.append(id_)
        batch.sites.append(site)
        batch.data.append(id_.encode())
        batch.expires_ms.append(LATER)
    return batch


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.db", LAB)


POSTS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["type=x", "type=y, degree=7", "unit=C"])),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)  # it opens files
@given(st.lists(POSTS, min_size=1, max_size=3), st.sets(st.sampled_from("abcdef"), max_size=2))
def test_a_batch_is_stored_as_its_messages_would_be(
    groups: list[list[tuple[str, str]]], removed: set[str]
) -> None:
    with TemporaryDirectory() as folder:
        compare(Path(folder), groups, removed)


def compare(folder: Path, groups: list[list[tuple[str, str]]], removed: set[str]) -> None:
    batches, singles = Store(folder / "a", LAB, "normal"), Store(folder / "b", LAB, "normal")
    for posts in groups:
        write = PutBatch(batch := batch_of(*posts))
        ((new,),) = batches.apply(NOW, [[write]])
        (results,) = singles.apply(NOW, [[Put(batch.message(i)) for i in range(len(batch))]])
        assert new == len(batch) - len(write.repeated)
        known = {row for row, result in enumerate(results) if not result}
        assert write.repeated == known
        for one in (batches, singles):
            one.apply(NOW, [[Remove(tuple(removed))]])
        left = [
            sorted((s.message.id, s.message.profile.text, s.identifier) for s in stored)
            for stored in (stored_after(batches, NOW, 0, 99), stored_after(singles, NOW, 0, 99))
        ]
        assert left[0] == left[1]
    batches.close()
    singles.close()


def test_what_is_there_already_is_said_to_be_repeated(store: Store) -> None:
    store.apply(NOW, [[PutBatch(batch_of(("a1", "type=x"), ("a2", "type=y")))]])
    again = PutBatch(batch_of(("a2", "type=y"), ("a3", "type=z")))
    assert store.apply(NOW, [[again]]) == [[1]]
    assert again.repeated == {0}


def test_what_was_deleted_stays_so_when_its_batch_comes_again(store: Store) -> None:
    store.apply(NOW, [[PutBatch(batch_of(("a1", "type=x"), ("a2", "type=y")))]])
    store.apply(NOW, [[Remove(("a1",))]])
    again = PutBatch(batch_of(("a1", "type=x")))
    assert store.apply(NOW, [[again]]) == [[0]]
    assert store.find(NOW, "a1") is None


def test_the_data_of_a_batch_are_found_and_deleted_like_any(point: Point) -> None:
    point.store.apply(point.now_ms, [[PutBatch(batch_of(("a1", "type=x"), ("a2", "type=y")))]])
    assert sorted(point.retrieve("type=*")) == ["a1", "a2"]
    point.store.apply(point.now_ms, [[Remove(("a2",))]])
    assert sorted(point.retrieve("type=*")) == ["a1"]


@pytest.fixture
def point(tmp_path: Path) -> Point:
    return Point(tmp_path / "store.db")


def test_watchers_of_each_site_are_those_that_select_it(point: Point) -> None:
    point.post(post("notify_data", "type=x*", sender="one"))
    point.post(post("notify_data", "type=xy, degree>5", sender="two"))
    sites = batch_of(("a", "type=xy, degree=9"), ("b", "type=xz"), ("c", "type=n")).sites
    found = Rendezvous(LAB, point.store).watchers(point.now_ms, sites)
    who = {
        site.text: sorted(client for ways in ours.ways.values() for client, _ in ways)
        for site, ours in zip(sites, found, strict=True)
    }
    assert who == {"type=xy, degree=9": ["one", "two"], "type=xz": ["one"], "type=n": []}


def test_rows_of_plain_data_become_the_batch_that_they_were(store: Store) -> None:
    batch = batch_of(("a1", "type=x"), ("a2", "type=y, degree=7"))
    store.apply(NOW, [[PutBatch(batch)]])
    sites, read = Sites(LAB), None
    for row in store.rows_after(NOW, 0, 9):
        assert is_plain_row(row)
        site = sites.of(row[3])
        assert site is not None
        read = add_row(row, site, read)
    assert read is not None
    assert (read.to_wire(), read.voters) == (batch.to_wire(), batch.voters)


def test_the_wire_form_reads_back() -> None:
    batch = batch_of(("a1", "type=x"), ("a2", "type=y, degree=7"))
    read = Batch.from_wire(Sites(LAB), batch.to_wire())
    assert read.to_wire() == batch.to_wire()
    assert read.message(1) == batch_with_no_voters(batch).message(1)


def batch_with_no_voters(batch: Batch) -> Batch:
    copy = batch.part(range(len(batch)))
    copy.voters = Voters()
    return copy


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (3, ["a1"], "columns of different lengths"),
        (3, ["a1", 2], "texts as ids"),
        (3, ["a1", ""], "an id has 1 to"),
        (4, ["type=x", "type=1..2, degree=1..3"], "one place each"),
        (5, [b"", "text"], "bytes as data"),
        (6, [1], "ends of as many"),
        (6, [1, -1], "ends of as many"),
        (0, "x" * 300, "at most 256"),
        (0, 5, "no batch"),
    ],
)
def test_what_is_no_batch_is_refused_in_words(column: int, value: object, words: str) -> None:
    wire = batch_of(("a1", "type=x"), ("a2", "type=y")).to_wire()
    wire[column] = value
    with pytest.raises(MessageError, match=words):
        Batch.from_wire(Sites(LAB), wire)
