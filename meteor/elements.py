"""Elements: devices that live on a ring by their local behaviour (section 3 of the paper).

    window = Element(
        Behaviour(
            "window",
            states=("open", "shut"),
            transitions=(
                Transition("open", Content("type=temp-control, cooling=on"), "shut", action=shut),
                Transition("shut", Content("type=temp-control, cooling=off"), "open", action=open_),
            ),
        )
    )
    async with meteor.connect("127.0.0.1:7400") as ring:
        await window.run(ring)

The window knows nothing of thermostats: whatever posts a temp-control message moves it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from inspect import isawaitable
from typing import Any

import trio

from meteor.background import background_nursery
from meteor.behaviour import Behaviour, Content, Context, Event, Step, Transition
from meteor.client.results import Post
from meteor.client.ring import Ring
from meteor.errors import Busy, ConnectionLost, ElementError, MeteorError, NoAnswer
from meteor.limits import EVENTS_QUEUED_MAX, REOPEN_SECONDS, SEEN_IDS_MAX

__all__ = [
    "Behaviour",
    "Content",
    "Context",
    "Element",
    "Event",
    "Post",
    "Step",
    "Transition",
]

log = logging.getLogger("meteor.elements")


class Element:
    """A device: a behaviour, and the state that it is in.

    Events are dealt with one at a time, in the order in which they came. What a state's watches
    find stored already comes first, so an element that joins late takes part. A watch gives each
    item once, even when its state is left and entered again. An event that no transition of the
    present state is for is let go.

    Nothing that goes wrong in an event ends the element: it is logged, with the element's name and
    the transition. When a condition or an action fails the element stays in its state; when a
    message can't be posted it has changed its state all the same, for its device has.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.state = behaviour.initial
        self._changed = trio.Event()
        self._send, self._events = trio.open_memory_channel[Event](EVENTS_QUEUED_MAX)
        self._open: dict[Content, trio.CancelScope] = {}
        self._seen: OrderedDict[tuple[Content, str], None] = OrderedDict()

    def event(self, name: str, value: Any = None) -> None:
        """Tell the element what happened at its device; it is dealt with in its turn."""
        if name not in self.behaviour.context():
            known = ", ".join(sorted(self.behaviour.context())) or "none"
            raise ElementError(
                f"{self.behaviour.name} has no context event {name!r}; there are: {known}"
            )
        try:
            self._send.send_nowait(Event(Context(name), value))
        except trio.WouldBlock:
            raise ElementError(
                f"{self.behaviour.name} has {EVENTS_QUEUED_MAX} events waiting; {name!r} was not "
                "taken: give it fewer, or quicker actions"
            ) from None

    async def wait_state(self, name: str) -> None:
        """Wait until the element is in a state."""
        if name not in self.behaviour.states:
            raise ElementError(f"{self.behaviour.name} has no state {name!r}")
        while self.state != name:
            await self._changed.wait()

    async def run(
        self, ring: Ring, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Live on a ring until cancelled; reports once the watches of the first state are open."""
        try:
            async with background_nursery() as nursery:
                await self._swap_watches(ring, nursery)
                task_status.started()
                async for event in self._events:
                    if self._is_due(event) and await self._react(ring, event):
                        await self._swap_watches(ring, nursery)
        finally:
            self._open.clear()

    def to_mermaid(self) -> str:
        """Return the behaviour as a Mermaid state diagram."""
        return self.behaviour.to_mermaid()

    # -- events ------------------------------------------------------------------------------------

    def _is_due(self, event: Event) -> bool:
        """Return whether an event is one of the present state's, and was not there before."""
        if not isinstance(event.trigger, Content):
            return True
        if event.trigger not in self._open:  # it came when another state was in force
            return False
        key = (event.trigger, event.carried.id)
        new = key not in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > SEEN_IDS_MAX:
            self._seen.popitem(last=False)
        return new

    async def _react(self, ring: Ring, event: Event) -> bool:
        """Carry out what follows from an event; return whether a transition took place."""
        name, what = self.behaviour.name, f"{self.state} on {event.trigger}"
        try:
            step = self.behaviour.step(self.state, event)
            if step is None:
                return False
            what = str(step.transition)
            if step.transition.action is not None:
                done = step.transition.action(step.carried)
                if isawaitable(done):
                    await done
        except Exception:  # whatever the device's own code raises: the device lives on
            log.exception("%s: %s failed; it stays %s", name, what, self.state)
            return False
        self.state = step.state
        self._changed.set()
        self._changed = trio.Event()
        log.info("%s: %s", name, what)
        await self._speak(ring, step)
        return True

    async def _speak(self, ring: Ring, step: Step) -> None:
        """Withdraw what is untrue now, then post."""
        for profile in step.transition.withdraws:
            try:
                receipt = await ring.delete(profile)
                self._check(receipt.complete, step, f"{profile} is not withdrawn everywhere")
            except MeteorError as error:
                self._check(False, step, f"{profile} is not withdrawn: {error}")
        for post in step.posts:
            try:
                receipt = await ring.post(
                    post.profile, post.action, post.data, ttl=post.ttl, context=post.context
                )
                self._check(receipt.complete, step, f"{post.profile} is not posted everywhere")
            except MeteorError as error:
                self._check(False, step, f"{post.profile} is not posted: {error}")

    def _check(self, good: bool, step: Step, problem: str) -> None:
        if not good:
            log.error("%s: %s: %s", self.behaviour.name, step.transition, problem)

    # -- watches -----------------------------------------------------------------------------------

    async def _swap_watches(self, ring: Ring, nursery: trio.Nursery) -> None:
        """Have the watches of the present state open, and no others."""
        wanted = self.behaviour.watches(self.state)
        for content in [content for content in self._open if content not in wanted]:
            self._open.pop(content).cancel()
        for content in wanted:
            if content not in self._open:
                self._open[content] = await nursery.start(self._follow, ring, content)

    async def _follow(
        self, ring: Ring, content: Content, task_status: trio.TaskStatus[trio.CancelScope]
    ) -> None:
        """Queue what a watch gives, until its scope is cancelled.

        A ring that does not answer is asked again: the replay makes up for what was missed.
        """
        opened = False
        with trio.CancelScope() as scope:
            while True:
                try:
                    async with ring.watch(content.profile, replay=True) as items:
                        if not opened:
                            task_status.started(scope)
                            opened = True
                        async for item in items:
                            await self._send.send(Event(content, item))
                except (NoAnswer, ConnectionLost, Busy) as error:
                    log.warning(
                        "%s: no watch for %s: %s; trying again",
                        self.behaviour.name,
                        content,
                        error,
                    )
                await trio.sleep(REOPEN_SECONDS)
