"""What lies where, in order: the same as sorting all there is, at every moment, in any pages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from rendezvous_point import LAB, post

from arms import places, schema
from arms.batch import Batch
from arms.digests import Digest, Names
from arms.message import Kind, Voters, region_of
from arms.sites import Sites
from arms.store import WHOLE_RING, Store
from arms.writes import Put, PutBatch, Remove, Sweep, Write

TOP = WHOLE_RING[0][1]
PROFILES = ["type=a, degree=20", "type=b, degree=80", "type=b, degree=81", "degree=3", "type=q"]
INTERESTS = ["type=*", "type=a, degree=20", "type=b", "degree=0..80", "degree=*"]
NOTE = "meteor.inbox=desk"


def at(profile: str) -> int:
    lowest = region_of(LAB, post("store", profile)).lowest
    assert lowest is not None
    return lowest


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Sizes that have a few messages be a crowd."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "ROWS_AT_ONCE", 3)
        patch.setattr(places, "CROWD_MIN", 4)
        patch.setattr(places, "CROWD_IDS_KEPT", 12)
        yield


class Walks(RuleBasedStateMachine):
    """Data come, are renewed, deleted and swept; readers take over what was written now and then.

    Between a commit and that moment they find what was there before, as it is by now.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.store = Store(Path(self.folder.name) / "store.db", LAB, sync="normal")
        self.sites = Sites(LAB)
        self.now_ms = 1_000
        self.there: dict[str, tuple[str, int]] = {}
        self.unpublished: set[str] = set()
        self.next = 0

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def write(self, *writes: Write) -> None:
        self.store.write(self.now_ms, [writes])

    def new(self, profile: str, ttl: int) -> str:
        # Ids are in another order than what has them comes in.
        id_ = f"{self.next * 7 % 97:02}-{self.next}"
        self.next += 1
        self.there[id_] = profile, self.now_ms + ttl
        self.unpublished.add(id_)
        return id_

    @rule(profile=st.sampled_from([*PROFILES, NOTE]), ttl=st.sampled_from([5, 100]))
    def put(self, profile: str, ttl: int) -> None:
        id_ = self.new(profile, ttl)
        self.write(Put(post("store", profile, id_, expires_ms=self.there[id_][1])))

    @rule(
        profiles=st.lists(st.sampled_from(PROFILES), min_size=1, max_size=25),
        ttl=st.sampled_from([5, 100]),
    )
    def put_batch(self, profiles: list[str], ttl: int) -> None:
        batch = Batch("sender", "peer", "", voters=Voters(0, (1, 2)))
        for profile in profiles:
            site = self.sites.of(profile)
            assert site is not None
            batch.ids.append(self.new(profile, ttl))
            batch.sites.append(site)
            batch.data.append(b"data")
            batch.expires_ms.append(self.now_ms + ttl)
        self.write(PutBatch(batch))

    @rule(profile=st.sampled_from(PROFILES), times=st.integers(3, 9))
    def crowd(self, profile: str, times: int) -> None:
        self.put_batch([profile] * times, 100)

    @rule(data=st.data(), ttl=st.sampled_from([6, 120]))
    def renew(self, data: st.DataObject, ttl: int) -> None:
        alive = sorted(id_ for id_, (_, end) in self.there.items() if end > self.now_ms)
        if alive:
            id_ = data.draw(st.sampled_from(alive))
            profile, end = self.there[id_]
            self.there[id_] = profile, max(end, self.now_ms + ttl)
            self.write(Put(post("store", profile, id_, expires_ms=self.now_ms + ttl)))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.there:
            chosen = data.draw(st.lists(st.sampled_from(sorted(self.there)), max_size=6))
            self.write(Remove(tuple(chosen)))
            self.there = {id_: one for id_, one in self.there.items() if id_ not in chosen}

    @rule(limit=st.integers(1, 9))
    def sweep(self, limit: int) -> None:
        self.write(Sweep(limit))

    @rule(passing=st.integers(1, 20))
    def pass_time(self, passing: int) -> None:
        self.now_ms += passing

    @rule()
    def publish(self) -> None:
        self.store.committed()
        self.unpublished.clear()
        self.store.tidy()

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = Store(Path(self.folder.name) / "store.db", LAB, sync="normal")
        self.unpublished.clear()

    def wanted(self, low: int = 0, high: int = TOP) -> list[tuple[int, str]]:
        """Return the places that readers find."""
        return sorted(
            (at(profile), id_)
            for id_, (profile, end) in self.there.items()
            if id_ not in self.unpublished and end > self.now_ms and low <= at(profile) <= high
        )

    @invariant()
    def all_is_found_in_order(self) -> None:
        for limit in (1, 4, 99):
            found: list[tuple[int, str]] = []
            after = (0, "")
            while page := [
                *self.store.places.lying(self.now_ms, Kind.DATA, True, after, TOP, limit)
            ]:
                found += [(stored.identifier, stored.message.id) for stored in page]
                after = found[-1]
            assert found == self.wanted()

    @invariant()
    def retrievals_find_what_they_ask_for(self) -> None:
        for interest in (*INTERESTS, NOTE):
            region = region_of(LAB, post("retrieve", interest))
            wanted = [place for place in self.wanted() if place[0] in region]
            for limit in (2, 99):
                found: list[tuple[int, str]] = []
                low, resume = 0, dict[int, str]()
                while True:
                    walk = self.store.candidates.points(self.now_ms, region, ((low, TOP),), resume)
                    page = [(place, stored.message.id) for place, stored in islice(walk, limit)]
                    if not page:
                        break
                    found += page
                    low, resume = page[-1][0], dict(page[-1:])
                assert found == wanted

    @rule(
        ends=st.tuples(st.sampled_from(PROFILES), st.sampled_from(PROFILES)), rows=st.integers(1, 9)
    )
    def compare(self, ends: tuple[str, str], rows: int) -> None:
        low, high = sorted(map(at, ends))
        wanted = self.wanted(low, high)
        names, digests = Names(), [Digest()]
        for read in (
            lambda after: self.store.digests.names(self.now_ms, (low, high), names, after, rows),
            lambda after: self.store.digests.points(self.now_ms, (low, high), digests, after, rows),
        ):
            after: places.Place | None = (low, "")
            while after is not None:
                after = read(after)
        assert names.messages == {id_: (self.there[id_][1], 0) for _, id_ in wanted}
        expected = Digest()
        for _, id_ in wanted:
            expected.add(schema.digest(id_, self.there[id_][1], 0))
        for stone in names.stones:
            expected.add(schema.digest(f"tombstone {stone}", 0, 0))
        assert digests == [expected]


