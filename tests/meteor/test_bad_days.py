"""Bad input and bad days: each a clear error, nothing lost, nothing hangs, the peer goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from arms.limits import DATA_BYTES_MAX
from meteor.client import Post, connect
from meteor.errors import (
    AddressError,
    FolderInUse,
    InputError,
    MeteorError,
    NoRing,
    Refused,
    RemoteError,
)
from meteor.limits import PROTOCOL
from meteor.node.node import Node
from meteor.transport.frames import encode
from squid import Space
from tests.meteor.rings import SPACE, ring_of

CLOSED = Space.from_toml(SPACE.to_toml().replace("closed = false", "closed = true"))


async def test_what_is_wrong_with_a_post_is_said(tmp_path: Path) -> None:
    async with ring_of(2, tmp_path) as ring, connect(ring.address) as client:
        with pytest.raises(InputError, match="column 5"):
            await client.store("type=")
        with pytest.raises(InputError, match=r"\|"):
            await client.store("type=a | type=b")
        with pytest.raises(InputError, match="//"):
            await client.store("type=a // degree=3")
        with pytest.raises(InputError, match=f"{DATA_BYTES_MAX:,}"):
            await client.store("type=a", bytes(DATA_BYTES_MAX + 1))
        with pytest.raises(InputError, match="TTL"):
            await client.store("type=a", ttl=-1)
        with pytest.raises(InputError, match="degree"):
            await client.store("type=a, degree=hot")
        with pytest.raises(InputError, match="a number of seconds, not '1h'"):
            await client.store("type=a", ttl="1h")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="bytes or text, not int"):
            await client.store("type=a", 5)  # type: ignore[arg-type]
        with pytest.raises(MeteorError, match="store, retrieve"):
            await client.post("type=a", "shout")
        assert (await client.store("type=a", bytes(DATA_BYTES_MAX))).complete
        (item,) = await client.retrieve("type=a").all()
        assert len(item.data) == DATA_BYTES_MAX


async def test_one_bad_post_of_many_spoils_no_other(tmp_path: Path) -> None:
    async with ring_of(2, tmp_path) as ring, connect(ring.address) as client:
        posts = [Post("type=a"), Post("type="), Post("type=b | c"), Post("type=d")]
        receipts = await client.post_many(posts)
        assert [bool(receipt.error) for receipt in receipts] == [False, True, True, False]
        assert await client.aggregate("type=*") == await client.aggregate("type=a | type=d")


async def test_a_closed_space_names_what_it_does_not_know(tmp_path: Path) -> None:
    async with ring_of(1, tmp_path, space=CLOSED) as ring, connect(ring.address) as client:
        with pytest.raises(InputError, match=r"does not know humidty.*degree, location, type"):
            await client.store("type=a, humidty=3")


CLIENT = {"protocol": PROTOCOL, "role": "client", "client": "x"}


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: meteor\r\n\r\n",
        b"\xff" * 4096,
        b"\x00\x00\x00\x01\xc1",
        encode([0, {"protocol": 99, "role": "peer"}]),
        encode([0, {"protocol": PROTOCOL, "role": "client"}]),
        encode([1, 1, "post", []]),
        encode("hello"),
        encode([0, {"protocol": PROTOCOL, "role": "client", "client": "x"}])
        + b"\x00\x00\x00\x03abc",
        encode([0, {"protocol": PROTOCOL, "role": "client", "client": "x"}]) + encode([9, 9]),
    ],
)
async def test_a_stranger_that_speaks_garbage_is_closed(tmp_path: Path, garbage: bytes) -> None:
    async with ring_of(1, tmp_path) as ring:
        stream = await ring.network().dial(ring.address)
        with trio.fail_after(10):
            await stream.send_all(garbage)
            while True:
                try:
                    if not await stream.receive_some():
                        break
                except trio.BrokenResourceError:
                    break
        await stream.aclose()
        async with connect(ring.address) as client:
            assert (await client.store("type=a")).complete


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("post", None),
        ("post", [["x"], 1.0]),
        ("post", [[[["id", "store", "a", 0], 1]], 1.0]),
        ("post", [[], float("nan")]),
        ("page", [None, None, 1.0]),
        ("page", [{}, [[[5, 1]], []], 1.0]),
        ("consume", [[], 1]),
        ("trace", []),
        ("survey", ["soon"]),
        ("no such thing", None),
    ],
)
async def test_requests_that_make_no_sense_are_answered_in_words(
    tmp_path: Path, method: str, body: object
) -> None:
    async with ring_of(1, tmp_path) as ring, connect(ring.address) as client:
        try:
            answer = await client._connection.request(method, body, 5)
        except InputError as error:
            answer = [["error", str(error)]]
        assert answer == [] or answer[0][0] == "error"
        assert (await client.store("type=a")).complete


async def test_peers_of_another_space_refuse_each_other_in_words(tmp_path: Path) -> None:
    async with ring_of(1, tmp_path) as ring:
        ring.space = CLOSED
        with pytest.raises(Refused, match=r"your space is 'test'.*start the peer with"):
            await ring.start("stranger")


async def test_a_data_folder_in_use_is_refused(tmp_path: Path) -> None:
    async with ring_of(1, tmp_path) as ring:
        with pytest.raises(FolderInUse, match=r"another peer works in the folder .*p0"):
            await ring.start("p0")


async def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    async with ring_of(1, tmp_path) as ring:
        node = await ring.start("p1")
        config = replace(ring.config, listen=node.me.address, state=str(tmp_path / "third"))
        with pytest.raises(AddressError, match="in use"):
            await Node(config, SPACE).run()


async def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    async with ring_of(1, tmp_path) as ring, connect(ring.address) as client:
        await client.store("type=before", b"kept")
        writer = ring.nodes["p0"].store._writer
        (pages,) = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(RemoteError, match="full; nothing of this was stored"):
            await client.store("type=large", bytes(100_000))
        assert [item.data for item in await client.retrieve("type=*").all()] == [b"kept"]
        writer.execute("PRAGMA max_page_count = 1000000")
        assert (await client.store("type=large", bytes(100_000))).complete


async def test_nobody_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoRing, match="is the ring up"):
        async with connect("127.0.0.1:1"):
            pass
    with pytest.raises(AddressError, match="host:port"):
        async with connect("nowhere"):
            pass


async def test_what_a_program_raises_leaves_connect_as_it_is(tmp_path: Path) -> None:
    async with ring_of(1, tmp_path) as ring:
        with pytest.raises(KeyError):
            async with connect(ring.address) as client, client.watch("type=*"):
                raise KeyError("the program's own")
