"""Zave's predicates over a whole ring: what must hold at every moment, and what holds at rest.

Pure functions over snapshots of the *live* members, by id. The extended successor list of m is
[m] + m.successors; an adjacent pair of it *skips* the members that lie between the two. A principal
is a member that no pair skips.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, dropwhile, pairwise

from meteor.ring.arcs import RING_SIZE
from meteor.ring.questions import Neighbours


def violations(members: Mapping[int, Neighbours], r: int, principals_min: int = 0) -> list[str]:
    """Say in words what is broken beyond repair; an empty list is a ring that will heal.

    These hold always, also while peers join, leave and die, as long as no more die at once than
    the lists can bear. `principals_min` is r + 1 once a ring of r + 1 peers was at rest: Zave's
    base. A ring that still grows from one peer has fewer principals for a while.
    """
    found = [line for member in members.values() for line in list_problems(member, members, r)]
    if found or not members:
        return found
    found = _cycle_problems({i: first_live(member, members) for i, member in members.items()})
    count = len(principals(members, map(extended, members.values())))
    if count < principals_min:
        found.append(f"only {count} principals, where {principals_min} are needed")
    return found


def ideal(members: Mapping[int, Neighbours], r: int) -> list[str]:
    """Say in words what is not as it should be at rest; stabilising brings it about."""
    found: list[str] = []
    order = sorted(members)
    others = len(order) - 1
    for place, i in enumerate(order):
        after = [order[(place + n) % len(order)] for n in range(1, min(r, others) + 1)]
        before = order[place - 1] if others else None
        member = members[i]
        successors = [peer.id for peer in member.successors]
        predecessor = None if member.predecessor is None else member.predecessor.id
        if successors != after:
            found.append(f"{i} has successors {successors}, should be {after}")
        if predecessor != before:
            found.append(f"{i} has predecessor {predecessor}, should be {before}")
    return found


def extended(member: Neighbours) -> list[int]:
    """Return the extended successor list."""
    return [member.peer.id, *(peer.id for peer in member.successors)]


def principals(ids: Iterable[int], lists: Iterable[Sequence[int]]) -> set[int]:
    """Return the members that no adjacent pair of these extended lists skips."""
    order = sorted(ids)
    # How many pairs begin to skip, less how many cease, at each place: the sum so far is how many
    # pairs skip the member there. So a ring of thousands is looked at in one walk.
    change = [0] * (len(order) + 1)
    for a, b in {pair for ids_listed in lists for pair in pairwise(ids_listed)}:
        first, end = bisect_right(order, a), bisect_left(order, b)
        change[first] += 1
        change[end] -= 1
        if b <= a:  # the pair goes over the ring's origin
            change[0] += 1
    return {i for i, skipped in zip(order, accumulate(change), strict=False) if not skipped}


def first_live(member: Neighbours, members: Mapping[int, Neighbours]) -> int:
    """Return the first successor that lives; the peer itself in a ring of one."""
    return next((peer.id for peer in member.successors if peer.id in members), member.peer.id)


def list_problems(member: Neighbours, members: Collection[int], r: int) -> list[str]:
    """Say what is broken in one member's own list."""
    me, *successors = extended(member)
    found: list[str] = []
    if successors and not any(i in members for i in successors):
        found.append(f"{me} has no live successor: {successors}")
    if len(successors) > r:
        found.append(f"{me} has {len(successors)} successors, more than {r}")
    if len({me, *successors}) != len(successors) + 1:
        found.append(f"{me} has duplicates in its list: {successors}")
    offsets = [(i - me) % RING_SIZE for i in successors]
    if offsets != sorted(offsets):
        found.append(f"{me} has disorder in its list: {successors}")
    return found


def _cycle_problems(following: Mapping[int, int]) -> list[str]:
    """Check that first live successors make one cycle, in order, that every member leads into."""
    cycles: set[frozenset[int]] = set()
    home: dict[int, frozenset[int]] = {}
    for start in following:
        path: dict[int, None] = {}  # a list in order, with quick membership
        i = start
        while i not in home and i not in path:
            path[i] = None
            i = following[i]
        cycle = home[i] if i in home else frozenset(dropwhile(i.__ne__, path))
        cycles.add(cycle)
        home.update(dict.fromkeys(path, cycle))
    if len(cycles) > 1:
        return [f"there are {len(cycles)} rings: {sorted(map(sorted, cycles))}"]
    order = sorted(next(iter(cycles)))
    wrong = [a for a, b in pairwise([*order, order[0]]) if following[a] != b]
    return [f"the ring is out of order after {a}, which leads to {following[a]}" for a in wrong]
