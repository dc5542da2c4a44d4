"""Frames on a stream: a 4-byte length, then one msgpack value. Without I/O.

A frame's length is checked before it is buffered, so nobody can make a peer hold more than one
frame of the allowed size. The value is decoded within the frame's own bounds; what is not msgpack,
or uses its extension types, is a `ProtocolError`.
"""

from __future__ import annotations

from typing import Any

import msgpack

from meteor.errors import InputError, ProtocolError
from meteor.limits import FRAME_BYTES_MAX, LIST_LENGTH_MAX, MAP_LENGTH_MAX

PREFIX_BYTES = 4

Value = Any  # what msgpack can say: None, bool, int, float, str, bytes, list, and dict by text


def encode(value: Value) -> bytes:
    """Return a value as one frame."""
    body: bytes = msgpack.packb(value)
    if len(body) > FRAME_BYTES_MAX:
        raise InputError(f"a frame of {len(body):,} bytes; the limit is {FRAME_BYTES_MAX:,}")
    return len(body).to_bytes(PREFIX_BYTES, "big") + body


class FrameDecoder:
    """Turns bytes, as they come, into values. The first frame may have a bound of its own."""

    def __init__(self, first_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = first_bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray) -> list[Value]:
        """Add bytes; return the values that are whole now."""
        whole = not self._buffer  # nearly always: frames come as they were sent
        if not whole:
            self._buffer += data
        values: list[Value] = []
        with memoryview(data if whole else self._buffer) as view:
            start, available = 0, len(view)
            while available - start >= PREFIX_BYTES:
                length = int.from_bytes(view[start : start + PREFIX_BYTES], "big")
                if length > self._bytes_max:
                    raise ProtocolError(
                        f"a frame that claims {length:,} bytes (the limit is {self._bytes_max:,}): "
                        "not Meteor's protocol?"
                    )
                end = start + PREFIX_BYTES + length
                if available < end:
                    break
                values.append(_decode(view[start + PREFIX_BYTES : end]))
                start = end
                self._bytes_max = FRAME_BYTES_MAX
            if whole:
                self._buffer += view[start:]
        if not whole:
            del self._buffer[:start]
        return values

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return len(self._buffer)


def _decode(body: memoryview) -> Value:
    try:
        return msgpack.unpackb(
            body,
            ext_hook=_refuse_extension,
            strict_map_key=True,  # text hashes with a secret; numbers could be made to collide
            timestamp=1,  # the one extension that msgpack reads itself: a plain float
            max_array_len=LIST_LENGTH_MAX,
            max_map_len=MAP_LENGTH_MAX,
        )
    except ProtocolError:
        raise
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        words = str(error) or type(error).__name__
        raise ProtocolError(f"a frame that is not msgpack: {words}") from error
    finally:
        body.release()


def _refuse_extension(code: int, data: bytes) -> Value:
    raise ProtocolError(f"a frame with msgpack extension type {code}, which Meteor does not use")
