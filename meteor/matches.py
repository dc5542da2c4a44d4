"""Matches on the wire, which peers and clients both read."""

from __future__ import annotations

from arms.message import Message
from meteor.errors import InputError


def read_match(wire: object) -> tuple[int, Message]:
    """Read one match: where it was found, and the message."""
    match wire:
        case [int() as identifier, message]:
            return identifier, Message.from_wire(message)
        case _:
            raise InputError("what came is not a match")
