"""Aggregates that can be combined on the way back: count, min, max, sum, avg."""

from __future__ import annotations

from dataclasses import dataclass

from arms.errors import MessageError
from arms.profile import Profile
from squid.patterns import Interval, Number


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What a part of the ring knows about the matches there."""

    count: int = 0
    total: Number = 0
    low: Number | None = None
    high: Number | None = None

    def add(self, value: Number) -> Aggregate:
        """Return the aggregate with one more value."""
        return self.merge(Aggregate(1, value, value, value))

    def merge(self, other: Aggregate) -> Aggregate:
        """Return the aggregate of both parts."""
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Aggregate(
            self.count + other.count,
            self.total + other.total,
            min(lows, default=None),
            max(highs, default=None),
        )

    def result(self, name: str) -> Number | None:
        """Return the named aggregate; None where there is nothing to take it of."""
        match name:
            case "count":
                return self.count
            case "sum":
                return self.total
            case "min":
                return self.low
            case "max":
                return self.high
            case "avg":
                return self.total / self.count if self.count else None
            case _:
                raise MessageError(f"no aggregate {name!r}")

    def to_wire(self) -> list[Number | None]:
        """Return the wire form."""
        return [self.count, self.total, self.low, self.high]

    @classmethod
    def from_wire(cls, wire: object) -> Aggregate:
        """Read the wire form."""
        match wire:
            case [
                int() as count,
                int() | float() as total,
                int() | float() | None as low,
                int() | float() | None as high,
            ]:
                return cls(count, total, low, high)
            case _:
                raise MessageError("what came is not an aggregate")


def aggregate_of(profile: Profile, attribute: str | None) -> Aggregate:
    """Return the aggregate of one data profile: of nothing where the attribute is no number.

    Without an attribute only the profile itself counts.
    """
    if attribute is None:
        return Aggregate(1)
    for pattern in profile.data_by_attribute().get(attribute, ()):
        if isinstance(pattern, Interval) and pattern.is_number:
            value = pattern.low
            assert isinstance(value, (int, float))
            return Aggregate(1, float(value), value, value)
    return Aggregate()
