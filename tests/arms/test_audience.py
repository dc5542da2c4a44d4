"""Who watches for data is kept, and never longer than it is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from arms import audience
from arms.rendezvous import Rendezvous
from arms.sites import Site, Sites
from arms.writes import Put, PutBatch
from tests.arms.rendezvous_point import LAB, Point, post
from tests.arms.test_batch import batch_of


class Watched:
    """Some sites, and who watches for them."""

    def __init__(self, path: Path) -> None:
        self.point = Point(path)
        self._rendezvous = Rendezvous(LAB, self.point.store)
        self._sites = Sites(LAB)
        self.looked = 0
        selecting = self.point.store.candidates.selecting

        def counted(now_ms: int, data: list[Site]) -> object:
            self.looked += len(data)
            return selecting(now_ms, data)

        self.point.store.candidates.selecting = counted  # type: ignore[assignment]

    def by(self, *profiles: str) -> list[list[str]]:
        """Return the watchers of each profile."""
        sites = [site for text in profiles if (site := self._sites.of(text)) is not None]
        found = self._rendezvous.watchers(self.point.now_ms, sites)
        return [sorted(c for ways in one.ways.values() for c, _ in ways) for one in found]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "store.db")


def test_watchers_are_looked_for_once(watched: Watched) -> None:
    watched.point.post(post("notify_data", "type=x*", sender="one"))
    for _ in range(3):
        assert watched.by("type=xy", "type=n", "type=xy") == [["one"], [], ["one"]]
    assert watched.looked == 2


def test_a_new_watch_is_seen_at_once(watched: Watched) -> None:
    assert watched.by("type=xy") == [[]]
    watched.point.post(post("notify_data", "type=x*", sender="one"))
    assert watched.by("type=xy") == [["one"]]


def test_a_watch_that_is_withdrawn_is_not_told_any_more(watched: Watched) -> None:
    watched.point.post(post("notify_data", "type=x*", "watch", sender="one"))
    assert watched.by("type=xy") == [["one"]]
    watched.point.post(post("delete_interest", "type=x*", only="watch"))
    assert watched.by("type=xy") == [[]]


def test_a_watch_that_was_not_renewed_is_not_told_any_more(watched: Watched) -> None:
    now_ms = watched.point.now_ms
    watched.point.post(post("notify_data", "type=x*", sender="one", expires_ms=now_ms + 10))
    watched.point.post(post("notify_data", "type=x*", sender="two", expires_ms=now_ms + 99))
    assert watched.by("type=xy") == [["one", "two"]]
    watched.point.now_ms = now_ms + 10
    assert watched.by("type=xy") == [["two"]]


def test_a_watch_that_moved_to_another_peer_is_told_there(watched: Watched) -> None:
    for address in ("here:1", "there:2"):
        watch = post("notify_data", "type=x*", "watch", sender="one", reply_to=address)
        watched.point.post(watch)
        assert watched.by("type=xy") == [["one"]]
    sites = batch_of(("a", "type=xy")).sites
    (found,) = Rendezvous(LAB, watched.point.store).watchers(watched.point.now_ms, sites)
    assert list(found.ways) == ["there:2"]


def test_data_do_not_change_who_watches(watched: Watched) -> None:
    watched.by("type=xy")
    writes = [PutBatch(batch_of(("a", "type=xy"))), Put(post("store", "type=xz"))]
    watched.point.store.apply(watched.point.now_ms, [writes])
    watched.by("type=xy")
    assert watched.looked == 1


def test_what_is_kept_is_bounded(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience, "SITES_KEPT", 4)
    watched.point.post(post("notify_data", "type=x*", sender="one"))
    for number in range(20):
        assert watched.by("type=xy", f"type=x, degree={number}", "type=n") == [["one"], ["one"], []]
        assert len(watched._rendezvous._watching_now._kept) <= 4
