"""`meteor up` and the commands against it, as real processes: what a person does in shells."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meteor.errors import FolderInUse
from meteor.node.identity import locked
from tests.whole.rings_up import (
    METEOR,
    PATIENCE_SECONDS,
    PEERS,
    command,
    free_ports,
    plain_environment,
    process,
    ring_up,
)


def wait_until_unlocked(folder: Path) -> None:
    """Wait for the peer that works in a folder to be gone."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with locked(folder):
                return
        except FolderInUse:
            assert time.monotonic() < give_up, f"a peer still works in {folder}"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    state = tmp_path_factory.mktemp("ring")
    with ring_up(state) as (up, port):
        yield port, state
        assert up.end() == 0


def objects(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


# -- posting and finding ---------------------------------------------------------------------------


def test_post_retrieve_and_delete(ring: tuple[int, Path]) -> None:
    port, _ = ring
    code, out, err = command(port, "post", "type=note, location=hall, degree=20", "hello")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"stored, [23] copies so far; notified 0 watchers\n", out)
    command(port, "post", "type=note, location=roof, degree=30", "-", data=b"\xff\x00")

    code, out, err = command(port, "retrieve", "type=no*, degree=10..40")
    assert code == 0
    assert sorted(out.splitlines()) == [
        "type=note, location=hall, degree=20 -> hello",
        "type=note, location=roof, degree=30 -> 2 bytes: ff 00",
    ]
    assert err.startswith("2 items in ")
    assert err.endswith(" ms, complete\n")

    _, out, _ = command(port, "retrieve", "type=note", "--json")
    by_place = {entry["profile"]: entry for entry in objects(out)}
    assert by_place["type=note, location=hall, degree=20"]["data"] == "hello"
    binary = by_place["type=note, location=roof, degree=30"]["data_base64"]
    assert base64.b64decode(binary) == b"\xff\x00"

    assert len(objects(command(port, "retrieve", "type=note", "--one", "--json")[1])) == 1
    code, out, err = command(port, "retrieve", "type=note", "--aggregate", "avg", "--of", "degree")
    assert (code, out, err) == (0, "25\n", "avg of degree over 2 items, complete\n")

    code, out, err = command(port, "retrieve", "type=note", "--aggregate", "avg", "--of", "type")
    assert (code, out) == (0, "")
    assert err.startswith("meteor: no item has a number to take the avg of\n")

    code, out, _ = command(port, "delete", "type=note")
    assert (code, out.startswith("deleted 2 items")) == (0, True)
    assert command(port, "retrieve", "type=note")[1] == ""


def test_consume_takes_an_item_off_the_ring(ring: tuple[int, Path]) -> None:
    port, _ = ring
    command(port, "post", "type=job", "dig", "--context", "where=garden")
    code, out, _ = command(port, "retrieve", "type=job", "--consume", "--json")
    (taken,) = objects(out)
    assert (code, taken["data"], taken["context"]) == (0, "dig", {"where": "garden"})
    assert command(port, "retrieve", "type=job", "--consume")[1] == ""


def test_data_with_a_credential_are_deleted_only_with_it(ring: tuple[int, Path]) -> None:
    port, _ = ring
    command(port, "post", "type=safe", "gold", "--credential", "sesame")
    assert command(port, "delete", "type=safe")[1].startswith("deleted 0 items")
    assert command(port, "delete", "type=safe", "--credential", "sesame")[1].startswith(
        "deleted 1 item "
    )


def test_a_file_is_posted_and_one_message_deleted_by_its_id(
    ring: tuple[int, Path], tmp_path: Path
) -> None:
    port, _ = ring
    (tmp_path / "two.txt").write_text("one\ntwo\n")
    file = str(tmp_path / "two.txt")
    for _ in range(2):
        _, out, _ = command(port, "post", "type=file", "--data-file", file, "--json")
    (receipt,) = objects(out)
    assert receipt["complete"]
    assert command(port, "delete", "type=file", "--id", receipt["id"])[1].startswith("deleted 1 ")
    assert command(port, "retrieve", "type=file")[1] == "type=file ->\n    one\n    two\n"


def test_watch_replays_then_follows_and_ends_by_count(ring: tuple[int, Path]) -> None:
    port, _ = ring
    command(port, "post", "type=tick", "first")
    arguments = ("watch", "type=tick", "--replay", "--count", "2", "--json")
    with process(*arguments, METEOR_PEER=f"127.0.0.1:{port}") as watch:
        assert json.loads(watch.wait_for("first"))["data"] == "first"
        code, out, _ = command(port, "post", "type=tick", "second")
        assert code == 0
        assert re.fullmatch(r"stored, [23] copies so far; notified 1 watcher\n", out)
        assert json.loads(watch.wait_for("second"))["data"] == "second"
        assert watch.wait() == 0


