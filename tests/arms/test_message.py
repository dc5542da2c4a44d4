"""AR messages: what may be sent, and that everything comes over the wire as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from rendezvous_point import LAB, post

from arms.errors import ArmsError, MessageError, ProfileError
from arms.limits import CONTEXT_ENTRIES_MAX, DATA_BYTES_MAX, TEXT_FIELD_MAX, TTL_SECONDS_MAX
from arms.message import Action, Kind, Message, check_ttl, modifiers, region_of
from squid import Space
from squid.errors import CodecError

CLOSED = Space.from_toml(LAB.to_toml().replace("closed = false", "closed = true"))


def test_a_message_comes_over_the_wire_as_it_was() -> None:
    message = post(
        "retrieve",
        "type=temp* | degree>80 / room=12",
        "m1",
        expires_ms=123_456,
        data=b"\x00\xff",
        sender="c1",
        reply_to="10.0.0.1:7400",
        credential="secret",
        limit=5,
        aggregate="avg",
        attribute="degree",
        context={"room": "12"},
    )
    wire = msgpack.unpackb(msgpack.packb(message.to_wire()))
    assert Message.from_wire(wire) == message


@pytest.mark.parametrize("action", Action)
def test_the_action_classifies_the_profile(action: Action) -> None:
    kinds = {
        Action.STORE: Kind.DATA,
        Action.NOTIFY_DATA: Kind.INTEREST,
        Action.NOTIFY_INTEREST: Kind.ADVERTISEMENT,
    }
    assert post(action, "type=a").stored_as is kinds.get(action)


def change(place: int, value: object) -> Callable[[list[Any]], object]:
    return lambda wire: [*wire[:place], value, *wire[place + 1 :]]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda wire: None, "not a message"),
        (lambda wire: wire[:-1], "not a message"),
        (lambda wire: [*wire, 1], "not a message"),
        (change(0, 7), "not a message"),
        (change(0, ""), "needs an id"),
        (change(0, "x" * (TEXT_FIELD_MAX + 1)), "id has 257 characters"),
        (change(1, "shout"), "no action 'shout'; there are store, retrieve"),
        (change(2, "type="), "column"),
        (change(3, -1), "can't end at -1 ms"),
        (change(3, 2**63), "can't end at 9223372036854775808 ms"),
        (change(5, "x" * (TEXT_FIELD_MAX + 1)), "reply_to has 257 characters"),
        (change(7, {"a": 1}), "texts to texts"),
        (change(7, {str(i): "" for i in range(CONTEXT_ENTRIES_MAX + 1)}), "33 entries"),
        (change(7, {"a": "x" * (TEXT_FIELD_MAX + 1)}), "at most 256 characters a side"),
        (change(8, "text"), "not a message"),
        (change(9, [1, 2]), "modifiers are malformed"),
        (change(9, [0, None, None, None]), "a limit of 0"),
        (change(9, [None, "median", "degree", None]), "no aggregate 'median'; there are count"),
        (change(9, [None, "sum", None, None]), "sum needs an attribute"),
        (change(9, [None, None, None, "x" * (TEXT_FIELD_MAX + 1)]), "only has 257 characters"),
    ],
)
def test_what_is_no_message_is_refused_in_words(
    damage: Callable[[list[Any]], object], words: str
) -> None:
    wire = post("store", "type=a", "m1").to_wire()
    assert Message.from_wire(wire).id == "m1"
    with pytest.raises(ArmsError, match=words):
        Message.from_wire(damage(wire))


@pytest.mark.parametrize(
    ("action", "profile", "error", "words"),
    [
        ("store", "type=a | type=b", ProfileError, "'|' leaves open"),
        ("store", "type=a // degree=1", ProfileError, "'//' leaves open"),
        ("store", "type=a*", ProfileError, "stands for many values"),
        ("notify_interest", "type=a | type=b", ProfileError, "'|' leaves open"),
        ("store", "degree=1 / degree=2", MessageError, "data may give it once, on one level"),
        ("notify_interest", "degree<5 / degree>7", MessageError, "data may give it once"),
        ("store", "degree=warm", CodecError, "degree: is a number here"),
        ("retrieve", "degree=1 | degree=warm", CodecError, "degree: is a number here"),
    ],
)
def test_what_does_not_fit_the_space_is_refused(
    action: str, profile: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as caught:
        post(action, profile).check(LAB)
    assert words in str(caught.value)


def test_an_advertisement_may_have_prefixes_and_wildcards_and_data_ranges() -> None:
    post("notify_interest", "type=temp*, degree=*").check(LAB)
    post("store", "type=temperature, degree=20..21").check(LAB)


def test_a_closed_space_names_what_it_does_not_know() -> None:
    post("store", "type=a, room=12").check(LAB)
    with pytest.raises(MessageError, match="does not know floor, room; it knows degree, type"):
        post("store", "type=a, room=12 / floor=1").check(CLOSED)
    post("retrieve", "type=a | degree>7").check(CLOSED)


def test_data_are_bounded() -> None:
    post("store", "type=a", data=bytes(DATA_BYTES_MAX)).check(LAB)
    with pytest.raises(MessageError, match=r"1,048,577 bytes of data; .* at most 1,048,576"):
        post("store", "type=a", data=bytes(DATA_BYTES_MAX + 1)).check(LAB)


@pytest.mark.parametrize("seconds", [-1, TTL_SECONDS_MAX + 1, float("nan"), float("inf")])
def test_a_ttl_is_bounded(seconds: float) -> None:
    assert check_ttl(0) == 0
    assert check_ttl(TTL_SECONDS_MAX) == TTL_SECONDS_MAX
    with pytest.raises(MessageError, match="a TTL of"):
        check_ttl(seconds)


def test_modifiers_are_checked_where_they_are_made() -> None:
    assert modifiers(aggregate="count").aggregate == "count"
    with pytest.raises(MessageError, match="must be at least 1"):
        modifiers(limit=0)


def test_a_message_is_stamped_where_it_enters_the_ring() -> None:
    message = post("store", "type=a", "m1", credential="secret").sent_by("c1", "here:7400", 77)
    assert message.header.sender == "c1"
    assert message.header.reply_to == "here:7400"
    assert message.header.expires_ms == 77
    assert message.header.credential == "secret"
    assert message.without_credential().header.credential == ""


def test_where_a_message_is_about() -> None:
    data = region_of(LAB, post("store", "type=a, degree=5"))
    assert data.is_point
    assert not region_of(LAB, post("store", "type=a, degree<5")).is_point
    assert region_of(LAB, post("store", "room=12")).is_point  # in the cells of what is absent
    assert region_of(LAB, post("notify_interest", "type=a")).is_point
    everything = region_of(LAB, post("retrieve", "room=12"))
    assert everything.lowest == 0
    assert data.lowest is not None
    assert data.lowest in everything
    assert not region_of(LAB, post("retrieve", "degree<5, degree>7"))


def test_equal_spaces_have_one_hash() -> None:
    again = Space.from_toml(LAB.to_toml())
    assert again is not LAB
    assert {again: 1}[LAB] == 1
    assert region_of(again, post("store", "type=a")) is region_of(LAB, post("store", "type=a"))
