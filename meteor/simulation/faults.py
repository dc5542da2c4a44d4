"""What can go wrong, and the frames on their way that are lost, repeated or overtaken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from meteor.errors import InputError
from meteor.simulation.determinism import History
from meteor.transport.frames import PREFIX_BYTES

FAULTS = {
    "latency": "answers take up to 30 ms instead of 1, and up to 300 ms for a while",
    "loss": "frames get lost",
    "duplication": "frames come twice",
    "reordering": "frames overtake each other",
    "reset": "connections break",
    "clog": "a link holds everything back for a while",
    "partition": "the network falls into two parts, for a short or a long time",
    "asymmetric": "one peer does not hear others, which hear it, for a short or a long time",
    "slow-disk": "a peer's disk takes up to 200 ms for a commit",
    "crash": "a peer dies, with what its disk had not synced, and returns",
    "replace": "a peer dies with its disk, and another host takes its address",
    "power": "all peers die at once, and return",
    "churn": "peers join, and leave in good order",
    "drift": "clocks run fast or slow, and differ by up to 200 ms",
}
"""The kinds of faults, each with what it does."""


def parse_faults(text: str) -> tuple[str, ...]:
    """Return the faults of a list with commas; `all` and `none` are what they say."""
    if text == "all":
        return tuple(FAULTS)
    wanted = [] if text == "none" else [name.strip() for name in text.split(",")]
    unknown = [name for name in wanted if name not in FAULTS]
    if unknown:
        raise InputError(
            f"no fault {', '.join(map(repr, unknown))}; there are {', '.join(FAULTS)}, all and none"
        )
    return tuple(name for name in FAULTS if name in wanted)


@dataclass
class Rates:
    """How likely it is, for each frame, that something happens to it."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0

    def __add__(self, other: Rates) -> Rates:
        return Rates(
            self.loss + other.loss,
            self.duplication + other.duplication,
            self.reordering + other.reordering,
        )


class Mischief:
    """Meddles with frames after the greeting, and notes all that is on its way."""

    def __init__(self, seed: int, history: History) -> None:
        self.rates = Rates()
        self._random = Random(f"mischief {seed}")
        self._history = history

    def passing(self, source: str, target: str, data: bytes, first: bool) -> Sequence[bytes] | None:
        """Return what arrives instead of what is sent; None: all of it, in order."""
        self._history.note("send", source, target, data=data)
        rates = self.rates
        if first or not (rates.loss or rates.duplication or rates.reordering):
            return None
        arriving: list[bytes] = []
        for frame in _frames(data):
            dice = self._random.random()
            if dice < rates.loss:
                self._history.note("lost frame", source, target)
                continue
            arriving.append(frame)
            if dice > 1 - rates.duplication:
                self._history.note("repeated frame", source, target)
                arriving.append(frame)
        if self._random.random() < rates.reordering:
            self._random.shuffle(arriving)
            self._history.note("reordered frames", source, target)
        return arriving


def _frames(data: bytes) -> Iterator[bytes]:
    """Cut what a channel writes into its frames; it always writes whole ones."""
    at = 0
    while at < len(data):
        end = at + PREFIX_BYTES + int.from_bytes(data[at : at + PREFIX_BYTES], "big")
        yield data[at:end]
        at = end
