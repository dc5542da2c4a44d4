"""The gate: many pass at once, one may close it, and whoever gives up leaves no trace."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from meteor.node.gate import Gate


class Passage:
    """Somebody who passes the gate and stays inside until told to go."""

    def __init__(self, gate: Gate) -> None:
        self.inside, self.go, self.scope = trio.Event(), trio.Event(), trio.CancelScope()
        self._gate = gate

    async def run(self) -> None:
        with self.scope:
            await self._gate.enter()
            try:
                self.inside.set()
                await self.go.wait()
            finally:
                self._gate.leave()


class Closing:
    """Somebody who closes the gate and keeps it closed until told to open it."""

    def __init__(self, gate: Gate) -> None:
        self.alone, self.go, self.scope = trio.Event(), trio.Event(), trio.CancelScope()
        self._gate = gate

    async def run(self) -> None:
        with self.scope:
            async with self._gate.closed():
                self.alone.set()
                await self.go.wait()


@pytest.fixture
def gate() -> Gate:
    return Gate()


async def test_many_pass_at_once(gate: Gate, nursery: trio.Nursery) -> None:
    passages = [Passage(gate) for _ in range(5)]
    for passage in passages:
        nursery.start_soon(passage.run)
    await wait_all_tasks_blocked()
    assert all(passage.inside.is_set() for passage in passages)
    for passage in passages:
        passage.go.set()


async def test_closing_waits_for_those_inside_and_new_ones_wait_for_it(
    gate: Gate, nursery: trio.Nursery
) -> None:
    first, second, late = Passage(gate), Passage(gate), Passage(gate)
    closing = Closing(gate)
    nursery.start_soon(first.run)
    nursery.start_soon(second.run)
    await wait_all_tasks_blocked()
    nursery.start_soon(closing.run)
    await wait_all_tasks_blocked()
    nursery.start_soon(late.run)
    first.go.set()
    await wait_all_tasks_blocked()
    assert not closing.alone.is_set(), "one is still inside"
    assert not late.inside.is_set()
    second.go.set()
    await closing.alone.wait()
    await wait_all_tasks_blocked()
    assert not late.inside.is_set()
    closing.go.set()
    await late.inside.wait()
    late.go.set()


async def test_closings_take_turns(gate: Gate, nursery: trio.Nursery) -> None:
    first, second, between = Closing(gate), Closing(gate), Passage(gate)
    nursery.start_soon(first.run)
    await first.alone.wait()
    nursery.start_soon(second.run)
    nursery.start_soon(between.run)
    await wait_all_tasks_blocked()
    assert not second.alone.is_set()
    first.go.set()
    await wait_all_tasks_blocked()
    assert second.alone.is_set() != between.inside.is_set(), "never both"
    between.go.set()
    await second.alone.wait()
    second.go.set()
    await between.inside.wait()


async def test_closing_that_gives_up_opens_the_gate_again(
    gate: Gate, nursery: trio.Nursery
) -> None:
    inside, waiting, closing = Passage(gate), Passage(gate), Closing(gate)
    nursery.start_soon(inside.run)
    await inside.inside.wait()
    nursery.start_soon(closing.run)
    await wait_all_tasks_blocked()
    nursery.start_soon(waiting.run)
    await wait_all_tasks_blocked()
    assert not waiting.inside.is_set()
    closing.scope.cancel()
    await waiting.inside.wait()
    inside.go.set()
    waiting.go.set()


async def test_an_error_while_closed_opens_the_gate_again(gate: Gate) -> None:
    with pytest.raises(ZeroDivisionError):
        async with gate.closed():
            raise ZeroDivisionError
    await gate.enter()
    gate.leave()


async def test_one_who_gives_up_outside_is_not_waited_for(
    gate: Gate, nursery: trio.Nursery
) -> None:
    first, second, outside = Closing(gate), Closing(gate), Passage(gate)
    nursery.start_soon(first.run)
    await first.alone.wait()
    nursery.start_soon(outside.run)
    await wait_all_tasks_blocked()
    outside.scope.cancel()
    await wait_all_tasks_blocked()
    first.go.set()
    nursery.start_soon(second.run)
    await second.alone.wait()
    second.go.set()


async def test_one_who_gives_up_inside_lets_the_closing_go_on(
    gate: Gate, nursery: trio.Nursery
) -> None:
    inside, closing = Passage(gate), Closing(gate)
    nursery.start_soon(inside.run)
    await inside.inside.wait()
    nursery.start_soon(closing.run)
    await wait_all_tasks_blocked()
    inside.scope.cancel()
    await closing.alone.wait()
    closing.go.set()


async def test_never_is_anybody_inside_while_it_is_closed(
    gate: Gate, autojump_clock: trio.testing.MockClock
) -> None:
    inside = closed = passed = 0

    async def pass_often(pause: float) -> None:
        nonlocal inside, passed
        for _ in range(20):
            with trio.move_on_after(pause * 1.5):  # some give up outside
                await gate.enter()
                try:
                    inside += 1
                    assert not closed
                    passed += 1
                    await trio.sleep(pause)
                finally:
                    inside -= 1
                    gate.leave()
            await trio.sleep(pause / 2)

    async def close_often(pause: float) -> None:
        nonlocal closed
        for _ in range(10):
            with trio.move_on_after(pause * 2):
                async with gate.closed():
                    closed += 1
                    try:
                        assert (inside, closed) == (0, 1)
                        await trio.sleep(pause)
                    finally:
                        closed -= 1
            await trio.sleep(pause)

    async with trio.open_nursery() as nursery:
        for i in range(1, 6):
            nursery.start_soon(pass_often, i * 0.01)
            nursery.start_soon(close_often, i * 0.017)
    assert passed > 20
    await gate.enter()
    gate.leave()
