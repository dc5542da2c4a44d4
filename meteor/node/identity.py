"""A peer's folder: its lock, its identity and whom it knew, kept from one start to the next."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meteor.errors import ConfigError, FolderInUse
from meteor.ring.arcs import RING_SIZE

KNOWN_PEERS_KEPT = 16
"""Addresses remembered for the next start, when those in the configuration may be gone."""


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


def load(folder: Path) -> tuple[int | None, tuple[str, ...]]:
    """Return the peer's place on the ring, if it had one, and the addresses it knew."""
    file = folder / "peer.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        id_, known = content["id"], content["known"]
        if type(id_) is not int or not 0 <= id_ < RING_SIZE:
            raise ValueError(f"{id_!r} is no place on the ring")
        if not isinstance(known, list):
            raise ValueError("what it knew is not a list of addresses")
        return id_, tuple(str(address) for address in known)
    except FileNotFoundError:
        return None, ()
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{file} is damaged: {error}; delete it to start at a new place"
        ) from error


def save(folder: Path, id_: int, known: tuple[str, ...]) -> None:
    """Remember the peer's place and whom it knows; whole, or not at all."""
    file = folder / "peer.json"
    new = file.with_suffix(".new")
    content = {"id": id_, "known": list(known[:KNOWN_PEERS_KEPT])}
    new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    new.replace(file)