Walks.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
test_whatever_happened_all_is_found_in_order = Walks.TestCase


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "store.db", LAB, sync="normal")
    yield made
    made.close()


def crowded(store: Store, profile: str = "type=a, degree=20") -> list[str]:
    region = region_of(LAB, post("retrieve", profile))
    return [s.message.id for _, s in store.candidates.points(0, region, WHOLE_RING, {})]


def put(store: Store, *ids: str, expires_ms: int = 100, profile: str = "type=a, degree=20") -> None:
    posts = (post("store", profile, id_, expires_ms=expires_ms) for id_ in ids)
    store.apply(0, [[*map(Put, posts)]])


def test_a_crowd_that_was_read_follows_what_changes(store: Store) -> None:
    put(store, *"jgecahi")
    assert crowded(store) == [*"aceghij"]
    put(store, "c", expires_ms=200)  # has a new number now
    assert crowded(store) == [*"aceghij"]
    put(store, "d", "z", "b")
    store.apply(0, [[Remove(("a", "z"))]])
    assert crowded(store) == [*"bcdeghij"]
    store.apply(0, [[Remove(tuple("bcdj"))]])
    assert crowded(store) == [*"eghi"]
    (crowd,) = store.places._crowds.values()
    assert len(crowd) == 4  # what is gone was forgotten, once it was more than the rest


def test_the_ids_of_few_crowds_are_kept(store: Store) -> None:
    for degree in range(5):
        profile = f"type=a, degree={degree * 20}"
        ids = [f"{degree}-{i}" for i in range(5)]
        put(store, *ids, profile=profile)
        assert crowded(store, profile) == ids
        assert sum(map(len, store.places._crowds.values())) <= places.CROWD_IDS_KEPT
    profile = "type=b, degree=1"
    put(store, *map(str, range(20)), profile=profile)
    assert crowded(store, profile) == sorted(map(str, range(20)))
    assert list(map(len, store.places._crowds.values())) == [20]
