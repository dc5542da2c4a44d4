"""A sample of data profiles to learn a space from: a file's, or a ring's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING

from arms.errors import ProfileError
from arms.message import Action, region_of_profile
from arms.profile import Profile
from meteor.bench.balance import over_equal_arcs
from meteor.cli.failures import Failure
from squid import Space, SquidError

if TYPE_CHECKING:
    from meteor.client import Ring


class Sample:
    """Keeps so many of the profiles that it sees, each with the same chance (a reservoir)."""

    def __init__(self, size: int, seed: int) -> None:
        self.profiles: list[Profile] = []
        self.seen = 0
        self._size, self._random = size, Random(seed)

    def add(self, profile: Profile) -> None:
        """See one more."""
        self.seen += 1
        if len(self.profiles) < self._size:
            self.profiles.append(profile)
        elif (place := self._random.randrange(self.seen)) < self._size:
            self.profiles[place] = profile

    def read_lines(self, lines: Iterable[str]) -> None:
        """See the profiles of a file, one a line, as text or as `meteor retrieve --json` has it."""
        for place, line in enumerate(lines, start=1):
            text = line.strip()
            if not text:
                continue
            try:
                if text.startswith("{"):
                    text = json.loads(text)["profile"]
                profile = Profile.parse(text)
                profile.as_data()
            except ProfileError as error:
                raise Failure(f"line {place}: {error}") from error
            except (ValueError, KeyError, RecursionError):
                raise Failure(
                    f'line {place}: a JSON object without a "profile"; print them with '
                    "`meteor retrieve --json`"
                ) from None
            self.add(profile)

    async def read_ring(self, ring: Ring, space: Space) -> None:
        """See all data of a ring that have a dimension of its space."""
        retrieval = ring.retrieve(" | ".join(dimension.name for dimension in space.dimensions))
        async for item in retrieval:
            self.add(Profile.parse(item.profile))
        if not retrieval.complete:
            raise Failure("a part of the ring did not answer: what was learnt would be lopsided")


def evenness(space: Space, profiles: Sequence[Profile]) -> float:
    """Return how many times the mean the fullest of 64 equal arcs of the ring has."""
    try:
        regions = (region_of_profile(space, profile, Action.STORE) for profile in profiles)
        return over_equal_arcs(at for region in regions if (at := region.lowest) is not None)
    except SquidError as error:
        raise Failure(f"a profile does not fit the space {space.name!r}: {error}") from error
