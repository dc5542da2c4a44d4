"""What goes into requests: checked actions and modifiers, and batches of a good size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from arms.errors import ArmsError
from arms.message import Action, Modifiers, modifiers
from meteor.client.results import Receipt
from meteor.errors import InputError
from meteor.limits import PAGE_BYTES

T = TypeVar("T")

POSTS_PER_REQUEST = 512
"""Messages that `post_many` sends in one request: large enough to share a commit, small enough for
the next request to be on its way while this one is worked on."""


@contextmanager
def input_errors() -> Iterator[None]:
    """Raise what is wrong with a profile or message as `InputError`, here as from a peer."""
    try:
        yield
    except ArmsError as error:
        raise InputError(str(error)) from error


def checked_modifiers(**wanted: Any) -> Modifiers:
    """Return checked modifiers."""
    with input_errors():
        return modifiers(**wanted)


def failed(id_: str, error: Exception) -> Receipt:
    """Return the receipt of a post that failed."""
    return Receipt(id_, complete=False, peers=0, copies=0, matches=0, error=str(error))


def checked_action(action: Action | str) -> Action:
    """Return the action of that name."""
    try:
        return Action(action)
    except ValueError:
        raise InputError(f"no action {action!r}; there are {', '.join(Action)}") from None


def batches(entries: Iterable[T], size_of: Callable[[T], int]) -> list[list[T]]:
    """Cut entries into requests of a good size."""
    parts: list[list[T]] = []
    room = 0
    for entry in entries:
        if not parts or room <= 0 or len(parts[-1]) == POSTS_PER_REQUEST:
            parts.append([])
            room = PAGE_BYTES
        parts[-1].append(entry)
        room -= size_of(entry)
    return parts
