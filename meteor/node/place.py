"""A joining peer samples some peers of the ring for the busiest, and chooses its place there."""

from __future__ import annotations

from random import Random

from meteor.config import Config
from meteor.errors import MeteorError, NoRing
from meteor.node.errands import read_peer
from meteor.node.links import Links
from meteor.ring.arcs import RING_SIZE
from meteor.ring.placement import Load, busiest, place_in, split_share
from meteor.transport.frames import Value


async def choose_place(links: Links, config: Config, through: str, random: Random) -> int:
    """Return a place in the arc of the peer, among those sampled, that has the most to do."""
    loads: dict[str, Load] = {}
    share = split_share(random)
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
    return place_in(busiest(loads.values()), share, random)


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


async def _load(links: Links, config: Config, address: str, share: float) -> Load:
    answer: Value = await links.request(address, "load", share, config.request_seconds)
    match answer:
        case [
            int() as id_,
            int() | None as low,
            int() as data,
            int() | float() as width,
            int() | None as middle,
        ]:
            return Load(id_, low, data, width, middle)
        case _:
            raise NoRing(f"{address} could not say how busy it is")
