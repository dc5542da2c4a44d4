"""Whatever comes, at a parser or a port: an error of the known families, and the peer goes on."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgpack
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from rings import SPACE, TestRing, ring_of
from trio.testing import MockClock

from arms.aggregate import Aggregate
from arms.errors import ArmsError
from arms.message import Action, Header, Message
from arms.profile import Profile
from meteor.client import connect
from meteor.config import _from_file
from meteor.errors import ConfigError, ConnectionLost, MeteorError
from meteor.limits import PROTOCOL
from meteor.node import identity
from meteor.node.errands import Answer, Errand, Survey, Take, Trace, errand_for
from meteor.ring.arcs import RING_SIZE
from meteor.transport.channel import Channel, dialled
from meteor.transport.frames import FrameDecoder, encode
from meteor.transport.memory import MemoryNetwork
from squid import Space
from squid.errors import SquidError

OURS = (MeteorError, ArmsError, SquidError)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)

MESSAGE = Message(
    Header(Profile.parse("type=t, degree=80..90"), "some-id", context={"a": "b"}),
    Action.STORE,
    b"data",
).to_wire()
ERRAND = errand_for(SPACE, Message.from_wire(MESSAGE)).to_wire()
SURVEY = Errand(Survey(), ((0, 5),)).to_wire()
TAKE = Errand(Take("some-id", "taker", ""), ((0, 5),)).to_wire()
ANSWER = Answer(covered=((0, 5),)).to_wire()

PARSERS: list[tuple[str, Callable[[Any], object], Any]] = [
    ("message", Message.from_wire, MESSAGE),
    ("errand", Errand.from_wire, ERRAND),
    ("survey", Errand.from_wire, SURVEY),
    ("take", Errand.from_wire, TAKE),
    ("answer", Answer.from_wire, ANSWER),
    ("trace", Trace.from_wire, [1, "host:1", True, 0.5, []]),
    ("aggregate", Aggregate.from_wire, Aggregate().to_wire()),
]

ODD: list[Any] = [
    None, True, -1, 0, 2**63, 2**64 - 1, -(2**63), 1.5, float("nan"), float("inf"), "", "x" * 5000,
    "\x00", "\ud7ff", b"", b"\xff" * 300, [], {}, [[]], {"a": 1}, [[1, 2, 3]],
]  # fmt: skip


def plain(value: Any) -> Any:
    """Return a value as it comes off the wire."""
    return msgpack.unpackb(msgpack.packb(value), strict_map_key=False)


def mutated(random: Random, value: Any, depth: int = 0) -> Any:
    """Return a value with something replaced, left out, doubled or nested deep."""
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        match random.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value[: at + 1], *value[at:]]
            case _:
                changed = mutated(random, value[at], depth + 1)
                return [*value[:at], changed, *value[at + 1 :]]
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        return value | {key: mutated(random, value[key], depth + 1)}
    if random.random() < 0.1:
        for _ in range(random.choice([3, 50, 300])):
            value = [value]
        return value
    return random.choice(ODD)


@pytest.mark.parametrize(("name", "parse", "valid"), PARSERS, ids=[name for name, _, _ in PARSERS])
@given(value=VALUES, seed=st.integers(0, 2**32))
@settings(max_examples=150)
def test_parsers_of_the_wire_say_what_is_wrong(
    name: str, parse: Callable[[Any], object], valid: Any, value: Any, seed: int
) -> None:
    parse(plain(valid))  # the valid one is
    random = Random(seed)
    changed = mutated(random, mutated(random, plain(valid)))
    for wire in (value, changed):
        try:
            parse(wire)
        except OURS:
            continue


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1), st.binary(max_size=60))
def test_frames_of_any_bytes(data: bytes, claimed: int, body: bytes) -> None:
    for sent in (data, claimed.to_bytes(4, "big") + body, len(body).to_bytes(4, "big") + body):
        decoder = FrameDecoder()
        try:
            decoder.feed(sent)
        except MeteorError:
            continue
        assert len(decoder._buffer) <= len(sent)


@given(st.text() | st.text(alphabet='ab=*|&,/()<>.0123456789-"\\ ', max_size=60))
def test_profiles_of_any_text(text: str) -> None:
    try:
        profile = Profile.parse(text)
    except ArmsError:
        return
    assert Profile.parse(str(profile)) == profile


TOML = SPACE.to_toml()
DEEP = 100_000
"""Brackets in brackets, more than Python's own parsers can bear."""


@pytest.mark.parametrize("text", ["[" * DEEP, "x=" + "[" * DEEP, "\x00"])
def test_definitions_nested_deep_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SquidError):
        Space.from_toml(text)
    (tmp_path / "meteor.toml").write_text(text)
    with pytest.raises(ConfigError):
        _from_file(tmp_path / "meteor.toml")


@given(VALUES, st.integers(0, 2**32), st.text(max_size=40))
def test_identity_files_of_any_content(value: Any, seed: int, text: str) -> None:
    changed = mutated(Random(seed), {"id": 5, "known": ["host:1", "host:2"]})
    with TemporaryDirectory() as folder:
        file = Path(folder) / "peer.json"
        for content in (value, changed):
            file.write_text(json.dumps(content, default=repr))
            identity_is_read_or_refused(file)
        file.write_text(text, encoding="utf-8")
        identity_is_read_or_refused(file)


@pytest.mark.parametrize("text", ["[" * DEEP, '{"id": 1e999, "known": []}', "\udcff", '{"id": -1}'])
def test_damaged_identity_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "peer.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError):
        identity.load(tmp_path)


