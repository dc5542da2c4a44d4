"""Frames: what is sent arrives, however it is cut up; what is not Meteor's is refused early."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meteor.errors import InputError, ProtocolError
from meteor.limits import FRAME_BYTES_MAX, HELLO_BYTES_MAX, LIST_LENGTH_MAX, MAP_LENGTH_MAX
from meteor.transport.frames import PREFIX_BYTES, FrameDecoder, encode

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(PREFIX_BYTES, "big") + body


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


# -- what is sent arrives ------------------------------------------------------------------------


@given(st.lists(values, max_size=6), st.data())
def test_values_arrive_however_their_bytes_are_cut_up(sent: list[Any], data: st.DataObject) -> None:
    stream = b"".join(map(encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder, came = FrameDecoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        came += decoder.feed(stream[start:end])
    assert came == sent
    assert decoder.pending == 0


def test_a_value_is_there_with_its_last_byte_and_not_before() -> None:
    decoder, stream = FrameDecoder(), encode(["degree", 91])
    for byte in stream[:-1]:
        assert decoder.feed(bytes([byte])) == []
    assert decoder.pending == len(stream) - 1
    assert decoder.feed(stream[-1:]) == [["degree", 91]]


def test_a_frame_of_the_largest_size_arrives() -> None:
    data = bytes(FRAME_BYTES_MAX - 5)  # msgpack says the length of bytes in 5
    (came,) = FrameDecoder().feed(encode(data))
    assert came == data


def test_a_frame_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(InputError, match="a frame of 8,388,609 bytes; the limit is 8,388,608"):
        encode(bytes(FRAME_BYTES_MAX - 4))


# -- what is refused -----------------------------------------------------------------------------


def test_a_length_over_the_bound_is_refused_before_anything_is_buffered() -> None:
    with pytest.raises(ProtocolError, match="claims 8,388,609 bytes"):
        FrameDecoder().feed((FRAME_BYTES_MAX + 1).to_bytes(PREFIX_BYTES, "big"))


def test_the_first_frame_may_have_a_smaller_bound() -> None:
    hello, page = encode(["hello"]), encode(bytes(HELLO_BYTES_MAX + 1))
    with pytest.raises(ProtocolError, match="the limit is 65,536"):
        FrameDecoder(HELLO_BYTES_MAX).feed(page)
    first, second = FrameDecoder(HELLO_BYTES_MAX).feed(hello + page)
    assert (first, len(second)) == (["hello"], HELLO_BYTES_MAX + 1)


def test_a_browser_at_the_port_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not Meteor's protocol"):
        FrameDecoder().feed(b"GET / HTTP/1.1\r\nHost: peer:7400\r\n\r\n")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "incomplete"),
        (msgpack.packb(["a", "b"])[:-1], "incomplete"),
        (b"\x01\x02", "extra data"),
        (b"\xc1", "FormatError"),
        (b"\xa2\xff\xfe", "utf-8"),
        (b"\x81\x90\x01", "list is not allowed for map key"),
        (msgpack.packb({1: 2}), "int is not allowed for map key"),
        (msgpack.packb([None] * (LIST_LENGTH_MAX + 1)), "max_array_len"),
        (msgpack.packb({str(i): i for i in range(MAP_LENGTH_MAX + 1)}), "max_map_len"),
        (b"\xdd\xff\xff\xff\xff", "max_array_len"),
        (b"\xc6\xff\xff\xff\xff", "exceeds|incomplete"),
        (b"\x91" * 100_000, "StackError"),
        (msgpack.packb(msgpack.ExtType(5, b"x")), "extension type 5"),
    ],
)
def test_what_is_not_msgpack_as_meteor_uses_it_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        FrameDecoder().feed(framed(body))


def test_a_timestamp_is_only_a_number() -> None:
    assert FrameDecoder().feed(framed(msgpack.packb(msgpack.Timestamp(5)))) == [5.0]


@given(st.binary(max_size=200))
def test_garbage_is_a_value_or_a_protocol_error(body: bytes) -> None:
    try:
        (value,) = FrameDecoder().feed(framed(body))
    except ProtocolError:
        return
    encode(value)  # so it is one of the values that Meteor knows


def test_lists_in_lists_that_claim_to_be_huge_take_bounded_memory() -> None:
    claims = b"\xdc" + LIST_LENGTH_MAX.to_bytes(2, "big")
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            FrameDecoder().feed(framed(claims * 20_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 160 * 1024 * 1024


def test_nesting_that_people_use_passes() -> None:
    assert FrameDecoder().feed(encode(deep(200))) == [deep(200)]
