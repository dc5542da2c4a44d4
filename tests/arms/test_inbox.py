"""Inboxes: where they are, and what may be put there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgpack
import pytest
from rendezvous_point import LAB, Point, post

from arms.errors import MessageError
from arms.inbox import inbox_of, inbox_profile
from arms.message import Message, Modifiers, modifiers, region_of
from arms.notes import Note, watch_id
from arms.profile import Profile
from squid import Space

CLOSED = Space.from_toml(LAB.to_toml().replace("closed = false", "closed = true"))


def test_an_inbox_is_one_place_for_notes_and_for_who_reads_them() -> None:
    places = {
        region_of(LAB, post(action, f"meteor.inbox={name}")).lowest
        for name in ("desk", "door", "roof")
        for action in ("store", "retrieve", "notify_data", "delete_data")
    }
    assert len(places) == 3
    assert region_of(LAB, post("store", "meteor.inbox=desk")).is_point


@pytest.mark.parametrize("profile", ["meteor.inbox=d*", "meteor.inbox=desk | type=a"])
def test_any_other_interest_in_inboxes_looks_everywhere(profile: str) -> None:
    assert inbox_of(Profile.parse(profile)) is None
    place = region_of(LAB, post("store", "meteor.inbox=desk")).lowest
    assert place is not None
    assert place in region_of(LAB, post("retrieve", profile))


@pytest.mark.parametrize("name", ["desk", "12", "two words", 'a "b" = c', "ä"])
def test_any_text_names_an_inbox(name: str) -> None:
    assert inbox_of(inbox_profile(name)) == name
    post("store", inbox_profile(name).text).check(CLOSED)


def test_inboxes_stand_alone_and_have_names() -> None:
    with pytest.raises(MessageError, match="reserved"):
        post("store", "meteor.inbox=desk, type=a").check(LAB)
    with pytest.raises(MessageError, match="1 to 128"):
        inbox_profile("x" * 129)
    with pytest.raises(MessageError, match="more than 0"):
        modifiers(inbox="desk", keep=0)


def test_modifiers_with_an_inbox_come_over_the_wire_and_others_are_as_before() -> None:
    assert Modifiers().to_wire() == [None] * 4
    message = replace(post("notify_data", "type=a"), modifiers=modifiers(inbox="desk", keep=60))
    assert Message.from_wire(msgpack.unpackb(msgpack.packb(message.to_wire()))) == message


def test_a_match_of_a_reliable_watch_is_due_whenever_it_is_posted(tmp_path: Path) -> None:
    point = Point(tmp_path / "store.db")
    watch = replace(post("notify_data", "type=a"), modifiers=modifiers(inbox="desk", keep=60))
    point.post(watch)
    data = post("store", "type=a", "m1", data=b"x", credential="secret")
    for matches in (1, 0):
        effect = point.post(data)
        assert (effect.matches, effect.notifications) == (matches, ())
    (due,) = point.rendezvous.react(
        point.now_ms, point.rendezvous.plan(point.now_ms, data, point.spans), [0]
    ).notes
    note = due.note(point.now_ms, data)
    assert note.id == due.note(point.now_ms + 9, data).id
    assert note.header.expires_ms == point.now_ms + 60_000
    assert Note.read(note.data) == Note(watch.id, data.without_credential())
    assert point.post(note).notes == (), "notes are due no notes"


def test_a_watch_has_one_id_for_each_inbox_and_profile() -> None:
    ids = {watch_id(a, b) for a in ("x", "y") for b in ("type=a", "type=b")}
    assert len(ids) == 4
    assert watch_id("a", "bc") != watch_id("ab", "c")
