"""Meteor: content-based peer-to-peer rendezvous.

    async with meteor.connect("127.0.0.1:7400") as ring:
        await ring.store("type=temperature, degree=91, unit=Fahrenheit", b"...", ttl=600)
        async with ring.watch("type=temperature, degree=80..120, unit=Fa*") as matches:
            async for match in matches:
                print(match.profile, match.data)

`meteor.blocking.connect` is the same for scripts and notebooks, without async.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from meteor.version import VERSION as __version__  # noqa: N811 - the name that tools look for

if TYPE_CHECKING:
    import meteor.blocking as blocking
    from meteor.client import Aggregated, Item, Post, Receipt, Ring, RingReport, connect
    from meteor.elements import Element
    from meteor.errors import MeteorError

__all__ = [
    "Aggregated",
    "Element",
    "Item",
    "MeteorError",
    "Post",
    "Receipt",
    "Ring",
    "RingReport",
    "__version__",
    "blocking",
    "connect",
]

_HOME = {
    "Element": "meteor.elements",
    "MeteorError": "meteor.errors",
    "blocking": "meteor.blocking",
} | dict.fromkeys(
    ("Aggregated", "Item", "Post", "Receipt", "Ring", "RingReport", "connect"), "meteor.client"
)


def __getattr__(name: str) -> Any:
    """Import what is used when it is used: `import meteor` stays quick."""
    if name not in _HOME:
        raise AttributeError(f"module 'meteor' has no attribute {name!r}")
    module = import_module(_HOME[name])
    return module if name == "blocking" else getattr(module, name)
