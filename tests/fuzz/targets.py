"""Coverage-guided fuzzing of everything that reads what others sent: `python targets.py NAME ...`.

The other arguments are libFuzzer's. An input is bad when it raises anything but an error of the
known families, takes too long, takes too much memory, or when what was read is not what is read
again from its own wire form.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris
import trio
from trio.testing import MockClock

with atheris.instrument_imports(include=["arms", "meteor", "squid"]):
    from arms.errors import ArmsError
    from arms.message import Action, Header, Message
    from arms.profile import Profile
    from meteor.errors import MeteorError
    from meteor.limits import PROTOCOL
    from meteor.node import overlay_wire, reconciler, voting_wire
    from meteor.node.copying import read_writes
    from meteor.node.errands import Answer, Errand, Survey, Take, Trace, errand_for
    from meteor.transport.channel import Hello, accepted
    from meteor.transport.frames import PREFIX_BYTES, FrameDecoder, Value, encode
    from meteor.transport.network import parse_address
    from squid import Space
    from squid.errors import SquidError

OURS = (MeteorError, ArmsError, SquidError)

SPACE = """
name = "fuzz"
version = 1
[[dimension]]
name = "type"
codec = "keyword"
[[dimension]]
name = "degree"
codec = "number"
min = -40
max = 150
"""

PROFILES = (
    "type=temperature, degree=80..120, unit=Fa*",
    "(type=t* | degree<4) & house/room//lamp=on",
    'type="a b", error<0.01, at>=1e9, x=*',
)


def messages() -> list[Message]:
    """Return valid messages."""
    return [
        Message(Header(Profile.parse(text), "some-id", context={"a": "b"}), action, b"data")
        for text, action in zip(PROFILES, Action, strict=False)
    ]


def values(data: bytes) -> list[Value]:
    """Return what the frames in some bytes hold."""
    return FrameDecoder(len(data) + 1).feed(data)


def frames(data: bytes) -> None:
    """Feed a decoder in two parts: the frames are those of the whole."""
    whole, decoder, half = values(data), FrameDecoder(len(data) + 1), len(data) // 2
    again = decoder.feed(data[:half]) + decoder.feed(data[half:])
    assert repr(again) == repr(whole)  # by their looks: a NaN is not itself
    for value in whole:
        assert repr(values(encode(value))) == repr([value])


class Said(trio.abc.Stream):
    """A stream that brings some bytes, then ends; what is sent to it is gone."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Take it."""
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        """Be ready."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Bring some."""
        await trio.lowlevel.checkpoint()
        some, self._data = self._data[:100], self._data[100:]
        return some

    async def aclose(self) -> None:
        """End."""
        await trio.lowlevel.checkpoint()


def channel(data: bytes) -> None:
    """Be a peer's port: greet, and answer what is asked."""

    def admit(hello: Hello) -> Hello:
        return {"protocol": PROTOCOL}

    async def answer(method: str, body: Value) -> Value:
        await trio.lowlevel.checkpoint()
        return [method, body]

    async def serve() -> None:
        greeted = await accepted(Said(data), admit)
        if greeted is not None:
            await greeted.run(answer, lambda method, body: None)

    trio.run(serve, clock=MockClock(autojump_threshold=0))


def wire(read: Callable[[Value], object]) -> Callable[[bytes], None]:
    """Return a target that reads the value of one frame: what it is given is framed first."""

    def target(data: bytes) -> None:
        (value,) = values(len(data).to_bytes(PREFIX_BYTES, "big") + data)
        found = read(value)
        if isinstance(found, (Message, Errand, Answer)):
            (again,) = values(encode(found.to_wire()))
            assert repr(type(found).from_wire(again)) == repr(found)

    return target


def bare(wires: Iterable[Value]) -> list[bytes]:
    """Return values as they are in frames, without what is before them."""
    return [encode(value)[PREFIX_BYTES:] for value in wires]


