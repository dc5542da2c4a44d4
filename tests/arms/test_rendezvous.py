"""The rendezvous: Table 1 and Figure 2 of the paper, modifiers, TTL and pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rendezvous_point import Point, post, told

from arms import rendezvous as rendezvous_module
from arms.errors import StoreError
from arms.message import Kind
from arms.writes import Put
from squid import Space
from squid.errors import CodecError


@pytest.fixture
def point(tmp_path: Path) -> Iterator[Point]:
    point = Point(tmp_path / "store.db")
    yield point
    point.store.close()


# Table 1


def test_store_keeps_the_data_and_notifies_the_interests_that_match(point: Point) -> None:
    point.post(post("notify_data", "type=temp*, degree>20", "hot", sender="c1"))
    point.post(post("notify_data", "type=temp*, degree>90", "hotter", sender="c2"))
    message = post("store", "type=temperature, degree=25", "d1", data=b"25", sender="c3")
    effect = point.post(message)
    assert (effect.matches, effect.copies) == (1, 1)
    (note,) = effect.notifications
    assert (note.watch, note.to, note.reply_to) == ("hot", "c1", "c1's peer")
    assert note.message == message
    assert point.retrieve("type=temperature") == ["d1"]


def test_retrieve_gives_the_data_of_every_match(point: Point) -> None:
    point.post(post("store", "type=temperature, degree=25", "d1", data=b"25"))
    point.post(post("store", "type=temperature, degree=95", "d2", data=b"95"))
    point.post(post("store", "type=humidity, degree=95", "d3", data=b"wet"))
    question = post("retrieve", "type=temp*")
    found, _, _ = point.pages(question)
    assert {match.message.data for match in found} == {b"25", b"95"}
    effect = point.post(question)
    assert (effect.notifications, effect.copies) == ((), 0)


def test_retrieve_leaves_no_trace(point: Point) -> None:
    point.post(post("retrieve", "type=temp*"))
    assert set(point.store.counts(point.now_ms).values()) == {0}
    assert point.post(post("store", "type=temperature")).matches == 0


def test_notify_data_counts_what_is_there_and_hears_of_what_comes(point: Point) -> None:
    point.post(post("store", "type=temperature, degree=25"))
    point.post(post("store", "type=temperature, degree=20..30"))
    point.post(post("store", "type=temperature, degree=5"))
    effect = point.post(post("notify_data", "type=temp*, degree>10", "watch"))
    assert (effect.matches, effect.notifications) == (2, ())
    later = point.post(post("store", "type=temperature, degree=30", "d4"))
    assert told(later) == [("watch", "d4")]


def test_notify_data_tells_advertisers_that_there_is_interest(point: Point) -> None:
    point.post(post("notify_interest", "type=temperature, degree=0..50", "offer", sender="c1"))
    effect = point.post(post("notify_data", "type=temp*, degree>20", "watch"))
    assert told(effect) == [("offer", "watch")]
    assert effect.matches == 0  # data, of which there are none
    assert point.post(post("notify_data", "type=temp*, degree>60")).notifications == ()


def test_notify_interest_tells_its_sender_of_every_interest_there_is(point: Point) -> None:
    point.post(post("notify_data", "type=temp*", "w1", sender="c1"))
    point.post(post("notify_data", "degree>40", "w2", sender="c2"))
    point.post(post("notify_data", "degree>60", "w3", sender="c3"))
    effect = point.post(post("notify_interest", "type=temperature, degree=0..50", "offer"))
    assert told(effect) == [("offer", "w1"), ("offer", "w2")]
    assert {note.to for note in effect.notifications} == {"somebody"}
    assert effect.matches == 2


def test_data_do_not_move_advertisers(point: Point) -> None:
    point.post(post("notify_interest", "type=temperature", "offer"))
    assert point.post(post("store", "type=temperature")).notifications == ()


def test_delete_data_removes_matching_data_and_nothing_else(point: Point) -> None:
    point.post(post("store", "type=temperature, degree=25", "d1"))
    point.post(post("store", "type=temperature, degree=25..30", "d2"))
    point.post(post("store", "type=temperature, degree=5", "d3"))
    point.post(post("notify_data", "type=temperature, degree=25", "w1"))
    effect = point.post(post("delete_data", "type=temp*, degree>10"))
    assert (effect.matches, effect.notifications) == (2, ())
    assert point.retrieve("type=*") == ["d3"]
    assert point.store.counts(point.now_ms)[Kind.INTEREST] == 1
    assert point.post(post("delete_data", "type=temp*, degree>10")).matches == 0


def test_delete_interest_removes_interests_that_ask_for_no_more(point: Point) -> None:
    point.post(post("store", "type=temperature, degree=25", "d1"))
    point.post(post("notify_data", "type=temp*, degree=20..30", "narrow"))
    point.post(post("notify_data", "type=temp*", "wide"))
    assert point.post(post("delete_interest", "type=t*, degree=*")).matches == 1
    assert point.retrieve("type=*") == ["d1"]
    effect = point.post(post("store", "type=temperature, degree=25", "d2"))
    assert told(effect) == [("wide", "d2")]


def test_the_incoming_action_comes_first_then_those_of_the_matched_profiles(point: Point) -> None:
    point.post(post("notify_data", "type=temp*", "watch"))
    plan = point.rendezvous.plan(point.now_ms, message := post("store", "type=temp"), point.spans)
    assert plan.writes == (Put(message),)
    with pytest.raises(IndexError):  # nothing is known about the write, so nobody can be told
        point.rendezvous.react(point.now_ms, plan, [])
    (written,) = point.store.apply(point.now_ms, [plan.writes])
    assert point.retrieve("type=temp") == [message.id]
    assert len(point.rendezvous.react(point.now_ms, plan, written).notifications) == 1


def test_a_copy_is_kept_where_another_peer_reacts(point: Point) -> None:
    """A backup has the messages of arcs that it does not speak for, and says nothing about them."""
    for action, profile in (
        ("notify_data", "type=a"),
        ("notify_interest", "type=a, degree=0..50"),
        ("store", "type=a, degree=5..6"),
    ):
        point.post(post(action, profile))
    point.spans = ()
    for action in ("store", "notify_data", "notify_interest"):
        for profile in ("type=a, degree=5", "type=a, degree=5..6"):
            effect = point.post(post(action, profile))
            assert (effect.notifications, effect.matches, effect.copies) == ((), 0, 1)
    assert point.retrieve("type=a") == []
    assert point.post(post("delete_data", "type=a")).matches == 0
    assert point.store.counts(0)[Kind.DATA] == 0  # a delete removes copies too


def test_figure_2(tmp_path: Path) -> None:
    space = Space.from_toml(
        'name = "two"\nversion = 1\n'
        + "".join(f'[[dimension]]\nname = "p{i}"\ncodec = "keyword"\n' for i in (1, 2))
    )
    point = Point(tmp_path / "store.db", space)
    # (a) C1 asks for notice of interest in its data, then C2 asks for notice of data.
    effect = point.post(post("notify_interest", "p1=a, p2=b", "offer", sender="C1"))
    assert effect.notifications == ()
    effect = point.post(post("notify_data", "p1=a, p2=*", "watch", sender="C2"))
    assert [(note.to, note.message.id) for note in effect.notifications] == [("C1", "watch")]
    # (b) C1 posts data; C2 is told.
    effect = point.post(post("store", "p1=a, p2=b", "data", sender="C1", data=b"..."))
    assert [(note.to, note.message.id) for note in effect.notifications] == [("C2", "data")]
    # (c) C2 asks for the data.
    found, _, _ = point.pages(post("retrieve", "p1=a, p2=*", sender="C2"))
    assert [match.message.data for match in found] == [b"..."]
    # (d) C1 deletes the data, C2 its interest.
    assert point.post(post("delete_data", "p1=a, p2=b", sender="C1")).matches == 1
    assert point.post(post("delete_interest", "p1=a, p2=*", sender="C2")).matches == 1
    assert point.retrieve("p1=a, p2=*") == []
    assert point.post(post("store", "p1=a, p2=b", sender="C1")).notifications == ()


# Modifiers, TTL, credentials


def test_a_limit_is_kept(point: Point) -> None:
    for i in range(5):
        point.post(post("store", f"type=a, degree={i}"))
    for limit in (1, 3):
        found, _, _ = point.pages(post("retrieve", "type=a", limit=limit))
        assert len(found) == limit
    _, aggregate, _ = point.pages(post("retrieve", "type=a", limit=3, aggregate="count"))
    assert aggregate.result("count") == 3


def test_with_a_ttl_of_0_a_message_is_matched_but_not_kept(point: Point) -> None:
    point.post(post("notify_data", "type=a", "watch"))
    point.post(post("notify_interest", "type=a", "offer"))
    effect = point.post(post("store", "type=a", "d1", expires_ms=point.now_ms))
    assert (told(effect), effect.copies) == ([("watch", "d1")], 0)
    effect = point.post(post("notify_data", "type=*", "w2", expires_ms=point.now_ms))
    assert (told(effect), effect.copies) == ([("offer", "w2")], 0)
    assert point.store.counts(0) == {Kind.DATA: 0, Kind.INTEREST: 1, Kind.ADVERTISEMENT: 1}


def test_data_whose_ttl_ends_before_the_commit_still_reach_those_who_watch(point: Point) -> None:
    point.post(post("notify_data", "type=a", "watch"))
    message = post("store", "type=a", "d1", expires_ms=point.now_ms + 5)
    plan = point.rendezvous.plan(point.now_ms, message, point.spans)
    point.now_ms += 5
    (written,) = point.store.apply(point.now_ms, [plan.writes])
    assert told(point.rendezvous.react(point.now_ms, plan, written)) == [("watch", "d1")]
    assert point.store.counts(0)[Kind.DATA] == 0


def test_the_same_id_again_moves_nobody_twice(point: Point) -> None:
    point.post(post("notify_data", "type=a", "watch"))
    message = post("store", "type=a", "d1")
    assert told(point.post(message)) == [("watch", "d1")]
    effect = point.post(message)
    assert (effect.notifications, effect.matches, effect.copies) == ((), 0, 1)
    assert point.retrieve("type=a") == ["d1"]


def test_a_renewed_interest_lives_longer_answers_elsewhere_and_tells_nobody(point: Point) -> None:
    point.post(post("notify_interest", "type=a", "offer"))
    first = post("notify_data", "type=a", "watch", expires_ms=2_000, reply_to="old")
    assert told(point.post(first)) == [("offer", "watch")]
    again = post("notify_data", "type=a", "watch", expires_ms=3_000, reply_to="new")
    assert point.post(again).notifications == ()
    assert point.post(first).notifications == ()  # a copy that was late takes nothing back
    point.now_ms = 2_999
    (note,) = point.post(post("store", "type=a")).notifications
    assert note.reply_to == "new"
    point.now_ms = 3_000
    assert point.post(post("store", "type=a")).notifications == ()


def test_an_interest_that_had_expired_is_new_when_it_comes_again(point: Point) -> None:
    point.post(post("notify_interest", "type=a", "offer"))
    point.post(post("notify_data", "type=a", "watch", expires_ms=2_000))
    point.now_ms = 2_000  # expired, not swept
    again = post("notify_data", "type=a", "watch", expires_ms=3_000)
    assert told(point.post(again)) == [("offer", "watch")]
    assert told(point.post(post("store", "type=a", "d1"))) == [("watch", "d1")]


def test_what_was_posted_with_a_credential_is_deleted_only_with_the_same(point: Point) -> None:
    point.post(post("store", "type=a", "open"))
    point.post(post("store", "type=a", "mine", credential="secret"))
    assert point.post(post("delete_data", "type=a", credential="guess")).matches == 1
    assert point.retrieve("type=a") == ["mine"]
    assert point.post(post("delete_data", "type=a", only="mine")).matches == 0
    assert point.post(post("delete_data", "type=a", credential="secret")).matches == 1
    assert point.retrieve("type=a") == []


def test_a_credential_is_not_shown_to_those_who_are_notified(point: Point) -> None:
    point.post(post("notify_data", "type=a"))
    effect = point.post(post("store", "type=a", data=b"x", credential="secret"))
    (note,) = effect.notifications
    assert (note.message.header.credential, note.message.data) == ("", b"x")


def test_a_delete_can_be_for_one_message_only(point: Point) -> None:
    for id_ in ("d1", "d2"):
        point.post(post("store", "type=a", id_))
    point.post(post("notify_data", "type=a", "watch"))
    point.post(post("notify_interest", "type=a", "offer"))
    assert point.post(post("delete_interest", "type=a", only="d1")).matches == 0
    assert point.post(post("delete_data", "type=a", only="watch")).matches == 0
    assert point.post(post("delete_data", "type=a", only="d1")).matches == 1
    assert point.post(post("delete_interest", "type=a", only="watch")).matches == 1
    assert point.post(post("delete_interest", "type=a", only="offer")).matches == 1
    assert point.retrieve("type=a") == ["d2"]
    assert point.store.counts(0) == {Kind.DATA: 1, Kind.INTEREST: 0, Kind.ADVERTISEMENT: 0}


def test_a_large_delete_goes_on_over_several_commits(
    point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous_module, "DELETES_PER_COMMIT", 10)
    kept = [post("store", f"type=a, degree={i}", credential="secret") for i in range(15)]
    gone = [post("store", f"type=a, degree={i}") for i in range(25)]
    gone += [post("store", f"type=a, degree={i}..{i + 3}") for i in range(10)]
    for message in kept + gone:
        point.post(message)
    delete = post("delete_data", "type=a")
    plan = point.rendezvous.plan(point.now_ms, delete, point.spans)
    assert plan.rest is not None
    assert 0 < plan.matches <= 10
    assert point.post(delete).matches == 35
    assert sorted(point.retrieve("type=a")) == sorted(message.id for message in kept)


def test_an_interest_finds_a_match_however_many_do_not(point: Point) -> None:
    others = [post("store", f"type=a, degree={i % 100}, room=1") for i in range(1_500)]
    last = post("store", "type=b, degree=100, room=2")
    point.store.apply(point.now_ms, [[Put(message)] for message in [*others, last]])
    assert point.post(post("notify_data", "room=2")).matches == 1


def test_what_does_not_fit_the_space_fails_alone(point: Point) -> None:
    with pytest.raises(CodecError, match="degree: is a number here"):
        point.rendezvous.plan(point.now_ms, post("store", "degree=warm"), point.spans)
    with pytest.raises(StoreError, match="does not fit the space 'lab': degree: is a number"):
        point.store.apply(0, [[Put(post("store", "type=a"))], [Put(post("store", "degree=warm"))]])
    assert point.retrieve("type=a") == []


def test_a_contradiction_finds_nothing_and_is_not_kept(point: Point) -> None:
    point.post(post("store", "type=a, degree=6"))
    effect = point.post(post("notify_data", "degree<5, degree>7"))
    assert (effect.matches, effect.notifications) == (0, ())
    assert point.retrieve("degree<5, degree>7") == []
    assert point.store.counts(0)[Kind.INTEREST] == 0


# Pages


def test_many_items_at_one_identifier_come_page_by_page(point: Point) -> None:
    messages = [post("store", "type=a, degree=5", data=bytes(100)) for _ in range(20)]
    messages += [post("store", "type=a, degree=5..6", data=bytes(100)) for _ in range(10)]
    for message in sorted(messages, key=lambda message: message.id[::-1]):
        point.post(message)
    for bytes_max, rows_max, least in ((10**6, 1, 30), (10**6, 7, 5), (1, 99, 30), (700, 3, 15)):
        found, _, pages = point.pages(post("retrieve", "type=a"), bytes_max, rows_max)
        order = [(match.identifier, match.message.id) for match in found]
        assert order == sorted(order)
        assert sorted(id_ for _, id_ in order) == [message.id for message in messages]
        assert pages >= least


def test_items_larger_than_a_page_still_come(point: Point) -> None:
    for i in range(4):
        point.post(post("store", f"type=a, degree={i}", data=bytes(10_000)))
    found, _, pages = point.pages(post("retrieve", "type=a"), bytes_max=100)
    assert (len(found), pages) == (4, 5)


def test_what_does_not_match_counts_as_looked_at(point: Point) -> None:
    for i in range(20):
        point.post(post("store", f"type=a, degree={i}, room={i % 2}"))
    found, _, pages = point.pages(post("retrieve", "type=a, room=1"), rows_max=4)
    assert (len(found), pages) == (10, 6)


def test_places_to_resume_at_are_kept_though_the_spans_have_grown_together(point: Point) -> None:
    """As when one peer takes over from two that had both begun."""
    messages = [post("store", f"type=a, degree={i}") for i in range(4) for _ in range(3)]
    for message in messages:
        point.post(message)
    question = post("retrieve", "type=a")
    everything, _, _ = point.pages(question)
    seen = {everything[i].identifier: everything[i].message.id for i in (0, 4, 6)}
    page = point.rendezvous.page(0, question, point.spans, seen, 10**6, 10**6)
    assert page.found == [
        match for match in everything if match.message.id > seen.get(match.identifier, "")
    ]


def test_a_page_sees_what_is_committed_after_the_page_before(point: Point) -> None:
    for i in range(6):
        point.post(post("store", "type=a, degree=5", f"d{i}"))
    question = post("retrieve", "type=a")
    page = point.rendezvous.page(0, question, point.spans, {}, 10**6, 3)
    assert page.resume is not None
    point.post(post("store", "type=a, degree=5", "d3b"))
    point.post(post("delete_data", "type=a", only="d4"))
    at, id_ = page.resume
    rest = point.rendezvous.page(0, question, ((at, point.spans[-1][1]),), {at: id_}, 10**6, 10)
    assert [match.message.id for match in page.found] == ["d0", "d1", "d2"]
    assert [match.message.id for match in rest.found] == ["d3", "d3b", "d5"]
