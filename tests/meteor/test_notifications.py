"""Notifications on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from meteor.errors import ProtocolError
from meteor.notifications import Told, columns, read
from meteor.transport.frames import FrameDecoder, encode

ONE = Told("me", {"a": "b"}, ["1"], ["type=x"], [b"one"], [5])
TWO = Told("you", {}, ["2", "3"], ["type=y", "type=z"], [b"two", b"three"], [6, 7])


def test_what_is_written_reads_back() -> None:
    wire = columns([(ONE, ["watch"]), (TWO, ["watch", "other"])])
    (sent,) = FrameDecoder().feed(encode(wire))
    assert list(read(sent)) == [(ONE, ["watch"]), (TWO, ["watch", "other"])]


def test_a_part_has_some_of_the_messages() -> None:
    assert TWO.part(1, 2) == Told("you", {}, ["3"], ["type=z"], [b"three"], [7])


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        [["1"], ["type=x"], [b""], [5]],
        [["1"], ["type=x"], [b""], [5], {}],
        [[1], ["type=x"], [b""], [5], [[1, "me", {}, []]]],
        [["1"], ["type=x"], ["text"], [5], [[1, "me", {}, []]]],
        [["1"], ["type=x"], [b""], [True], [[1, "me", {}, []]]],
        [["1"], ["type=x"], [b""], [5], [[1, "me", {}]]],
        [["1"], ["type=x"], [b""], [5], [[1, "me", {}, "watch"]]],
        [["1"], ["type=x"], [b""], [5], [[2, "me", {}, []]]],
        [["1"], ["type=x"], [b""], [5], [[2, "me", {}, []], [-1, "me", {}, []]]],
        [["1"], ["type=x", "type=y"], [b""], [5], [[1, "me", {}, []]]],
        [["1"], ["type=x"], [b""], [5], []],
    ],
)
def test_what_does_not_fit_is_refused(wire: Any) -> None:
    with pytest.raises(ProtocolError):
        list(read(wire))
