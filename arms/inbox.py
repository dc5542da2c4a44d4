"""Inboxes: places on the ring where notifications wait for a subscriber.

An inbox is named by a reserved attribute: `meteor.inbox=NAME`. Its place comes from a hash of the
name, a cell of every axis, not from the codecs. So it is a point like that of any data: owned,
copied, handed over and expired in the same way.
"""

from __future__ import annotations

from hashlib import blake2b

from arms.errors import MessageError
from arms.expression import Element
from arms.limits import INBOX_NAME_MAX
from arms.profile import Profile
from squid import Keyword, Region, Space

INBOX = "meteor.inbox"
"""The reserved attribute."""


def check_name(name: str) -> str:
    """Return the name of an inbox when it is one."""
    if not 1 <= len(name) <= INBOX_NAME_MAX:
        raise MessageError(
            f"an inbox's name has 1 to {INBOX_NAME_MAX} characters, and this has {len(name)}"
        )
    return name


def inbox_profile(name: str) -> Profile:
    """Return the profile of what lies in an inbox; it also selects it."""
    return Profile.parse(str(Element(INBOX, Keyword(check_name(name)))))


def inbox_of(profile: Profile) -> str | None:
    """Return the name of the inbox, if a profile is just that."""
    if INBOX not in profile.attributes():
        return None
    match profile.by_attribute():
        case ({"meteor.inbox": (Keyword(name),), **others},) if not others:
            return name
        case _:
            return None


def inbox_region(space: Space, name: str) -> Region:
    """Return the place of an inbox."""
    box = []
    for axis in range(len(space.dimensions)):
        hashed = blake2b(name.encode(), digest_size=8, key=b"%d" % axis, person=b"meteor inbox")
        cell = int.from_bytes(hashed.digest()) % (1 << space.bits)
        box.append((cell, cell))
    # Nobody but the inbox's own subscriber asks there, so in memory it need not be told apart.
    return Region(space.curve, [tuple(box)], space.shift, lambda: [space.fine_box({}, None)])


def derived_id(*parts: str) -> str:
    """Return an id that is the same whenever it is made of the same parts."""
    joined = b"".join(b"%d:%s" % (len(part.encode()), part.encode()) for part in parts)
    return blake2b(joined, digest_size=16).hexdigest()