def test_a_reliable_watch_is_told_what_came_while_nobody_read(ring: tuple[int, Path]) -> None:
    port, _ = ring
    arguments = ("watch", "type=bell", "--reliable", "desk", "--count", "1", "--json")
    for text, reading in (("first", True), ("second", False)):
        if not reading:
            assert command(port, "post", "type=bell", text)[0] == 0
        with process(*arguments, METEOR_PEER=f"127.0.0.1:{port + reading}") as watch:
            watch.wait_for("watching")
            if reading:
                assert command(port, "post", "type=bell", text)[0] == 0
            assert json.loads(watch.wait_for(text))["data"] == text
            assert watch.wait() == 0
    assert command(port, "unwatch", "type=bell", "--reliable", "desk")[0] == 0
    assert "notified 0 watchers" in command(port, "post", "type=bell", "third")[1]


def test_only_a_lost_peer_is_forgotten(ring: tuple[int, Path]) -> None:
    port, _ = ring
    code, out, err = command(port, "forget", "127.0.0.1:1")
    assert (code, out) == (1, "")
    waits = "`meteor ring` shows that no peer is waited for"
    assert err == f"meteor: nobody waited for 127.0.0.1:1; {waits}\n"
    code, _, err = command(port, "forget", f"127.0.0.1:{port}")
    assert code == 1
    assert "is in the ring; only a peer that is lost can be forgotten" in err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_watch_ends_cleanly_on_a_signal_and_leaves_no_interest(
    ring: tuple[int, Path], how: int
) -> None:
    port, _ = ring
    with process("watch", "type=tock", METEOR_PEER=f"127.0.0.1:{port}") as watch:
        watch.wait_for("watching type=tock")
        assert watch.end(how) == 0
    assert "notified 0 watchers" in command(port, "post", "type=tock")[1]


def test_interests_are_watched_for(ring: tuple[int, Path]) -> None:
    port, _ = ring
    peer = f"127.0.0.1:{port}"
    with process("watch", "type=rare, degree=5", "--interests", METEOR_PEER=peer) as seller:
        seller.wait_for("watching")
        with process("watch", "type=ra*", METEOR_PEER=peer) as buyer:
            buyer.wait_for("watching")
            seller.wait_for("type=ra*")
            assert buyer.end() == 0
        assert seller.end() == 0


# -- looking at the ring ---------------------------------------------------------------------------


def test_the_ring_is_shown_whole(ring: tuple[int, Path]) -> None:
    port, _ = ring
    code, out, _ = command(port, "ring")
    assert code == 0
    for i in range(PEERS):
        assert f" 127.0.0.1:{port + i} " in out
    assert "the ring is whole" in out
    (report,) = objects(command(port, "ring", "--json")[1])
    assert (report["complete"], report["whole"]) == (True, True)
    assert (report["not_answering"], report["lost"]) == ([], [])
    assert sum(peer["share"] for peer in report["peers"]) == pytest.approx(1)


def test_the_ring_is_shown_again_and_again(ring: tuple[int, Path]) -> None:
    port, _ = ring
    with process("ring", "--watch", "--json", METEOR_PEER=f"127.0.0.1:{port}") as watch:
        watch.wait_for('"whole": true')
        watch.wait_for('"whole": true')
        assert watch.end() == 0


def test_trace_shows_every_owner(ring: tuple[int, Path]) -> None:
    port, _ = ring
    code, out, _ = command(port, "trace", "type=*")
    assert code == 0
    assert f"127.0.0.1:{port}  owner" in out
    assert f"{PEERS} peers reached, {PEERS} owners" in out
    (point,) = objects(command(port, "trace", "type=a", "--action", "store", "--json")[1])
    assert (point["owners"], point["complete"]) == (1, True)


def test_status_and_space(ring: tuple[int, Path], tmp_path: Path) -> None:
    port, _ = ring
    code, out, _ = command(port, "status", "--peer", f"127.0.0.1:{port + 1}")
    assert code == 0
    assert f"127.0.0.1:{port + 1}, Meteor" in out
    (status,) = objects(command(port, "status", "--json")[1])
    assert status["peer"]["address"] == f"127.0.0.1:{port}"
    code, out, _ = command(port, "space")
    assert (code, "lab, version 1" in out) == (0, True)
    (tmp_path / "same.toml").write_text(command(port, "space", "--toml")[1])
    code, out, _ = command(port, "space", "move", str(tmp_path / "same.toml"))
    assert (code, out) == (0, "the ring has version 1 of lab already: nothing to do\n")


# -- bad input and bad days ------------------------------------------------------------------------


def test_a_profile_that_can_not_be_read_is_shown_with_its_column(ring: tuple[int, Path]) -> None:
    port, _ = ring
    code, out, err = command(port, "retrieve", "type=temp|")
    assert (code, out) == (1, "")
    assert err.splitlines()[1:] == ["  type=temp|", "           ^"]


def test_data_must_be_concrete(ring: tuple[int, Path]) -> None:
    port, _ = ring
    code, _, err = command(port, "post", "type=a | type=b")
    assert (code, err.startswith("meteor: ")) == (1, True)


