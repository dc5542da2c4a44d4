"""The epochs of a peer on disk: each space that its ring has had, with a folder of its own.

The first lies in the peer's folder itself, the next ones in `epoch-VERSION` below it. The file
`epoch` names the one that is current, after the ring has moved for the first time.
"""

from __future__ import annotations

import os
from pathlib import Path

from meteor.config import load_space
from meteor.errors import ConfigError
from squid import Space


def current(folder: Path, space: Space) -> tuple[Path, Space]:
    """Return where a peer lives and its space: as configured, until the ring has moved."""
    try:
        name = (folder / "epoch").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return folder, space
    except OSError as error:
        raise ConfigError(f"can't read {folder / 'epoch'}: {error.strerror}") from error
    home = folder / name
    return home, load_space(str(home / "space.toml"))


def following(folder: Path, space: Space) -> tuple[Path, Space] | None:
    """Return the same for the space that the ring was on its way to, if it was."""
    home = home_of(folder, space.version + 1)
    if not (home / "space.toml").exists():
        return None
    return home, load_space(str(home / "space.toml"))


def begin(folder: Path, space: Space) -> Path:
    """Note that the ring is on its way to a space; returns where the peer will live in it."""
    home = home_of(folder, space.version)
    home.mkdir(parents=True, exist_ok=True)
    _write(home / "space.toml", space.to_toml())
    return home


def freeze(home: Path) -> None:
    """Note that nothing changes in the last space any more."""
    _write(home / "frozen", "")


def is_frozen(home: Path) -> bool:
    """Say whether that was noted."""
    return (home / "frozen").exists()


def complete(home: Path) -> None:
    """Note that the ring has moved: from now on the peer lives here."""
    _write(home.parent / "epoch", f"{home.name}\n")


def home_of(folder: Path, version: int) -> Path:
    """Return the folder of a version of the space."""
    return folder / f"epoch-{version}"


def _write(file: Path, text: str) -> None:
    """Write a file whole or not at all, so that it is there after a power cut."""
    new = file.with_name(f"{file.name}.new")
    with new.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