def between_peers(value: Value) -> None:
    """Read what peers send each other about the ring, copies and votes."""
    readers: list[Callable[[Value], object]] = [
        overlay_wire.read_neighbours,
        overlay_wire.read_step,
        lambda entry: overlay_wire.read_doubts(entry) if isinstance(entry, list) else None,
        reconciler._read_names,
        reconciler._read_digests,
        voting_wire.read_vote,
        voting_wire.read_voted,
        lambda entry: read_writes([entry], []),
        lambda entry: read_writes([], [entry]),
    ]
    for read in readers:
        try:
            read(value)
        except OURS:
            continue


def text(read: Callable[[str], object]) -> Callable[[bytes], None]:
    """Return a target that reads text."""
    return lambda data: _ignore(read(data.decode("utf-8", errors="replace")))


def _ignore(_: object) -> None:
    pass


def profile(words: str) -> None:
    """Parse a profile; its own text gives it again, and it selects without an error."""
    found = Profile.parse(words)
    assert Profile.parse(str(found)) == found
    found.selects(found)


def space(words: str) -> None:
    """Read a space; its own text gives it again, and it maps a profile."""
    found = Space.from_toml(words)
    assert Space.from_toml(found.to_toml()).fingerprint() == found.fingerprint()


def _errands() -> list[Value]:
    mapped = Space.from_toml(SPACE)
    return [
        *(errand_for(mapped, message).to_wire() for message in messages()),
        Errand(Survey(), ((0, 5),)).to_wire(),
        Errand(Take("some-id", "taker", ""), ((0, 5),)).to_wire(),
    ]


def _answers() -> list[Value]:
    trace = Trace.from_wire([1, "h:1", True, 0.5, []])
    return [
        Answer(covered=((0, 5),), lost=["a"]).to_wire(),
        Answer(faults=["x"], traces=[trace]).to_wire(),
    ]


def _between_peers() -> list[Value]:
    peer, voters = [5, "host:1"], [0, [1, 2, 3]]
    return [
        [peer, peer, [peer, peer]],
        [True, [peer, peer, [peer]]],
        [[5, "host:1", [[0, 5]]]],
        [[["id", 5, 1]], []],
        [[0, 0]] * 64,
        ["id", voters, [1, 2], "taken x", 10],
        [voters, [1, 2], [0, 0], "taken x", None, True],
        messages()[0].to_wire(),
        ["id", "taker", 5, True, 10],
    ]


TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], list[bytes]]]] = {
    "frames": (frames, lambda: [encode([1, {"a": [None, 1.5, b"x"]}]), encode(_errands())]),
    "channel": (
        channel,
        lambda: [
            encode([0, {"protocol": PROTOCOL}]) + encode([1, 1, "post", []]),
            encode([0, {}]) + encode([2, 1, None]) + encode([4, "x", 1]),
        ],
    ),
    "message": (wire(Message.from_wire), lambda: bare(m.to_wire() for m in messages())),
    "errand": (wire(Errand.from_wire), lambda: bare(_errands())),
    "answer": (wire(Answer.from_wire), lambda: bare(_answers())),
    "peers": (wire(between_peers), lambda: bare(_between_peers())),
    "profile": (text(profile), lambda: [words.encode() for words in PROFILES]),
    "space": (text(space), lambda: [SPACE.encode()]),
    "address": (text(parse_address), lambda: [b"host:7400", b"[::1]:1"]),
}
"""By name: what reads some bytes, and what makes good ones to begin with."""


def main() -> None:
    """Fuzz one target; the second argument is a folder for inputs."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    target, seeds = TARGETS[name]
    for number, seed in enumerate(seeds()):
        folder.joinpath(f"seed{number}").write_bytes(seed)
    logging.disable(logging.WARNING)  # errors and bugs are still told

    def judge(data: bytes) -> None:
        try:
            target(data)
        except OURS:
            return

    for seed in seeds():
        target(seed)  # the good ones are good
    atheris.Setup([sys.argv[0], str(folder), *sys.argv[3:]], judge)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
