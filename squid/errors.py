"""What can go wrong between content and identifiers.

SquidError (ValueError)
+-- CurveError      a point, identifier or array that the curve can't have
+-- RegionError     a box that does not fit its curve, or too many boxes
+-- CodecError      a value of the wrong kind for its dimension
+-- SpaceError      a space definition that is wrong; `problems` has one line for each fault
"""

from __future__ import annotations

from collections.abc import Sequence


class SquidError(ValueError):
    """Anything that squid refuses, in words for the one who asked."""


class CurveError(SquidError):
    """A point, identifier or array that the curve can't have."""


class RegionError(SquidError):
    """A box that does not fit its curve, or too many boxes."""


class CodecError(SquidError):
    """A value of the wrong kind for its dimension."""


class SpaceError(SquidError):
    """A space definition that is wrong; says all that is wrong at once."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))
