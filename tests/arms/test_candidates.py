"""What the index in memory names: never too few, also between a commit and its publication."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rendezvous_point import LAB, Point, post

from arms import box_index, candidates
from arms.fine_boxes import FineBoxes
from arms.inbox import inbox_profile
from arms.message import Action, Kind, Message, Modifiers, region_of, region_of_profile
from arms.profile import Profile
from arms.rendezvous import Effect
from arms.store import WHOLE_RING, Store
from arms.writes import Put, Remove
from squid import Space
from tests.arms.test_rendezvous_brute_force import data_profiles, small_space

INTERESTS = [
    "type=*", "type", "degree=*", "type=*, degree=*", "type=* | degree=*", "type=a*", "type=a",
    "degree=10..50", "type=b | degree>70", "type=* / room=*", "// degree", "room=*", "type=*, room",
    "meteor.inbox=*", "type=*, type=a*",
]  # fmt: skip
DATA = [
    "type=a, degree=20", "type=b", "degree=80", "type", "type=a / degree=5", "room=1", "type=abc",
    "type=b, degree=10..60", "type=a, degree", "type=a, degree=50, room=7", "room=1 / type=a",
]  # fmt: skip


@pytest.fixture
def point(tmp_path: Path) -> Iterator[Point]:
    made = Point(tmp_path / "store.db")
    yield made
    made.store.close()


def ids(found: Iterator[object]) -> list[str]:
    messages = (one[1] if isinstance(one, tuple) else one for one in found)
    return [stored.message.id for stored in messages]  # type: ignore[attr-defined]


def test_boxes_that_say_all_say_the_truth(point: Point) -> None:
    for number, text in enumerate(INTERESTS):
        point.post(post("notify_data", text, f"w{number}"))
    exact = [text for text in INTERESTS if box_index.is_exact(LAB, Profile.parse(text))]
    assert exact == ["type=*", "type", "degree=*", "type=*, degree=*", "type=* | degree=*"]
    for text in [*DATA, *(str(inbox_profile(f"desk {i}")) for i in range(20))]:
        note = msgpack.packb(["watch", None])  # what is in an inbox has to be one
        effect = point.post(post("store", text, data=note))
        assert {told.watch for told in effect.notifications} == {
            f"w{number}"
            for number, interest in enumerate(INTERESTS)
            if Profile.parse(interest).selects(Profile.parse(text))
        }


messages = st.one_of(
    st.tuples(st.just("store"), st.sampled_from(DATA), st.just(None)),
    st.tuples(
        st.just("notify_data"), st.sampled_from(INTERESTS[:-2]), st.sampled_from([None, "desk"])
    ),
    st.tuples(st.just("notify_interest"), st.sampled_from(["type=*", "degree=3"]), st.just(None)),
    st.tuples(st.just("delete_data"), st.sampled_from(INTERESTS), st.just(None)),
)
spans = st.sampled_from([WHOLE_RING, ((0, 2**62),), ((2**62, 2**63 - 1),)])


def made(number: int, action: str, profile: str, inbox: str | None) -> Message:
    message = post(action, profile, f"m{number}", credential="c" if number % 3 else "")
    if inbox is None:
        return message
    return Message(message.header, message.action, b"", Modifiers(inbox=inbox, keep=5))


@settings(max_examples=30, deadline=None)
@given(batches=st.lists(st.lists(st.tuples(messages, spans), min_size=1, max_size=8), max_size=4))
def test_many_react_as_each_does_alone(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[tuple[str, str, str | None], object]]],
) -> None:
    point = Point(tmp_path_factory.mktemp("many") / "store.db")
    number = 0
    for batch in batches:
        plans = []
        for (action, profile, inbox), where in batch:
            number += 1
            # Every fourth one is the one before, posted again.
            message = made(number - (number % 4 == 0), action, profile, inbox)
            plans.append(point.rendezvous.plan(point.now_ms, message, where))  # type: ignore[arg-type]
        written = point.store.apply(point.now_ms, [plan.writes for plan in plans])
        react = point.rendezvous.react
        alone: list[Effect] = [
            react(point.now_ms, plan, results) for plan, results in zip(plans, written, strict=True)
        ]
        assert point.rendezvous.react_many(point.now_ms, plans, written) == alone
    point.store.close()


def test_what_is_renewed_is_found_at_every_moment(point: Point) -> None:
    store, everything = point.store, region_of(LAB, post("retrieve", "type=*"))

    def found() -> tuple[list[str], list[str]]:
        return (
            ids(store.candidates.meeting(50, Kind.INTEREST, everything)),
            ids(store.candidates.points(50, everything, WHOLE_RING, {})),
        )

    def write(expires_ms: int) -> None:
        watch = post("notify_data", "type=*", "w", expires_ms=expires_ms, reply_to="r")
        data = post("store", "type=a, degree=1", "d", expires_ms=expires_ms, reply_to="r")
        store.write(0, [[Put(watch), Put(data)]])

    write(100)
    assert found() == ([], [])
    store.committed()
    assert found() == (["w"], ["d"])
    for expires_ms in (200, 300):
        write(expires_ms)
        assert found() == (["w"], ["d"])
    # What is kept ready would be over by now, but was renewed.
    assert ids(store.candidates.meeting(250, Kind.INTEREST, everything)) == ["w"]
    store.committed()
    assert found() == (["w"], ["d"])
    assert store.candidates.index.now_at(1) == 1
    store.write(0, [[Remove(("w", "d"))]])
    assert found()[1] == []
    store.committed()
    assert found() == ([], [])


def test_a_write_that_fails_changes_no_index(point: Point) -> None:
    store, everything = point.store, region_of(LAB, post("retrieve", "type=*"))
    store.apply(0, [[Put(post("notify_data", "type=*", "w", expires_ms=100))]])
    renewed = post("notify_data", "type=*", "w", expires_ms=200, reply_to="r")
    with pytest.raises(Exception, match="nothing of this was stored"):
        store.write(0, [[Put(renewed), Put(post("store", "degree=warm"))]])
    store.committed()
    assert ids(store.candidates.meeting(0, Kind.INTEREST, everything)) == ["w"]
    assert not list(store.candidates.meeting(150, Kind.INTEREST, everything))


def test_an_expired_interest_is_gone_at_its_end_though_it_is_kept_ready(point: Point) -> None:
    point.post(post("notify_data", "type=*", "w", expires_ms=2_000))
    for now_ms, matches in ((1_999, 1), (2_000, 0)):
        point.now_ms = now_ms
        assert point.post(post("store", "type=a")).matches == matches


def test_only_so_much_is_kept_ready(point: Point, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "HOT_CHARACTERS_MAX", 30)
    for number in range(9):
        point.post(post("notify_data", f"type=a{number}*", f"w{number}"))
    everything = region_of(LAB, post("retrieve", "type=*"))
    for _ in range(3):
        found = ids(point.store.candidates.meeting(1_000, Kind.INTEREST, everything))
        assert sorted(found) == [f"w{number}" for number in range(9)]
        assert 0 < point.store.candidates._hot_characters <= 30
    point.store.apply(0, [[Remove(tuple(found))]])
    assert point.store.candidates._hot_characters == 0


@settings(max_examples=20, deadline=None)
@given(
    data=st.lists(st.sampled_from(DATA), max_size=12),
    interest=st.sampled_from(INTERESTS),
    rows=st.integers(1, 5),
)
def test_a_retrieval_is_the_same_from_memory_and_from_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: list[str], interest: str, rows: int
) -> None:
    point = Point(tmp_path_factory.mktemp("both") / "store.db")
    for number, text in enumerate(data):
        point.post(post("store", text, f"d{number * 7 % 13}"))
    wanted = post("retrieve", interest)
    pages = []
    for blocks in (box_index.POINT_BLOCKS_MAX, -1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(box_index, "POINT_BLOCKS_MAX", blocks)
            pages.append(point.pages(wanted, rows_max=rows))
    assert pages[0] == pages[1]
    point.store.close()


def test_interests_in_words_that_begin_alike_are_not_all_candidates(point: Point) -> None:
    for room in range(200):
        point.post(post("notify_data", f"type=building.floor.room{room}", f"w{room}"))
        point.post(post("notify_data", f"degree={20 + room / 1e4}..{20.0001 + room / 1e4}"))
    data = region_of(LAB, post("store", "type=building.floor.room7, degree=20.01"))
    assert 2 <= len(point.store.candidates.index.meeting(Kind.INTEREST, data)) <= 5


@given(st.sampled_from(DATA) | data_profiles())
@settings(max_examples=200, deadline=None)
def test_data_are_asked_for_where_their_values_lie(text: str) -> None:
    profile = Profile.parse(text)
    for space in (LAB, small_space(1), small_space(4)):
        (box,) = region_of_profile(space, profile, Action.STORE).fine_boxes
        assert [FineBoxes(space).of(profile) for _ in range(2)] == [box] * 2


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("bits", [None, 63])
def test_a_store_that_is_opened_again_finds_the_same(
    tmp_path: Path, dimensions: int, bits: int | None
) -> None:
    axes = "".join(f'[[dimension]]\nname = "d{i}"\ncodec = "keyword"\n' for i in range(dimensions))
    width = "" if bits is None else f"bits = {bits // dimensions}\n"
    space = Space.from_toml(f'name = "many"\nversion = 1\n{width}{axes}')
    texts = ["d0=*", "d0=a*, room=1", "d0=b | d0=x*", f"d{dimensions - 1}=a", "d0=a..c"]
    store = Store(tmp_path / "store.db", space)
    puts = [Put(post("notify_data", text, f"w{i}")) for i, text in enumerate(texts)]
    puts += [Put(post("notify_interest", text, f"o{i}")) for i, text in enumerate(texts[:2])]
    puts += [Put(post("store", text, f"d{i}")) for i, text in enumerate(["d0=a", "d0=b", "d0=x"])]
    store.apply(0, [puts, [Remove(("d1",))]])
    answers = []
    for _ in range(2):
        for text in ("d0=abc", "d0=b", "d0=x*", f"d{dimensions - 1}=a", "room=1"):
            for kind in (Kind.INTEREST, Kind.ADVERTISEMENT):
                region = region_of(space, post("retrieve", text))
                answers.append(sorted(ids(store.candidates.meeting(0, kind, region))))
                answers.append(ids(store.candidates.points(0, region, WHOLE_RING, {})))
        flags = sorted(store.candidates.index.meeting(Kind.INTEREST, region))
        answers.append([str(code) for code in flags])
        store.close()
        store = Store(tmp_path / "store.db", space)
    store.close()
    half = len(answers) // 2
    assert answers[:half] == answers[half:]
    assert any(answers)
