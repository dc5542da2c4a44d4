"""Where a joining peer goes: it splits the busiest of some sampled peers at its median."""

from __future__ import annotations

from random import Random
from typing import Any

from meteor.config import Config
from meteor.errors import MeteorError, NoRing
from meteor.node.errands import read_peer
from meteor.node.links import Links
from meteor.ring.arcs import RING_SIZE
from meteor.transport.frames import Value

SPREAD = 0.05
"""A peer goes this far from the middle at most, at random, so that two peers that join at the same
moment and look at the same arc don't want the same place."""

NUDGE = 1024
"""For the same reason it goes up to so many identifiers on: many data may share one."""


async def choose_place(links: Links, config: Config, through: str, random: Random) -> int:
    """Return a place in the arc of the peer, among those sampled, that has the most to do."""
    loads: dict[str, dict[str, Any]] = {}
    share = random.uniform(0.5 - SPREAD, 0.5 + SPREAD)
    for _ in range(config.samples):
        address = await _some_peer(links, config, through, random)
        if address in loads:
            continue
        try:
            loads[address] = await _load(links, config, address, share)
        except MeteorError:
            continue  # gone meanwhile; the other samples will do
    if not loads:
        raise NoRing(f"no peer of the ring at {through} could say how busy it is")
    busiest = max(loads.values(), key=lambda load: (load["data"], load["share"]))
    return place_in(busiest, share, random)


def place_in(load: dict[str, Any], share: float, random: Random) -> int:
    """Return a place in the arc of the peer with this load, about where its data have a share."""
    high: int = load["id"]
    low: int = high if load["low"] is None else load["low"]
    width = (high - low) % RING_SIZE or RING_SIZE
    middle = load["middle"]
    offset = int(width * share) if middle is None else (middle - low) % RING_SIZE
    offset += random.randrange(NUDGE)
    return (low + min(max(offset, 1), width - 1)) % RING_SIZE


async def _some_peer(links: Links, config: Config, through: str, random: Random) -> str:
    """Walk to a random place, and from there on to one of the next peers.

    The busiest peers often have the smallest arcs, which a random place alone would rarely hit.
    """
    address, identifier = through, random.randrange(RING_SIZE)
    for _ in range(64):
        step = await links.request(address, "step", identifier, config.request_seconds)
        match step:
            case ["found", [here, _, list() as successors]]:
                return read_peer(random.choice([here, *successors])).address
            case ["forward", [[int(), str() as nearer], *_]]:
                address = nearer
            case _:
                break
    raise NoRing(f"the ring at {through} could not say who is at {identifier}")


async def _load(links: Links, config: Config, address: str, share: float) -> dict[str, Any]:
    answer: Value = await links.request(address, "load", share, config.request_seconds)
    match answer:
        case [
            int() as id_,
            int() | None as low,
            int() as data,
            int() | float() as width,
            int() | None as middle,
        ]:
            return {"id": id_, "low": low, "data": data, "share": width, "middle": middle}
        case _:
            raise NoRing(f"{address} could not say how busy it is")
