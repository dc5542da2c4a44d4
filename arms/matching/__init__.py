"""The index in memory: which of many boxes meet a point, a box, or a whole batch of points."""

from __future__ import annotations

from arms.matching.packed import PackedIndex

__all__ = ["PackedIndex"]
