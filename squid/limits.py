"""Every bound of squid, with its reason."""

from __future__ import annotations

RING_BITS = 63
"""Identifiers are non-negative 63-bit integers: they fit SQLite, msgpack, Spark and numpy int64."""

DIMENSIONS_MAX = 8
"""More dimensions spread one keyword over most of the ring; 3 or fewer route best."""

SINGLE_DIMENSION_BITS = 32
"""Default bits of a space with one dimension: more cells than a ring will ever tell apart."""

GRID_BITS = 31
"""Bits of an axis where boxes are compared in memory: what four bytes hold. With eight, a search
among 10^6 boxes takes half as long again."""

FEW_AXES = 2
GRID_BITS_FEW_AXES = 63
"""The same in spaces of so few dimensions, whose ring has as many bits and more."""

WORD_BITS = 10
"""Of these, on an axis of texts, bits for a hash of the whole word: of 1,000 words that begin alike
all but one are told apart from another, and three letters are left to prefixes and ranges."""

BOXES_MAX = 64
"""Boxes of one region: each costs every peer on the way a search of its own."""

TABLE_DIMENSIONS_MAX = 5
"""Whole tables up to here (1920 states); 6 dimensions would need 23,040 states, 8 five million."""

LEVELS_PER_STEP = {1: 8, 2: 4, 3: 3, 4: 2, 5: 1}
"""Levels of the curve that one table step takes: more would not stay in the processor's cache."""

STEPS_KEPT_MAX = 200_000
"""Single steps remembered, of each kind and dimension (some 30 MB), before starting anew."""

ARRAY_BLOCK = 100_000
"""Points that the array functions take at once, so that their scratch arrays stay in cache."""

SPLIT_POINTS_MAX = 4096
"""Split points of one quantile codec: finer than the shares of 1,000 peers, and a definition of
100 kB."""

SPLIT_WEIGHT_MAX = 1 << 40
"""Weight of one split point or gap: more than the profiles of any sample."""

LEARNT_POINTS = 1024
"""Split points that a codec is learnt with unless told otherwise: a definition of some 25 kB."""
