"""Where a joining peer goes: it splits the busiest of some sampled peers at its median."""

from __future__ import annotations

from random import Random
from typing import Any

from meteor.config import Config
from meteor.errors import MeteorError, NoRing
from meteor.node.links import Links
from meteor.ring.arcs import RING_SIZE
from meteor.transport.frames import Value

JITTER = 1024
"""A place is moved by up to this fraction of the arc, so that two peers that join at the same
moment, and look at the same median, don't want the same place."""


async def choose_place(links: Links, config: Config, through: str, random: Random) -> int:
    """Return a place in the arc of the peer, among those sampled, that has the most to do."""
    loads: dict[str, dict[str, Any]] = {}
    for _ in range(config.samples):
        address = await _owner(links, config, through, random.randrange(RING_SIZE))
        if address in loads:
            continue
        try:
            loads[address] = await _load(links, config, address)
        except MeteorError:
            continue  # gone meanwhile; the other samples will do
    if not loads:
        raise NoRing(f"no peer of the ring at {through} could say how busy it is")
    busiest = max(loads.values(), key=lambda load: (load["data"], load["share"]))
    return _place(busiest, random)


def _place(load: dict[str, Any], random: Random) -> int:
    high: int = load["id"]
    low: int = high if load["low"] is None else load["low"]
    width = (high - low) % RING_SIZE or RING_SIZE
    median = load["median"]
    offset = width // 2 if median is None else (median - low) % RING_SIZE
    offset += random.randrange(-(width // JITTER), width // JITTER + 1)
    return (low + min(max(offset, 1), width - 1)) % RING_SIZE


async def _owner(links: Links, config: Config, through: str, identifier: int) -> str:
    """Walk to the peer that owns an identifier."""
    address = through
    for _ in range(64):
        step = await links.request(address, "step", identifier, config.request_seconds)
        match step:
            case ["found", [[int(), str() as here], _, list() as successors]]:
                return str(successors[0][1]) if successors else here
            case ["forward", [[int(), str() as nearer], *_]]:
                address = nearer
            case _:
                break
    raise NoRing(f"the ring at {through} could not say who owns {identifier}")


async def _load(links: Links, config: Config, address: str) -> dict[str, Any]:
    answer: Value = await links.request(address, "load", None, config.request_seconds)
    match answer:
        case [
            int() as id_,
            int() | None as low,
            int() as data,
            int() | float() as share,
            int() | None as median,
        ]:
            return {"id": id_, "low": low, "data": data, "share": share, "median": median}
        case _:
            raise NoRing(f"{address} could not say how busy it is")
