"""The configuration of a peer: presets, a TOML file, the environment and flags, in this order.

Each later source wins over the earlier ones. `Config.validate` says all that is wrong at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from meteor.errors import AddressError, ConfigError
from meteor.ring.arcs import RING_SIZE
from meteor.transport.network import parse_address
from squid import Space, SpaceError

ENVIRONMENT_PREFIX = "METEOR_"

SAMPLE_SPACE = "lab.toml"
"""The space of a peer that is not given one; a file of this package."""

EVERY_ADDRESS = ("0.0.0.0", "::")
"""Hosts to listen at, but not to be reached at."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a peer needs to know before it starts."""

    listen: str = "127.0.0.1:7400"
    """Where the peer listens, host:port; port 0 is any free one."""
    advertise: str = ""
    """The address that others reach this peer at, if it is not `listen`."""
    join: tuple[str, ...] = ()
    """Addresses of peers already in the ring. When none answers, this peer is the first."""
    state: str = ".meteor/node"
    """The folder with the profile store and the peer's identity."""
    space: str = ""
    """A TOML file with the information space; without it, the sample space `lab`."""
    id: int = -1
    """The peer's place on the ring; -1 lets it split the busiest of the sampled peers."""
    samples: int = 8
    """How many places a joining peer looks at for the busiest."""
    successors: int = 4
    """Successors that a peer keeps: one less than this may die at once."""
    copies: int = 3
    """Copies of every message: on the peer responsible for it and on the next ones."""
    ack: str = "quorum"
    """When a post is acknowledged: on the disk of its `owner`, of a `quorum` of the copies, or of
    `all` of them."""
    repair_seconds: float = 30.0
    """How often a peer compares its arc with each copy of it, and mends what differs."""
    fingers: int = 4
    """Fingers in each octave; with 4, a ring of 5,000 peers is 5 steps deep instead of 10, and a
    query asks fewer peers that have no part in it, for 45 known peers instead of 15."""
    stabilise_seconds: float = 0.5
    """How often a peer checks its neighbours: what a crash goes unnoticed, at most."""
    request_seconds: float = 2.0
    """How long a neighbour may take to answer before it counts as dead."""
    post_seconds: float = 10.0
    """How long a post or a query may take in all when its caller does not say."""
    discover_seconds: float = 3.0
    """How long a starting peer waits for those in `join` before it becomes the first."""
    sync: str = "full"
    """`full`: a post is on disk when it is acknowledged. `normal`: it survives the death of the
    process, but not always of the machine; faster on slow disks."""
    log: str = "info"
    """How much is logged: debug, info, warning or error."""

    def validate(self) -> Config:
        """Return itself, or raise `ConfigError` with every problem, one a line."""
        problems = [*self.wrong_values(), *self._contradictions()]
        if problems:
            raise ConfigError("\n".join(problems))
        return self

    def wrong_values(self) -> list[str]:
        """Say which settings have values that they can't have, whatever the others are."""
        problems = []
        named = [
            ("listen", self.listen),
            *([("advertise", self.advertise)] if self.advertise else []),
        ]
        for name, address in (*named, *(("join", address) for address in self.join)):
            try:
                parse_address(address)
            except AddressError as error:
                problems.append(f"{name}: {error}")
        if not -1 <= self.id < RING_SIZE:
            problems.append(f"id: {self.id} is no place on the ring; use 0 to 2**63 - 1, or -1")
        bounds = (("samples", 1, 64), ("successors", 1, 32), ("copies", 1, 8), ("fingers", 1, 16))
        for name, low, high in bounds:
            if not low <= getattr(self, name) <= high:
                problems.append(f"{name}: {getattr(self, name)}; use {low} to {high}")
        for field in fields(self):
            if field.name.endswith("_seconds") and not 0.01 <= getattr(self, field.name) <= 300:
                problems.append(f"{field.name}: {getattr(self, field.name)}; use 0.01 to 300")
        if self.ack not in ("owner", "quorum", "all"):
            problems.append(f"ack: {self.ack!r}; use owner, quorum or all")
        if self.sync not in ("full", "normal"):
            problems.append(f"sync: {self.sync!r}; use full or normal")
        if self.log not in ("debug", "info", "warning", "error"):
            problems.append(f"log: {self.log!r}; use debug, info, warning or error")
        return problems

    def _contradictions(self) -> list[str]:
        """Say which settings don't go together."""
        problems = []
        reached = self.advertise or self.listen
        if reached.rpartition(":")[0].strip("[]") in EVERY_ADDRESS:
            problems.append(
                f"advertise: {reached} is every address of this host; say "
                "which one others reach it at, such as 192.168.1.20:7400"
            )
        if self.request_seconds > self.post_seconds:
            problems.append(
                f"post_seconds: {self.post_seconds} is less than request_seconds "
                f"({self.request_seconds}); one slow peer would use up all of it"
            )
        if self.copies > self.successors + 1:
            problems.append(
                f"copies: {self.copies} is more than a peer and the {self.successors} successors "
                "that it knows; raise successors"
            )
        return problems


