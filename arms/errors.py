"""What can go wrong in associative rendezvous, as one small tree.

ArmsError
├── ProfileError    a profile that can't be read, or can't be used for what it was given for
├── MessageError    a message that can't be sent: its action, TTL, data or another field is wrong
└── StoreError      the profile store can't be opened, read or written
"""

from __future__ import annotations

_SHOWN_CHARACTERS = 76  # the part of a profile that an error shows: one line of a terminal


class ArmsError(Exception):
    """Anything that associative rendezvous refuses."""


class ProfileError(ArmsError):
    """A profile that can't be read or used; points at the column when there is one."""

    def __init__(self, problem: str, text: str = "", column: int | None = None) -> None:
        super().__init__(problem, text, column)
        self.problem = problem
        self.text = text
        self.column = column  # of the offending character, from 1

    def __str__(self) -> str:
        if self.column is None:
            return self.problem
        start = max(0, self.column - 1 - _SHOWN_CHARACTERS // 2)
        shown = self.text[start : start + _SHOWN_CHARACTERS]
        shown = "".join(char if char.isprintable() else " " for char in shown)
        caret = " " * (self.column - 1 - start) + "^"
        return f"column {self.column}: {self.problem}\n  {shown}\n  {caret}"


class MessageError(ArmsError):
    """A message that can't be sent as it is."""


class StoreError(ArmsError):
    """The profile store can't be opened, read or written."""