def test_a_reader_that_has_seen_enough_ends_a_retrieval_quietly(ring: tuple[int, Path]) -> None:
    port, _ = ring
    command(port, "post", "type=long", "x" * 100_000)
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody_reads:
        done = subprocess.run(
            [*METEOR, "retrieve", "type=long"],
            stdout=nobody_reads,
            stderr=subprocess.PIPE,
            env=plain_environment(METEOR_PEER=f"127.0.0.1:{port}"),
            timeout=PATIENCE_SECONDS,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_ring_at_the_address() -> None:
    code, out, err = command(free_ports(), "ring")
    assert (code, out) == (1, "")
    assert "no peer answers" in err
    assert "`make up` or `meteor up`" in err


def test_a_port_in_use(ring: tuple[int, Path], tmp_path: Path) -> None:
    port, _ = ring
    options = ("--port", str(port), "--state", str(tmp_path), "--peers", "2")
    code, _, err = command(port, "up", *options)
    assert code == 1
    assert err.startswith(f"meteor: peer-0 did not start: can't listen at 127.0.0.1:{port}: ")
    assert len(err.splitlines()) == 1


def test_a_folder_in_use(ring: tuple[int, Path]) -> None:
    port, state = ring
    code, _, err = command(port, "up", "--port", str(free_ports()), "--state", str(state))
    assert code == 1
    assert err.startswith("meteor: peer-0 did not start: another peer works in the folder ")
    code, _, err = command(port, "node", "--listen", "127.0.0.1:0", "--state", f"{state}/peer-1")
    assert code == 1
    assert err.startswith("meteor: another peer works in the folder ")


def test_a_peer_with_another_space_is_refused_in_words(
    ring: tuple[int, Path], tmp_path: Path
) -> None:
    port, _ = ring
    (tmp_path / "other.toml").write_text(
        'name = "other"\nversion = 1\n[[dimension]]\nname = "a"\ncodec = "keyword"\n'
    )
    flags = ("--listen", "127.0.0.1:0", "--join", f"127.0.0.1:{port}")
    places = ("--state", str(tmp_path / "p"), "--space", str(tmp_path / "other.toml"))
    code, out, err = command(port, "node", *flags, *places)
    assert (code, out) == (1, "")
    assert "your space is 'other'" in err
    assert "Traceback" not in err


# -- stopping and coming back ----------------------------------------------------------------------


def test_data_survive_a_stop_and_no_peer_is_left_behind(tmp_path: Path) -> None:
    with ring_up(tmp_path) as (up, port):
        for i in range(3):
            profile = f"type=kind{i}, location=room{i}, degree={60 * i - 20}"
            assert command(port, "post", profile, str(i))[0] == 0
        assert up.end() == 0
        assert up.lines[-1] == f"Stopped; the data stay in {tmp_path}\n"
    for i in range(PEERS):
        with locked(tmp_path / f"peer-{i}"):
            pass  # nobody has it any more
    with ring_up(tmp_path) as (up, port):
        items = objects(command(port, "retrieve", "type=kind*", "--json")[1])
        assert sorted(item["data"] for item in items) == list("012")
        assert up.end(signal.SIGTERM) == 0


def test_a_peer_that_leaves_hands_over_and_the_ring_says_so(tmp_path: Path) -> None:
    with ring_up(tmp_path) as (up, port):
        for i in range(3):
            command(port, "post", f"type=kind{i}, degree={60 * i - 20}", str(i))
        code, out, _ = command(port, "leave", "--peer", f"127.0.0.1:{port + 1}")
        assert (code, out) == (0, f"127.0.0.1:{port + 1} has handed over and left the ring\n")
        up.wait_for("peer-1 | has left the ring")
        code, out, _ = command(port, "retrieve", "type=kind*", "--json")
        assert (code, len(objects(out))) == (0, 3)
        assert up.end() == 0


def test_no_peer_outlives_up_even_when_that_is_killed(tmp_path: Path) -> None:
    with (
        ring_up(tmp_path, peers=2) as (up, port),
        process("watch", "type=*", METEOR_PEER=f"127.0.0.1:{port}") as watch,
    ):
        watch.wait_for("watching")
        assert up.end(signal.SIGKILL) == -signal.SIGKILL
        watch.wait_for("no peer answers; trying again")
        assert watch.end() == 0
    for i in range(2):
        wait_until_unlocked(tmp_path / f"peer-{i}")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_a_peer_that_dies_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    with ring_up(tmp_path) as (up, port):
        pid = up.popen.pid
        threads = Path(f"/proc/{pid}/task").glob("*/children")
        children = [child for thread in threads for child in thread.read_text().split()]
        victim = next(
            int(child)
            for child in children
            if f"127.0.0.1:{port + 2}" in Path(f"/proc/{child}/cmdline").read_text().split("\0")
        )
        os.kill(victim, signal.SIGKILL)
        up.wait_for("peer-2 | was killed by SIGKILL; its last words: ")
        assert command(port, "post", "type=after")[0] == 0
        assert up.end() == 0
