"""What can go wrong, as one tree.

    MeteorError
    ├── ConfigError        the configuration is wrong: all that is wrong, one problem a line
    ├── AddressError       an address is not host:port
    ├── InputError         a caller asked for what can't be: the words say what would be right
    ├── NoRing             no peer answered at the addresses given
    ├── ConnectionLost     the other side went away; what was in flight may or may not have happened
    ├── NoAnswer           the other side did not answer in time
    ├── Refused            the other side won't talk to us: another protocol, space or version
    ├── RemoteError        the other side answered with an error of its own
    │   └── Busy           it has too much to do; try again later
    ├── ProtocolError      the other side sent bytes that are not Meteor's protocol
    ├── ElementError       an element's table is wrong (all that is, one problem a line), or it was
    │                      given an event that it can't take
    └── FolderInUse        another peer works on this data folder

What arrives wrongly from a peer or client is `ProtocolError` or `InputError`; anything else that
escapes is a bug of ours. `squid.errors` and `arms.errors` have the trees of the lower layers.
"""

from __future__ import annotations

from collections.abc import Sequence


class MeteorError(Exception):
    """The root of the tree."""


class ConfigError(MeteorError):
    """The configuration is wrong."""


class AddressError(MeteorError):
    """An address is not host:port."""


class InputError(MeteorError):
    """A caller asked for something that can't be."""


class NoRing(MeteorError):  # noqa: N818 - it reads as what happened
    """No peer answered at the addresses given."""


class ConnectionLost(MeteorError):  # noqa: N818
    """The other side went away."""


class NoAnswer(MeteorError):  # noqa: N818
    """The other side did not answer in time."""


class Refused(MeteorError):  # noqa: N818
    """The other side won't talk to us."""


class RemoteError(MeteorError):
    """The other side answered with an error of its own."""


class Busy(RemoteError):  # noqa: N818
    """The other side has too much to do right now."""


class ProtocolError(MeteorError):
    """The other side sent bytes that are not Meteor's protocol."""


class ElementError(MeteorError):
    """An element's table is wrong, or it was given an event that it can't take."""

    def __init__(self, words: str, problems: Sequence[str] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__("\n  ".join((f"{words}:" if problems else words, *problems)))


class FolderInUse(MeteorError):  # noqa: N818
    """Another peer works on this data folder."""
