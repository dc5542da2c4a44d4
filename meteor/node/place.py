"""A joining peer samples some peers of the ring for the busiest, and chooses its place there."""

from __future__ import annotations

from random import Random

from meteor.config import Config
from meteor.errors import MeteorError, NoRing
from meteor.limits import LOOKUP_ASKS_MAX
from meteor.node.errands import read_peer
from meteor.node.leaps import two_peers
from meteor.node.links import Links
from meteor.ring.arcs import RING_SIZE
from meteor.ring.placement import Load, busiest, place_in, split_share
from meteor.transport.frames import Value


async def choose_place(links: Links, config: Config, through: str, random: Random) -> int:
    """Return a place in the arc of the peer, among those sampled, that has the most to do."""
    loads: dict[str, Load] = {}
    share = split_share(random)
    for _ in range(config.samples):
        try:
            for address in await _some_peers(links, config, through, random):
                if address not in loads:
                    loads[address] = await _load(links, config, address, share)
        except MeteorError:
            continue  # gone meanwhile; the other samples will do
    if not loads:
        raise NoRing(f"no peer of the ring at {through} could say how busy it is")
    return place_in(busiest(loads.values()), share, random)


async def _some_peers(links: Links, config: Config, through: str, random: Random) -> list[str]:
    """Walk to a random place, and on by leaps to any peer; look at its successor too.

    Two peers for each sample: with one, the busiest of a large ring ends up with 3 times the mean.
    """
    address, identifier = through, random.randrange(RING_SIZE)
    for _ in range(LOOKUP_ASKS_MAX):
        match await links.request(address, "step", identifier, config.request_seconds):
            case ["found", [here, *_]]:
                return await two_peers(links, config, read_peer(here).address, random)
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
