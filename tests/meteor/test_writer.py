"""The writer in its thread: groups gather, what was begun is finished, and nothing is swallowed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import trio

from arms.errors import StoreError
from arms.message import Action, Header, Message
from arms.profile import Profile
from arms.store import Store
from arms.writes import Put, Write
from meteor.node.writer import Writer
from tests.meteor.rings import SPACE

NOW = 1_000


def put(id_: str) -> Put:
    return Put(Message(Header(Profile.parse("type=t"), id_, expires_ms=10**12), Action.STORE))


class HeldStore(Store):
    """A store whose writes wait in their thread until they may go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SPACE, sync="normal")
        self.go = threading.Event()
        self.begun = threading.Event()
        self.sizes: list[int] = []
        self.raises: Callable[[], None] = lambda: None

    def write(self, now_ms: int, groups: Sequence[Sequence[Write]]) -> list[list[int]]:
        self.sizes.append(len(groups))
        self.begun.set()
        assert self.go.wait(10)
        self.raises()
        return super().write(now_ms, groups)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HeldStore]:
    store = HeldStore(tmp_path / "profiles.db")
    yield store
    store.close()


async def begun(store: HeldStore) -> None:
    assert await trio.to_thread.run_sync(store.begun.wait, 10)


async def test_what_comes_during_a_commit_shares_the_next(store: HeldStore) -> None:
    writer = Writer(store, lambda: NOW)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        async with trio.open_nursery() as posts:
            posts.start_soon(writer.commit, [put("first")])
            await begun(store)
            for number in range(5):
                posts.start_soon(writer.commit, [put(f"m{number}")])
            await trio.testing.wait_all_tasks_blocked()
            store.go.set()
        assert store.sizes == [1, 5]
        assert store.find(NOW, "m4") is not None
        assert writer.bounds()["bytes that wait for a commit"][0] == 0
        nursery.cancel_scope.cancel()


async def test_what_came_before_the_writer_ran_is_written(store: HeldStore) -> None:
    store.go.set()
    writer = Writer(store, lambda: NOW)
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as posts:
            posts.start_soon(writer.commit, [put("early")])
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(writer.run)
        assert store.find(NOW, "early") is not None
        nursery.cancel_scope.cancel()


async def test_what_was_begun_is_finished_before_the_writer_ends(store: HeldStore) -> None:
    writer = Writer(store, lambda: NOW)
    async with trio.open_nursery() as posts:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            posts.start_soon(writer.commit, [put("begun")])
            await begun(store)
            posts.start_soon(writer.commit, [put("later")])
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
            store.go.set()
        posts.cancel_scope.cancel()
    assert store.find(NOW, "begun") is not None
    assert store.find(NOW, "later") is None
    assert store.sizes == [1]


async def test_a_disk_that_fails_is_told_and_the_writer_goes_on(store: HeldStore) -> None:
    def fail() -> None:
        store.raises = lambda: None
        raise StoreError("the disk is full")

    store.go.set()
    store.raises = fail
    writer = Writer(store, lambda: NOW)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        with pytest.raises(StoreError, match="the disk is full"):
            await writer.commit([put("lost")])
        assert await writer.commit([put("kept")]) == [1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("where", ["while it is written", "after it"])
async def test_a_bug_ends_the_writer_and_is_not_swallowed(
    store: HeldStore, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def bug() -> None:
        raise ZeroDivisionError

    store.go.set()
    if where == "after it":
        monkeypatch.setattr(store, "committed", bug)
    else:
        store.raises = bug
    writer = Writer(store, lambda: NOW)
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            nursery.start_soon(writer.commit, [put("odd")])
