"""Skilling's Hilbert curve as a state machine, and the tables made from it.

At each level of the curve a *cell* (one bit of every axis, axis 0 first) becomes a *digit* (its
place along the curve). What happens below is the same curve again, with the axes permuted and some
of them flipped. A state is that signed permutation: with `z[i] = cell[order[i]] ^ flip[i]`, the
digit is the Gray code's rank of z, and the change of state depends on z alone. This follows from
J. Skilling, "Programming the Hilbert curve" (2004), whose loop over bits does the same to all lower
bits at once; the parity that his last loop adds is kept in the flip of axis 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property

from squid.limits import LEVELS_PER_STEP, RING_BITS, STEPS_KEPT_MAX

Row = list[tuple[int, "Row"]]
"""For each chunk of input: the output of these levels, and the row of the state after them."""


class Machine:
    """The states of the curve in so many dimensions; a state is `order's number << d | flips`.

    Only orders are numbered (at most 8! = 40,320), as they are met, so a state is a plain integer
    even where nobody could list them all.
    """

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.cells = 1 << dimensions
        self._numbers: dict[tuple[int, ...], int] = {}
        self._orders: list[tuple[int, ...]] = []
        self._forward: list[bytes] = []
        self._backward: list[bytes] = []
        self._digit_of = bytes(_gray_rank(z) for z in range(self.cells))
        self._turns = [self._turn(z) for z in range(self.cells)]
        self._turned: dict[int, int] = {}

    def start(self, padding: int = 0) -> int:
        """Return the state to start from, `padding` all-zero levels above the curve.

        A level of zeros has digit 0 and only rotates the axes, so it can be put on top at will.
        """
        order = tuple(range(self.dimensions))
        turn = self._turns[0][0]
        for _ in range(-padding % self.dimensions):
            order = tuple(order[i] for i in turn)
        return self._number(order) << self.dimensions

    def by_cell(self, state: int, cell: int) -> tuple[int, int]:
        """Return the digit of a cell, and the state below it."""
        z = self._forward[state >> self.dimensions][cell] ^ (state & self.cells - 1)
        return self._digit_of[z], self._below(state, z)

    def by_digit(self, state: int, digit: int) -> tuple[int, int]:
        """Return the cell of a digit, and the state below it."""
        z = digit ^ (digit >> 1)
        cell = self._backward[state >> self.dimensions][z ^ (state & self.cells - 1)]
        return cell, self._below(state, z)

    def first_digit(self, state: int, ones: int, zeros: int, after: int = -1) -> int | None:
        """Return the lowest digit beyond `after` whose cell has these axes at 1 and those at 0."""
        forward = self._forward[state >> self.dimensions]
        fixed = forward[ones | zeros]
        value = (forward[ones] ^ state) & fixed
        if after < 0:
            return self._lowest(0, self.dimensions, fixed, value)
        # A later digit keeps some upper bits of `after`, has 1 where it has 0, and is lowest below.
        for place in range(self.dimensions):
            bit = 1 << place
            if after & bit:
                continue
            top = (after | bit) & -bit
            if not ((top ^ top >> 1) ^ value) & fixed & -bit:
                return self._lowest(top, place, fixed, value)
        return None

    @staticmethod
    def _lowest(top: int, places: int, fixed: int, value: int) -> int:
        """Return the lowest digit with these upper bits whose z has the value where it is fixed."""
        for place in range(places - 1, -1, -1):
            if fixed >> place & 1:
                top |= ((top >> place + 1 ^ value >> place) & 1) << place
        return top

    def _below(self, state: int, z: int) -> int:
        dimensions = self.dimensions
        order, flips = self._turns[z]
        number = state >> dimensions
        key = number << dimensions | z
        turned = self._turned.get(key)
        if turned is None:
            if len(self._turned) >= STEPS_KEPT_MAX:
                self._turned.clear()
            axes = self._orders[number]
            turned = self._turned[key] = self._number(tuple([axes[i] for i in order])) << dimensions
        return turned | flips[state & self.cells - 1]

    def _turn(self, z: int) -> tuple[tuple[int, ...], bytes]:
        """Return what z does to a state: the new order of its places, and its flips by old ones."""
        d = self.dimensions
        order, flip = list(range(d)), [0] * d
        flip[0] = z >> d - 1
        for i in range(1, d):
            if z >> d - 1 - i & 1:
                flip[0] ^= 1
            else:
                order[0], order[i] = order[i], order[0]
                flip[0], flip[i] = flip[i], flip[0]
        flip[0] ^= z.bit_count() & 1
        flips = sum(bit << d - 1 - i for i, bit in enumerate(flip))
        return tuple(order), bytes(moved ^ flips for moved in _gathered(order))

    def _number(self, order: tuple[int, ...]) -> int:
        known = self._numbers.get(order)
        if known is not None:
            return known
        inverse = [0] * self.dimensions
        for place, axis in enumerate(order):
            inverse[axis] = place
        self._orders.append(order)
        self._forward.append(bytes(_gathered(order)))
        self._backward.append(bytes(_gathered(inverse)))
        self._numbers[order] = number = len(self._orders) - 1
        return number


class Tables:
    """Whole tables of a machine with few states, several levels a step."""

    def __init__(self, dimensions: int) -> None:
        self.machine = machine(dimensions)
        self.levels = LEVELS_PER_STEP[dimensions]
        self.chunk_bits = dimensions * self.levels
        self.field = RING_BITS // dimensions

    @cached_property
    def encoding(self) -> dict[int, Row]:
        """For each state a row from cells (the upper level first) to digits."""
        return self._rows(self.machine.by_cell, range(self.machine.cells), self.machine.dimensions)

    @cached_property
    def decoding(self) -> dict[int, Row]:
        """For each state a row from digits to coordinates, a field of 63 // d bits for each axis.

        Shifting the fields left makes room in all of them at once.
        """
        d = self.machine.dimensions
        fields = [
            sum((cell >> axis & 1) << self.field * axis for axis in range(d))
            for cell in range(self.machine.cells)
        ]
        return self._rows(self.machine.by_digit, fields, 1)

    @cached_property
    def states(self) -> list[int]:
        """The states that can be met, the first one first."""
        start = self.machine.start()
        found = {start: None}
        queue = [start]
        for state in queue:
            for digit in range(self.machine.cells):
                below = self.machine.by_digit(state, digit)[1]
                if below not in found:
                    found[below] = None
                    queue.append(below)
        return queue

    def _rows(
        self, step: Callable[[int, int], tuple[int, int]], outputs: Sequence[int], shift: int
    ) -> dict[int, Row]:
        inputs = range(self.machine.cells)
        one = {
            state: [(outputs[out], below) for out, below in (step(state, i) for i in inputs)]
            for state in self.states
        }
        many = one
        for _ in range(self.levels - 1):
            many = {
                state: [(up << shift | out, low) for up, below in row for out, low in one[below]]
                for state, row in many.items()
            }
        rows: dict[int, Row] = {state: [] for state in self.states}
        shared: dict[
            int, int
        ] = {}  # one object for equal outputs, so that more of them stay in cache
        for state, row in many.items():
            rows[state].extend([(shared.setdefault(out, out), rows[low]) for out, low in row])
        return rows


@cache
def machine(dimensions: int) -> Machine:
    """Return the one machine for this many dimensions."""
    return Machine(dimensions)


@cache
def tables(dimensions: int) -> Tables:
    """Return the one set of tables for this many dimensions."""
    return Tables(dimensions)


def _gray_rank(z: int) -> int:
    """Return the place of z in the Gray code: each bit the parity of those at and above it."""
    rank = 0
    while z:
        rank ^= z
        z >>= 1
    return rank


def _gathered(order: Sequence[int]) -> list[int]:
    """Return, for each cell, the cell whose axis i is its axis order[i]; axis 0 is the top bit."""
    d = len(order)
    gathered = [0]
    for axis in range(d - 1, -1, -1):
        bit = 1 << d - 1 - order.index(axis)
        gathered += [cell | bit for cell in gathered]
    return gathered
