"""The curve for numpy arrays, block by block.

Up to 5 dimensions it runs on the same tables as one point does; above, where no table is whole, it
runs Skilling's own loops over bits, which give the same curve.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from squid.curve_tables import machine, tables
from squid.errors import CurveError
from squid.limits import ARRAY_BLOCK, RING_BITS, TABLE_DIMENSIONS_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from squid.curve import Curve

    Integers = NDArray[np.int64]

SPREAD_BITS = 11
"""Bits of a coordinate that one lookup spreads: 16 kB of table."""


def encode_many(curve: Curve, points: Integers) -> Integers:
    """Return the identifiers of points, shape (n, dimensions)."""
    d, bits = curve.dimensions, curve.bits
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != d:
        raise CurveError(f"points are an array of shape (n, {d}), not {points.shape}")
    _check(points, (1 << bits) - 1, "a coordinate")
    identifiers = np.empty(len(points), np.int64)
    encode = _encode_block if d <= TABLE_DIMENSIONS_MAX else _encode_block_by_bit
    for begin in range(0, len(points), ARRAY_BLOCK):
        block = np.array(points[begin : begin + ARRAY_BLOCK].T, np.int64, order="C")
        encode(curve, block, identifiers[begin : begin + ARRAY_BLOCK])
    return identifiers


def decode_many(curve: Curve, identifiers: Integers) -> Integers:
    """Return the points, shape (n, dimensions), of identifiers."""
    d, bits = curve.dimensions, curve.bits
    identifiers = np.asarray(identifiers)
    if identifiers.ndim != 1:
        raise CurveError(f"identifiers are an array of shape (n,), not {identifiers.shape}")
    _check(identifiers, (1 << d * bits) - 1, "an identifier")
    points = np.empty((len(identifiers), d), np.int64)
    decode = _decode_block if d <= TABLE_DIMENSIONS_MAX else _decode_block_by_bit
    for begin in range(0, len(identifiers), ARRAY_BLOCK):
        block = identifiers[begin : begin + ARRAY_BLOCK].astype(np.int64, copy=False)
        decode(curve, block, points[begin : begin + ARRAY_BLOCK])
    return points


def _check(array: Integers, highest: int, what: str) -> None:
    if array.dtype.kind not in "iu":
        raise CurveError(f"{what} is an integer; the array has {array.dtype}")
    if array.size and (array.min() < 0 or array.max() > highest):
        wrong = array.min() if array.min() < 0 else array.max()
        raise CurveError(f"{what} is 0 to {highest} here, not {wrong}")


def _shifts(curve: Curve) -> range:
    step = tables(curve.dimensions).levels
    return range(
        (-(-curve.bits // step) - 1) * step * curve.dimensions, -1, -step * curve.dimensions
    )


def _encode_block(curve: Curve, block: Integers, result: Integers) -> None:
    d = curve.dimensions
    part, other = np.empty_like(result), np.empty_like(result)
    code = np.zeros_like(result)
    spread = _spread(d)
    for axis in range(d):
        for low in range(0, curve.bits, SPREAD_BITS):
            np.right_shift(block[axis], low, out=part)
            np.bitwise_and(part, (1 << SPREAD_BITS) - 1, out=part)
            np.take(spread, part, out=other, mode="clip")
            np.left_shift(other, low * d + d - 1 - axis, out=other)
            np.bitwise_or(code, other, out=code)
    table, first = _encoding(d, -curve.bits % tables(d).levels)
    step = tables(d).levels * d
    mask = (1 << step) - 1
    state = other
    state.fill(first)
    result.fill(0)
    for shift in _shifts(curve):
        np.right_shift(code, shift, out=part)
        np.bitwise_and(part, mask, out=part)
        np.bitwise_or(part, state, out=part)
        np.take(table, part, out=state, mode="clip")
        np.bitwise_and(state, mask, out=part)
        np.left_shift(result, step, out=result)
        np.bitwise_or(result, part, out=result)
        np.bitwise_and(state, ~mask, out=state)


def _decode_block(curve: Curve, block: Integers, result: Integers) -> None:
    d, levels = curve.dimensions, tables(curve.dimensions).levels
    below, wide, first = _decoding(d, -curve.bits % levels)
    mask = (1 << levels * d) - 1
    key, more = np.empty_like(block), np.empty_like(block)
    state, fields = np.full_like(block, first), np.zeros_like(block)
    for shift in _shifts(curve):
        np.right_shift(block, shift, out=key)
        np.bitwise_and(key, mask, out=key)
        np.bitwise_or(key, state, out=key)
        np.take(wide, key, out=more, mode="clip")
        np.left_shift(fields, levels, out=fields)
        np.bitwise_or(fields, more, out=fields)
        np.take(below, key, out=state, mode="clip")
    field = RING_BITS // d
    for axis in range(d):
        np.right_shift(fields, field * (d - 1 - axis), out=more)
        np.bitwise_and(more, (1 << field) - 1, out=result[:, axis])


def _encode_block_by_bit(curve: Curve, block: Integers, result: Integers) -> None:
    d = curve.dimensions
    for level in range(curve.bits - 1, 0, -1):
        low = (1 << level) - 1
        for axis in range(d):
            _invert_or_exchange(block, axis, level, low)
    for axis in range(1, d):
        block[axis] ^= block[axis - 1]
    parity = np.zeros_like(result)
    for level in range(curve.bits - 1, 0, -1):
        parity ^= (block[d - 1] >> level & 1) * ((1 << level) - 1)
    block ^= parity
    result.fill(0)
    for level in range(curve.bits - 1, -1, -1):
        for axis in range(d):
            result <<= 1
            result |= block[axis] >> level & 1


def _decode_block_by_bit(curve: Curve, block: Integers, result: Integers) -> None:
    d, bits = curve.dimensions, curve.bits
    axes = np.zeros((d, len(block)), np.int64)
    for place in range(d * bits):
        axes[d - 1 - place % d] |= (block >> place & 1) << place // d
    top = axes[d - 1] >> 1
    for axis in range(d - 1, 0, -1):
        axes[axis] ^= axes[axis - 1]
    axes[0] ^= top
    for level in range(1, bits):
        low = (1 << level) - 1
        for axis in range(d - 1, -1, -1):
            _invert_or_exchange(axes, axis, level, low)
    result[:] = axes.T


def _invert_or_exchange(axes: Integers, axis: int, level: int, low: int) -> None:
    """Below this level: invert axis 0 where the axis has a 1, exchange the two where it has a 0."""
    one = -(axes[axis] >> level & 1)
    swap = (axes[0] ^ axes[axis]) & low & ~one
    axes[0] ^= swap | (one & low)
    axes[axis] ^= swap


@cache
def _spread(dimensions: int) -> Integers:
    values = np.arange(1 << SPREAD_BITS, dtype=np.int64)
    spread = np.zeros_like(values)
    for place in range(SPREAD_BITS):
        if place * dimensions < RING_BITS:
            spread |= (values >> place & 1) << place * dimensions
    return spread


@cache
def _encoding(dimensions: int, padding: int) -> tuple[Integers, int]:
    """Return the encoding rows as an array of `next state << step | digits`; the first state."""
    whole = tables(dimensions)
    step = whole.levels * dimensions
    places = {id(row): place for place, row in enumerate(whole.encoding.values())}
    entries = [
        places[id(below)] << step | out for row in whole.encoding.values() for out, below in row
    ]
    first = places[id(whole.encoding[machine(dimensions).start(padding)])] << step
    return np.array(entries, np.int64), first


@cache
def _decoding(dimensions: int, padding: int) -> tuple[Integers, Integers, int]:
    """Return the decoding rows as arrays of `next state << step` and of fields; the first state."""
    whole = tables(dimensions)
    step = whole.levels * dimensions
    places = {id(row): place << step for place, row in enumerate(whole.decoding.values())}
    below = [places[id(low)] for row in whole.decoding.values() for _, low in row]
    wide = [out for row in whole.decoding.values() for out, _ in row]
    first = places[id(whole.decoding[machine(dimensions).start(padding)])]
    return np.array(below, np.int64), np.array(wide, np.int64), first