def identity_is_read_or_refused(file: Path) -> None:
    try:
        who = identity.load(file.parent)
    except ConfigError:
        return
    assert who.id is not None
    assert 0 <= who.id < RING_SIZE
    assert all(isinstance(peer.address, str) for peer in (*who.known, *who.lost))


@given(st.text(max_size=100), st.integers(0, len(TOML)), st.integers(0, len(TOML)))
def test_spaces_of_any_text(text: str, a: int, b: int) -> None:
    for source in (text, TOML[:a] + text + TOML[max(a, b) :]):
        try:
            Space.from_toml(source)
        except SquidError:
            continue


# -- at a peer's port ------------------------------------------------------------------------------

STONE = ["gone-id", "taker", 5, True, 2_000_000]
VOTE = ["some-id", [0, 5, 6], [1, 5], None, 2_000_000]
POST = [[[MESSAGE, 60]], 1]
STORE = [["a1", "a2"], ["type=a, degree=5", "type=b"], [b"one", b"two"], 60, "", 1]
BATCH = ["client", "host:1", "", ["b1"], ["type=a"], [b"data"], [2_000_000]]
TOLD = [["a1"], ["type=a"], [b"data"], ["client"], [{"why": "so"}], [2_000_000]]
ME = 77
REQUESTS: dict[str, list[tuple[str, Any]]] = {
    "client": [
        ("post", POST),
        ("store", STORE),
        ("store", [*STORE[:3], [60, 0], "mine", None]),
        ("page", [MESSAGE, None, 1]),
        ("page", [MESSAGE, [[[0, 5]], [[0, "id"]]], 1]),
        ("consume", [MESSAGE, 1]),
        ("trace", [MESSAGE, 1]),
        ("survey", [1]),
        ("space", None),
        ("status", None),
        ("nothing", None),
    ],
    "peer": [
        ("errands", [0, 1.0, 5, [ERRAND]]),
        ("errands", [0, 1.0, 5, [SURVEY, TAKE]]),
        ("deliver", [*TOLD, [[["client", "watch"]]]]),
        ("batch", BATCH),
        ("replicate", [[{"batch": BATCH, "voters": [0, 5]}, MESSAGE], [], 0, 5]),
        ("replicate", [[MESSAGE], [STONE], 0, 5]),
        ("digests", ["points", [[0, 5]]]),
        ("digests", ["regions", [[0, 5], [9, 99]]]),
        ("names", ["points", [[0, 2**62]], 0]),
        ("names", ["regions", [[0, 2**62]], 3]),
        ("fetch", ["some-id"]),
        ("mend", [[MESSAGE], [STONE]]),
        ("vote", [ME, [VOTE]]),
        ("vote", [ME, [[*VOTE[:3], "taken somebody", 2_000_000]]]),
        ("handover", [[MESSAGE], [STONE], [0, 5], False, []]),
        ("handover", [[], [], [0, 5], True, [[[5, "host:1"], [[0, 5]]]]]),
        ("meet", [5, "host:1"]),
        ("claim", [0, 5]),
        ("load", 0.5),
        ("neighbours", None),
        ("step", 5),
        ("notify", [5, "host:1"]),
        ("nudge", None),
        ("departed", [[5, "host:1"], None, []]),
    ],
}


async def pester(ring: TestRing, role: str, random: Random, rounds: int) -> None:
    """Send changed requests on connections that shook hands; each gets an answer or the end."""
    node = next(iter(ring.nodes.values()))
    hello = {"protocol": PROTOCOL, "role": role, "version": "0", "client": "fuzz"}
    hello |= {"fingerprint": node.space.fingerprint(), "space": node.space.name, "id": 5}
    hello |= {"address": "fuzz:1"}
    for _ in range(rounds):
        stream = await ring.network("fuzz:1").dial(ring.address)
        async with dialled(stream, hello, lambda _m, _b: None) as channel:
            for _ in range(25):
                method, body = random.choice(REQUESTS[role])
                for _ in range(random.randrange(4)):
                    body = mutated(random, plain(body))
                await ask(channel, method, body)


async def ask(channel: Channel, method: str, body: Any) -> None:
    try:
        await channel.request(method, body, 5)
    except ConnectionLost:
        raise
    except MeteorError:
        return


async def throw(ring: TestRing, random: Random) -> None:
    """Throw bytes at the port: no greeting, a cut one, a frame of any kind after one."""
    hello = encode([0, {"protocol": PROTOCOL, "role": "client", "client": "fuzz"}])
    for _ in range(40):
        stream = await ring.network("fuzz:1").dial(ring.address)
        odd = encode(mutated(random, [random.randrange(6), 1, "post", plain(POST)]))
        cut = random.randrange(len(odd))
        data = random.choice(
            [random.randbytes(50), hello[:cut], hello + odd, hello + odd[:cut], hello + b"\xff" * 9]
        )
        try:
            await stream.send_all(data)
            with trio.move_on_after(0.1):
                await stream.receive_some(1000)
        except trio.BrokenResourceError:
            continue
        finally:
            await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("seed", [0, 1, 22])
async def test_a_peer_goes_on_whatever_it_is_sent(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    caplog.set_level(logging.ERROR)
    random = Random(seed)
    async with ring_of(1, tmp_path, MemoryNetwork(seed), id=ME) as ring:
        with trio.fail_after(3000):
            await throw(ring, random)
            await pester(ring, "client", random, 30)
            await pester(ring, "peer", random, 40)
            bugs = [record for record in caplog.records if "a bug met" in record.message]
            assert not bugs, logging.Formatter().format(bugs[0])
            async with connect(ring.address, network=ring.network(), seconds=30) as client:
                assert (await client.store("type=after, degree=1", "fine")).complete
                found = await client.retrieve("type=after").all()
        assert [item.text for item in found] == ["fine"]
