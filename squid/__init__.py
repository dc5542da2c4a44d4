"""From content to identifiers: information spaces, the Hilbert curve, and regions on it."""

from squid.curve import Curve
from squid.errors import CodecError, CurveError, RegionError, SpaceError, SquidError
from squid.learning import learn_space
from squid.patterns import (
    Absent,
    Anything,
    Bare,
    Interval,
    Keyword,
    Number,
    Pattern,
    Prefix,
    number,
    number_text,
    overlaps,
    within,
)
from squid.region import Box, Region
from squid.space import Dimension, Space

__all__ = [
    "Absent",
    "Anything",
    "Bare",
    "Box",
    "CodecError",
    "Curve",
    "CurveError",
    "Dimension",
    "Interval",
    "Keyword",
    "Number",
    "Pattern",
    "Prefix",
    "Region",
    "RegionError",
    "Space",
    "SpaceError",
    "SquidError",
    "learn_space",
    "number",
    "number_text",
    "overlaps",
    "within",
]
