"""The short way of plain posts: whole batches, straight to the owners of their places.

Data at one point need no tree of peers, and nearly all posts are such. A batch is cut by owner, as
far as owners are known from earlier answers; each part travels in one request and is carried out
in one go. Whatever does not fit (an owner that is not known or does not answer, an arc that has
moved or is in doubt, data that are no point) goes the general way, as a message of its own. The
ids are the same both ways, so that nothing is doubled.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

import trio

from arms.batch import Batch, check_columns
from arms.errors import ArmsError
from arms.limits import TEXT_FIELD_MAX
from arms.message import Action, Header, Message, check_ttl
from arms.notes import Due
from arms.profile import Profile
from arms.sites import Site, Sites
from meteor.errors import InputError, MeteorError, ProtocolError, Refused
from meteor.limits import POSTS_PER_REQUEST_MAX
from meteor.node.gate import Gate
from meteor.node.links import Links
from meteor.node.overlay import Overlay
from meteor.node.point import Placed, RendezvousPoint
from meteor.node.router import OwnerCache
from meteor.ring.arcs import WHOLE, contains
from meteor.ring.questions import Peer
from meteor.transport.channel import Answer
from meteor.transport.frames import Value
from squid.errors import SquidError

log = logging.getLogger("meteor.node")

OWNER_SECONDS = 2.0
"""How long an owner may take for its part of a batch, at most; then the general way is tried."""

GeneralWay = Callable[[list[Message], float, Collection[str]], Awaitable[list[Value]]]
"""Posts messages one by one, some of them perhaps again; gives the outcome of each."""


class Posts:
    """Takes batches of plain posts from clients and from other peers."""

    def __init__(
        self,
        sites: Sites,
        overlay: Overlay,
        links: Links,
        point: RendezvousPoint,
        gate: Gate,
        owners: OwnerCache,
        clock: Callable[[], int],
    ) -> None:
        self._sites, self._overlay, self._links = sites, overlay, links
        self._point, self._gate, self._owners = point, gate, owners
        self._clock = clock

    def read(self, client: str, body: Value, *, repeated: bool = False) -> Posted:
        """Read what a client posts; what is wrong with single posts is among the outcomes.

        What is `repeated` goes the general way, where it is seen to that there are no two of it.
        """
        match body:
            case [list() as ids, list() as profiles, list() as data, ttls, str() as credential]:
                check_columns(ids, profiles, data)
            case _:
                raise InputError("what came are no posts")
        if len(credential) > TEXT_FIELD_MAX:
            raise InputError(f"a credential has at most {TEXT_FIELD_MAX} characters")
        if len(ids) > POSTS_PER_REQUEST_MAX:
            raise InputError(f"{len(ids)} messages in a request; at most {POSTS_PER_REQUEST_MAX}")
        ends = self._ends(ttls, len(ids))
        sites = self._sites.kept(profiles)
        batch = Batch(client, self._overlay.me.address, credential, ids, [], data, ends)
        posted = Posted(batch, len(ids))
        if None in sites:
            self._find(posted, profiles, sites)
        batch.sites = sites  # type: ignore[assignment]  # those that have none are no part of it
        if None in sites:
            posted.rows = [row for row, site in enumerate(sites) if site is not None]
            posted.batch = batch.part(posted.rows)
        if repeated:
            posted.repeated.update(ids)
            posted.left.update(range(len(posted.batch)))
        return posted

    def _find(self, posted: Posted, profiles: list[str], sites: list[Site | None]) -> None:
        """Find the sites that are not at hand; what has none goes the general way, or nowhere."""
        batch = posted.batch
        for row in [row for row, site in enumerate(sites) if site is None]:
            try:
                sites[row] = self._sites.of(profiles[row])
                if sites[row] is None:
                    profile = Profile.parse(profiles[row])
                    sender = (batch.sender, batch.reply_to, batch.credential)
                    header = Header(profile, batch.ids[row], batch.expires_ms[row], *sender)
                    posted.others[row] = Message(header, Action.STORE, batch.data[row])
            except (ArmsError, SquidError) as error:
                posted.outcomes[row] = ["error", "input", str(error)]

    def _ends(self, ttls: Value, count: int) -> list[int]:
        """Return when each post expires; one TTL may be for all."""
        now_ms = self._clock()
        wanted = ttls if isinstance(ttls, list) else [ttls]
        if len(wanted) not in (1, count) or {*map(type, wanted)} - {int, float}:
            raise InputError("a post has one TTL, a number of seconds")
        ends = [now_ms + round(check_ttl(ttl) * 1000) for ttl in wanted]
        return ends if len(ends) == count else ends * count

    def are_prompt(self, posted: Posted) -> bool:
        """Say whether all of it is carried out without a pause: passed on to who watches."""
        batch = posted.batch
        return (
            not (posted.others or posted.left)
            and self._point.passes_on(batch)
            and self._are_mine(batch)
        )

    def _are_mine(self, batch: Batch) -> bool:
        """Say whether all of a batch lies in this peer's arc, and nothing holds that up."""
        spans = self._overlay.spans
        return (
            self._gate.is_open
            and not self._point.frozen
            and not self._overlay.doubts(spans)
            and (spans == WHOLE or all(contains(spans, s.identifier) for s in batch.sites))
        )

    def place_now(self, posted: Posted) -> None:
        """Carry out posts that are prompt."""
        posted.placed = True
        placed = self._point.pass_on(posted.batch, self._overlay.me.address)
        placed.rows = range(len(posted.batch))
        posted.take(placed)

    async def place(self, posted: Posted, deadline: float, general_way: GeneralWay) -> None:
        """Have all posts carried out; `posted` has what came of each."""
        batch = posted.batch
        shares = {} if posted.left else self._shares(batch)
        if shares.keys() == {self._overlay.me}:
            await self._at_home(batch, shares[self._overlay.me], posted)
        elif len(shares) == 1:
            ((owner, rows),) = shares.items()
            await self._at(owner, batch, rows, posted, deadline)
        elif shares:  # only these take tasks
            async with trio.open_nursery() as nursery:
                for owner, rows in shares.items():
                    if owner == self._overlay.me:
                        nursery.start_soon(self._at_home, batch, rows, posted)
                    else:
                        nursery.start_soon(self._at, owner, batch, rows, posted, deadline)
        left = {posted.rows[i]: batch.message(i) for i in sorted(posted.left)}
        others = posted.others | left
        if others:
            seconds = max(0.05, deadline - trio.current_time())
            outcomes = await general_way(list(others.values()), seconds, posted.repeated)
            posted.outcomes |= dict(zip(others, outcomes, strict=True))

    def _shares(self, batch: Batch) -> dict[Peer, Sequence[int]]:
        """Cut a batch by owner; what has none that is known is left for the general way."""
        if not len(batch):
            return {}
        me, spans = self._overlay.me, self._overlay.spans
        if spans == WHOLE:
            return {me: range(len(batch))}
        shares: dict[Peer, list[int]] = {}
        for row, site in enumerate(batch.sites):
            mine = contains(spans, site.identifier)
            owner = me if mine else self._owners.owner(site.identifier)
            shares.setdefault(owner or me, []).append(row)
        return dict(shares)

    async def _at_home(self, batch: Batch, rows: Sequence[int], posted: Posted) -> None:
        """Carry out what this peer is responsible for; the rest is left."""
        placed, left = await self._here(batch, rows)
        posted.take(placed)
        posted.left.update(left)

    async def _at(
        self, owner: Peer, batch: Batch, rows: Sequence[int], posted: Posted, deadline: float
    ) -> None:
        """Have another peer carry out its part."""
        seconds = max(0.05, min(OWNER_SECONDS, deadline - trio.current_time()))
        body = batch.part(rows).to_wire()
        try:
            wire = await self._links.request(owner.address, "batch", body, seconds)
            placed, left = read_placed(wire, rows)
        except MeteorError as error:
            log.debug("%s did not take its part of a batch: %s", owner.address, error)
            self._owners.forget(owner)
            posted.left.update(rows)
            if not isinstance(error, Refused):
                posted.repeated.update(batch.ids[i] for i in rows)
            return
        if left:
            self._owners.forget(owner)  # its arc is not what it was
        posted.take(placed)
        posted.left.update(left)

    def answer(self, body: Value) -> Answer:
        """Carry out a part of a batch for another peer."""
        batch = Batch.from_wire(self._sites, body)
        if not (self._point.passes_on(batch) and self._are_mine(batch)):
            return self._answer(batch)
        placed = self._point.pass_on(batch, self._overlay.me.address)
        placed.rows = range(len(batch))
        return placed_wire(placed, [])

    async def _answer(self, batch: Batch) -> Value:
        return placed_wire(*await self._here(batch, range(len(batch))))

    async def _here(self, batch: Batch, rows: Sequence[int]) -> tuple[Placed, list[int]]:
        """Carry out what of a batch lies in this peer's arc; returns what does not, too."""
        await self._gate.enter()
        try:
            spans = self._overlay.spans
            if self._point.frozen or self._overlay.doubts(spans):
                return Placed(), list(rows)
            if spans == WHOLE:
                mine, left = rows, []
            else:
                mine = [i for i in rows if contains(spans, batch.sites[i].identifier)]
                left = [i for i in rows if i not in set(mine)] if len(mine) < len(rows) else []
            part = batch if len(mine) == len(batch) else batch.part(mine)
            placed = await self._point.store(part, self._overlay.me.address) if mine else Placed()
            placed.rows = mine
            placed.notes = {mine[i]: dues for i, dues in placed.notes.items()}
            return placed, left
        finally:
            self._gate.leave()


