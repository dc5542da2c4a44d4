"""A peer's folder: its lock, its identity and whom it knew, kept from one start to the next."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from meteor.errors import ConfigError, FolderInUse
from meteor.ring.arcs import RING_SIZE
from meteor.ring.questions import Peer

KNOWN_PEERS_KEPT = 64
"""Peers remembered for the next start, when those in the configuration may be gone."""

NOWHERE = -1
"""The place of a peer of which only the address is known."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder this process's own; `FolderInUse` when another peer has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(f"can't use the folder {folder}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(
                f"another peer works in the folder {folder}; stop it, or choose another (--state)"
            ) from None
        yield
    finally:
        os.close(lock)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a peer was when it stopped."""

    id: int | None = None
    """Its place on the ring, if it had one."""
    low: int | None = None
    """Where its arc began, if it was responsible for one."""
    known: tuple[Peer, ...] = ()
    """Peers that it knew."""
    lost: tuple[Peer, ...] = ()
    """Peers that had gone without a word, and may be a ring of their own."""


def load(folder: Path) -> Identity:
    """Return who the peer of a folder was; nobody in particular in a new one."""
    file = folder / "peer.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        low, known, lost = content.get("low"), content["known"], content.get("lost", [])
        if not isinstance(known, list) or not isinstance(lost, list):
            raise ValueError("whom it knew is not a list of peers")
        return Identity(
            _place(content["id"]),
            None if low is None else _place(low),
            tuple(_peer(entry) for entry in known),
            tuple(_peer(entry) for entry in lost),
        )
    except FileNotFoundError:
        return Identity()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{file} is damaged: {error}; delete it to start at a new place"
        ) from error


def _place(value: object) -> int:
    if type(value) is not int or not 0 <= value < RING_SIZE:
        raise ValueError(f"{value!r} is no place on the ring")
    return value


def _peer(entry: object) -> Peer:
    match entry:
        case [id_, str() as address]:
            return Peer(NOWHERE if id_ == NOWHERE else _place(id_), address)
        case str() as address:  # as version 0.1 noted it
            return Peer(NOWHERE, address)
        case _:
            raise ValueError(f"{entry!r} is no peer")


def save(folder: Path, identity: Identity) -> None:
    """Remember who the peer is; whole, or not at all."""
    file = folder / "peer.json"
    new = file.with_suffix(".new")
    content = {
        "id": identity.id,
        "low": identity.low,
        "known": [[peer.id, peer.address] for peer in identity.known[:KNOWN_PEERS_KEPT]],
        "lost": [[peer.id, peer.address] for peer in identity.lost],
    }
    new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    new.replace(file)