PRESETS: dict[str, Config] = {
    # One machine: nobody is far, so a silent peer is noticed quickly.
    "local": Config(),
    # Hosts in one building: the odd busy host must not count as dead.
    # They listen at every address, so each says which one it is reached at (`advertise`).
    "lab": Config(
        listen="0.0.0.0:7400", stabilise_seconds=1.0, request_seconds=4.0, post_seconds=15.0
    ),
    # Hosts on several sites: round trips of 100 ms and more, and lines that stall.
    "wide": Config(
        listen="0.0.0.0:7400",
        stabilise_seconds=3.0,
        request_seconds=10.0,
        post_seconds=30.0,
        discover_seconds=10.0,
    ),
}


def load_config(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> Config:
    """Put a configuration together; flags that are None were not given."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    if file is not None:
        values |= _from_file(file)
    known = {field.name for field in fields(Config)} | {"preset"}
    for name, text in environment.items():
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name.startswith(ENVIRONMENT_PREFIX) and key in known and text:
            values[key] = text
    values |= {name: value for name, value in flags.items() if value is not None}
    preset = values.pop("preset", "local")
    if not isinstance(preset, str) or preset not in PRESETS:
        problems.append(f"preset: {preset!r}; use {', '.join(PRESETS)}")
        preset = "local"  # only to see what else is wrong
    typed: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            problems.append(f"{name}: no such setting; there are {', '.join(sorted(known))}")
            continue
        try:
            typed[name] = _typed(getattr(PRESETS[preset], name), value)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    config = replace(PRESETS[preset], **typed)
    if problems:  # what contradicts what is not known then
        raise ConfigError("\n".join([*problems, *config.wrong_values()]))
    return config.validate()


def load_space(file: str) -> Space:
    """Return the space of a TOML file; without a file, the sample space."""
    if not file:
        return Space.from_toml(resources.files("meteor").joinpath(SAMPLE_SPACE).read_text("utf-8"))
    try:
        return Space.from_toml(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"can't read the space {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the space {file} is not text in UTF-8: {error}") from error
    except SpaceError as error:
        problems = "".join(f"\n  {problem}" for problem in error.problems)
        raise ConfigError(f"the space {file} is not usable:{problems}") from error


def _from_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"can't read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from error


def _typed(example: object, value: object) -> object:
    """Return the value in the type of the setting's default; texts come from the environment."""
    match example:
        case tuple():
            entries = value.split(",") if isinstance(value, str) else value
            if not isinstance(entries, (list, tuple)):
                raise ValueError(f"{value!r} is not a list of addresses")
            return tuple(str(entry).strip() for entry in entries if str(entry).strip())
        case float() if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            return _number(float, value)
        case int() if isinstance(value, (int, str)) and not isinstance(value, bool):
            return _number(int, value)
        case str() if isinstance(value, (str, Path)):
            return str(value)
        case _:
            raise ValueError(f"{value!r} is not {_WORDS[type(example)]}")


_WORDS = {float: "a number", int: "a whole number", str: "a text"}


def _number(convert: type[int] | type[float], value: int | float | str) -> float:
    try:
        return convert(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{value!r} is not {_WORDS[convert]}") from None
