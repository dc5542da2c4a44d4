"""Local behaviours: what one device does on its own, as a table (section 3 of the paper, Figure 5).

A behaviour is a state machine. Its transitions are triggered by *content* (the ring has data that a
profile selects) or by *context* (something happened at the device), and may have the device do
something and post messages; these may trigger transitions of other devices, and so flows cascade.

Nothing here talks to a ring: `Behaviour.step` says what follows from an event, `meteor.elements`
carries it out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from arms.errors import ArmsError
from arms.profile import Profile
from meteor.client.results import Post
from meteor.errors import ElementError

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
"""What elements, states and context events are called: something that a picture can show."""


@dataclass(frozen=True, slots=True)
class Content:
    """A content event: the ring has data that a profile selects. It carries their `Item`."""

    profile: str

    def __str__(self) -> str:
        return self.profile


@dataclass(frozen=True, slots=True)
class Context:
    """A context event: something happened at the device. It carries the value that came with it."""

    name: str

    def __str__(self) -> str:
        return self.name


Trigger = Content | Context


@dataclass(frozen=True, slots=True)
class Event:
    """An event, and what it carries: the item of content, the value of context."""

    trigger: Trigger
    carried: Any = None


@dataclass(frozen=True, slots=True)
class Transition:
    """A row of the table. Its functions are given what the event carries."""

    source: str
    on: Trigger
    target: str
    when: Callable[[Any], bool] | None = None
    """A condition; without one, the transition always takes place."""
    action: Callable[[Any], Awaitable[None] | None] | None = None
    """What the device does, as a plain or an async function. It must not block the loop."""
    withdraws: tuple[str, ...] = ()
    """Data to delete before posting, as interest profiles: what the new state makes untrue. Whoever
    comes later is then told only what still holds."""
    posts: tuple[Post | Callable[[Any], Post], ...] = ()
    """Messages to post, or functions that make them."""

    def __str__(self) -> str:
        return f"{self.source} -> {self.target} on {' / '.join(self.label())}"

    def label(self) -> list[str]:
        """Return in words: what triggers the transition [when]; then each thing that it does."""
        effects = [_words(self.action)] if self.action else []
        effects += [f"withdraw({profile})" for profile in self.withdraws]
        effects += [
            f"post({post.profile})" if isinstance(post, Post) else f"post {_words(post)}"
            for post in self.posts
        ]
        condition = f" [{_words(self.when)}]" if self.when else ""
        return [f"{self.on}{condition}", *effects]


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from an event, to be carried out in this order.

    1. The action. If it fails nothing else happens: the element stays in its state.
    2. The new state is taken.
    3. The transition's data are withdrawn, then its messages posted.
    """

    transition: Transition
    carried: Any
    posts: tuple[Post, ...]

    @property
    def state(self) -> str:
        """The new state."""
        return self.transition.target


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The local behaviour of a device: its states and the table of transitions between them.

    Of the transitions that an event could trigger the first in the table takes place. A table that
    is wrong is refused with an `ElementError` that says all that is wrong.
    """

    name: str
    states: tuple[str, ...]
    """All states; the first is the one to begin in."""
    transitions: tuple[Transition, ...]

    def __post_init__(self) -> None:
        if problems := list(self._problems()):
            raise ElementError(f"the element {self.name!r} can't work", problems)

    @property
    def initial(self) -> str:
        """The state to begin in."""
        return self.states[0]

    def step(self, state: str, event: Event) -> Step | None:
        """Return what follows from an event in a state; None when nothing does."""
        for transition in self.transitions:
            if (
                transition.source == state
                and transition.on == event.trigger
                and (transition.when is None or transition.when(event.carried))
            ):
                posts = tuple(
                    post if isinstance(post, Post) else post(event.carried)
                    for post in transition.posts
                )
                return Step(transition, event.carried, posts)
        return None

    def watches(self, state: str) -> tuple[Content, ...]:
        """Return what an element watches for in a state."""
        triggers = (t.on for t in self.transitions if t.source == state)
        return tuple(dict.fromkeys(on for on in triggers if isinstance(on, Content)))

    def context(self) -> frozenset[str]:
        """Return the names of all context events."""
        return frozenset(t.on.name for t in self.transitions if isinstance(t.on, Context))

    def to_mermaid(self) -> str:
        """Return the table as a Mermaid state diagram."""
        rows = [
            f"    {t.source} --> {t.target} : {'<br/>'.join(map(_mermaid_text, t.label()))}"
            for t in self.transitions
        ]
        return "\n".join(["stateDiagram-v2", f"    [*] --> {self.initial}", *rows]) + "\n"

    def _problems(self) -> Iterator[str]:
        """Say all that is wrong with the table, one line a problem."""
        contexts = sorted(self.context())
        for kind, names in (
            ("an element", (self.name,)),
            ("a state", self.states),
            ("a context event", contexts),
        ):
            for name in names:
                if not NAME.fullmatch(name):
                    yield (
                        f"{name!r} can't be the name of {kind}: "
                        "use letters, digits and '_', a letter first"
                    )
        for name, count in Counter(self.states).items():
            if count > 1:
                yield f"the state {name!r} is listed {count} times"
        if not self.states:
            yield "it has no states: list at least the one to begin in"
        elif not self.transitions:
            yield "it has no transitions, so it would never do anything"
        else:
            for name in sorted(set(self.states) - self._reachable()):
                yield f"no transitions lead from {self.initial!r} to the state {name!r}"
        for index, transition in enumerate(self.transitions):
            for problem in (*self._row_problems(index, transition), *_text_problems(transition)):
                yield f"{transition}: {problem}"

    def _reachable(self) -> set[str]:
        reached, left = {self.initial}, [self.initial]
        while left:
            state = left.pop()
            ahead = {t.target for t in self.transitions if t.source == state} - reached
            reached |= ahead
            left += ahead
        return reached

    def _row_problems(self, index: int, transition: Transition) -> Iterator[str]:
        for name in dict.fromkeys((transition.source, transition.target)):
            if name not in self.states:
                yield f"there is no state {name!r}; there are {', '.join(self.states) or 'none'}"
        for earlier in self.transitions[:index]:
            same = (earlier.source, earlier.on) == (transition.source, transition.on)
            if same and earlier.when in (None, transition.when):
                yield f"it never takes place, because the one to {earlier.target!r} comes first"
                break


def _text_problems(transition: Transition) -> Iterator[str]:
    """Say which profiles of a transition can't be read or used."""
    try:
        if isinstance(transition.on, Content):
            Profile.parse(transition.on.profile).alternatives()
        for withdrawn in transition.withdraws:
            Profile.parse(withdrawn).alternatives()
        for post in transition.posts:
            if isinstance(post, Post):
                Profile.parse(post.profile)
    except ArmsError as error:
        yield str(error)


def _words(function: Callable[..., object]) -> str:
    """Return the name of a function as words: `too_warm` is "too warm"."""
    name: str = getattr(function, "__name__", type(function).__name__)
    return name.strip("_<>").replace("_", " ")


def _mermaid_text(text: str) -> str:
    """Return a text with the characters that mean something to Mermaid written as its codes."""
    return re.sub(r"[#:;<>\n]", lambda found: f"#{ord(found[0])};", text)