class Posted:
    """What a client posted, and what came of it."""

    def __init__(self, batch: Batch, count: int) -> None:
        self.batch = batch
        self.placed = False
        """Whether it was carried out; what is due to inboxes may still be placed."""
        self.rows: Sequence[int] = range(count)
        """Where each message of the batch stood in the client's request."""
        self.others: dict[int, Message] = {}
        """Posts that are no points, by where they stood."""
        self.outcomes: dict[int, Value] = {}
        """What came of those that did not simply succeed, by where they stood."""
        self.notes: dict[int, list[Due]] = {}
        """What is due to inboxes, by place in the batch."""
        self.left: set[int] = set()
        """Those of the batch that must go the general way."""
        self.repeated: set[str] = set()
        """The ids of those that may have been carried out already."""
        self._copies, self._matches = [0] * count, [0] * count

    def take(self, placed: Placed) -> None:
        """Note what came of a part of the batch."""
        if placed.fault:
            self.fail(placed.rows, placed.fault)
            return
        if len(placed.rows) == len(self._copies):  # this part is all of it
            self._copies, self._matches = [placed.copies] * len(placed.rows), placed.matches
        else:
            for i, matches in zip(placed.rows, placed.matches, strict=True):
                row = self.rows[i]
                self._copies[row], self._matches[row] = placed.copies, matches
        self.notes.update(placed.notes)

    def fail(self, places: Iterable[int], fault: str) -> None:
        """Note that messages of the batch could not be carried out, and why."""
        self.outcomes.update({self.rows[i]: ["error", "remote", fault] for i in places})

    def to_wire(self) -> list[Any]:
        """Return what the client hears: copies and matches of each post, and the exceptions."""
        return [self._copies, self._matches, [[row, said] for row, said in self.outcomes.items()]]


def placed_wire(placed: Placed, left: list[int]) -> Value:
    """Return what came of a part of a batch, and what is left of it, as another peer hears it."""
    return [
        list(placed.rows),
        placed.copies,
        placed.matches,
        [[row, due.to_wire()] for row, dues in placed.notes.items() for due in dues],
        placed.fault,
        left,
    ]


def read_placed(wire: Value, rows: Sequence[int]) -> tuple[Placed, list[int]]:
    """Read what another peer says of its part of a batch, whose rows stand where `rows` says."""
    try:
        done, copies, matches, notes, fault, left = wire
        placed = Placed(
            [rows[i] for i in done], int(copies), list(map(int, matches)), {}, str(fault)
        )
        for row, due in notes:
            placed.notes.setdefault(rows[row], []).append(Due.from_wire(due))
        if len(done) + len(left) == len(rows) and (fault or len(matches) == len(done)):
            return placed, [rows[i] for i in left]
    except (IndexError, TypeError, ValueError) as error:
        raise ProtocolError(f"what came are not the results of a batch: {error}") from error
    raise ProtocolError("what came are not the results of a batch")
