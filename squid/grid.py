"""Finer cells, for what is compared in memory and neither routed by nor sent.

All axes share the 63 bits of an identifier, so the ring tells words of three dimensions apart by
their first three letters. A peer that compares boxes one by one has room for more: its grid has the
same axes with more bits. On an axis of texts the last of them are a hash of a whole word, which is
how `room17` and `room18` differ; what is not one word covers all hashes. So the law of the codecs
holds here too: patterns that share a value share a cell.

Boxes are stored in these cells: whoever changes them has to make those anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from squid.codecs import Cells, Codec, TextAxis, only_text
from squid.limits import FEW_AXES, GRID_BITS, GRID_BITS_FEW_AXES, WORD_BITS
from squid.patterns import Pattern

WORD_MASK = (1 << WORD_BITS) - 1


class Grid:
    """The axes of a space, with as many bits as comparing them is worth."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self.bits = GRID_BITS_FEW_AXES if len(codecs) <= FEW_AXES else GRID_BITS
        self._of_text = [isinstance(codec, TextAxis) for codec in codecs]
        self._codecs = [
            codec.with_bits(self.bits - WORD_BITS * of_text)
            for codec, of_text in zip(codecs, self._of_text, strict=True)
        ]

    def interval(self, axis: int, patterns: Sequence[Pattern]) -> Cells:
        """Return the cells where values may lie that all of these patterns have.

        Patterns that seem to have no value in common are all covered: the ring, whose cells are
        others, may think that they have one.
        """
        every = [
            cells for pattern in patterns if (cells := self._interval(axis, pattern)) is not None
        ]
        low = max((low for low, _ in every), default=0)
        high = min((high for _, high in every), default=(1 << self.bits) - 1)
        if low > high:
            return min(low for low, _ in every), max(high for _, high in every)
        return low, high

    def _interval(self, axis: int, pattern: Pattern) -> Cells | None:
        cells = self._codecs[axis].interval(pattern)
        if cells is None or not self._of_text[axis]:
            return cells
        low, high = cells
        text = only_text(pattern)
        if text is None:
            return low << WORD_BITS, high << WORD_BITS | WORD_MASK
        # Of the cells that a word owns the first will do: nobody has to spread anything here.
        cell = low << WORD_BITS | _hash(text)
        return cell, cell


def _hash(text: str) -> int:
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest) & WORD_MASK
