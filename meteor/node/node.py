"""A rendezvous peer: everything put together, started, and stopped."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import trio

from arms.errors import StoreError
from arms.limits import TEXT_FIELD_MAX
from arms.message import Kind
from arms.rendezvous import Rendezvous
from arms.sites import Sites
from arms.store import Store
from meteor.background import background_nursery
from meteor.config import Config
from meteor.errors import InputError, MeteorError, Refused
from meteor.limits import CONNECTIONS_MAX, HOPS_MAX, PROTOCOL, Bounds
from meteor.node import identity
from meteor.node.copying import Copier
from meteor.node.errands import Errand
from meteor.node.gate import Gate
from meteor.node.handover import Handover
from meteor.node.leaps import Leaps
from meteor.node.links import Links
from meteor.node.overlay import Overlay
from meteor.node.place import choose_place
from meteor.node.point import RendezvousPoint
from meteor.node.posts import Posts
from meteor.node.replicas import Replicas
from meteor.node.reunion import Reunion
from meteor.node.router import Router
from meteor.node.service import Service
from meteor.node.sessions import Session, Sessions
from meteor.node.voting import Voting
from meteor.node.writer import Pace, Writer
from meteor.ring.arcs import RING_SIZE, arc, size
from meteor.ring.questions import Peer, between
from meteor.transport.channel import Channel, Hello, accepted
from meteor.transport.frames import Value
from meteor.transport.network import Network, format_address, parse_address
from meteor.transport.tcp import TcpNetwork
from meteor.version import VERSION
from squid import Space

log = logging.getLogger("meteor.node")

SWEEP_SECONDS = 1.0
"""How often expired messages are removed; readers never see them, so there is no hurry."""

ARC_SECONDS_MAX = 60.0
"""How long a starting peer waits for its arc before it counts as started all the same."""

GOODBYE_SECONDS = 0.2
"""After leaving: time for the last answers to go out."""


def wall_clock_ms() -> int:
    """Return the time of day in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Node:
    """One peer. `run` serves until it is cancelled or the peer leaves."""

    def __init__(
        self,
        config: Config,
        space: Space,
        network: Network | None = None,
        clock: Callable[[], int] = wall_clock_ms,
        random: Random | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.config, self.space = config, space
        self._network: Network = network or TcpNetwork()
        self._clock, self._random = clock, random or SystemRandom()
        self._pace = pace
        self._started_ms = clock()
        self._left = trio.Event()
        self._connections = 0
        self._serving = False

    async def run(self, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Join (or begin) a ring and serve; reports the peer's address once it has its arc."""
        folder = Path(self.config.state)
        with identity.locked(folder):
            store = Store(folder / "profiles.db", self.space, self.config.sync)
            try:
                await self._run(folder, store, task_status)
            finally:
                store.close()

    async def _run(self, folder: Path, store: Store, task_status: trio.TaskStatus[str]) -> None:
        async with background_nursery() as nursery:
            bound = await nursery.start(self._network.listen, self.config.listen, self._connected)
            address = self._advertised(bound)
            self._links = Links(self._network, self._hello, self.config.request_seconds)
            await nursery.start(self._links.run)
            past = identity.load(folder)
            noted = (peer.address for peer in past.known)
            contacts = [a for a in dict.fromkeys((*self.config.join, *noted)) if a != address]
            through = await self._discover(contacts)
            place = await self._place(past.id, through)
            self._assemble(Peer(place, address), store)
            nursery.start_soon(self._writer.run)
            await nursery.start(self._sessions.run)
            self._past_low = past.low
            if past.low is not None:
                self.overlay.past = arc(past.low, place)
            await self._enter(through, past)
            self._serving = True
            self.overlay.recover = self._replicas.recover
            for task in (self.overlay, self._leaps, self._replicas, self._handover, self._voting):
                nursery.start_soon(task.run)
            nursery.start_soon(self._sweep)
            nursery.start_soon(self._remember, folder)
            reunion = Reunion(
                self.overlay,
                self.config,
                self._random,
                lambda: [peer.address for peer in identity.load(folder).known],
            )
            nursery.start_soon(reunion.run)
            await self._responsible()
            nursery.start_soon(self._bring_home, folder)
            task_status.started(address)
            await self._left.wait()
            await trio.sleep(GOODBYE_SECONDS)

    def _advertised(self, bound: str) -> str:
        """Return the address to be reached at: the configured one, with the opened port."""
        host, port = parse_address(self.config.advertise or bound)
        return format_address(host, port or parse_address(bound)[1])

    async def _place(self, remembered: int | None, through: str | None) -> int:
        """Keep the place of the last start; else the configured one, else the best to be had."""
        if remembered is not None and self.config.id in (-1, remembered):
            return remembered
        if self.config.id != -1:
            return self.config.id
        if through is None:
            return self._random.randrange(RING_SIZE)
        return await choose_place(self._links, self.config, through, self._random)

    def _assemble(self, me: Peer, store: Store) -> None:
        gate, clock = Gate(), self._clock
        self.me, self.store = me, store
        self._writer = Writer(store, clock, self._pace)
        self.overlay = Overlay(me, self.config, self._links, self._random)
        self._leaps = Leaps(self.overlay, self._links, self.config)
        self._sessions = Sessions(me.address, self._links)
        sites = Sites(self.space)
        copier = Copier(self.space, store, clock, sites)
        self._replicas = Replicas(
            store, copier, self._writer, self.overlay, self._links, self.config, clock
        )
        self._voting = Voting(
            store,
            self._writer,
            self._replicas,
            self.overlay,
            self._links,
            self.config,
            clock,
            self._random,
        )
        point = RendezvousPoint(
            Rendezvous(self.space, store),
            self._writer,
            self._replicas,
            self._voting,
            clock,
            self._sessions.notify,
            self._sessions.tell,
            self.report,
            self.overlay.forget,
        )
        self._point = point
        self._router = Router(self.space, self.overlay, self._links, point, gate)
        self._handover = Handover(
            self.space,
            store,
            copier,
            self._writer,
            self._replicas,
            self.overlay,
            self._links,
            gate,
            clock,
            lambda messages: self._service.deliver(messages),
        )
        self._posts = Posts(
            sites, self.overlay, self._links, point, gate, self._router.owners, clock
        )
        self._service = Service(
            self.space,
            self._router,
            self._posts,
            clock,
            self._random,
            me.address,
            self.config.post_seconds,
            self._sessions.catch_up,
        )

    # -- entering the ring -------------------------------------------------------------------------

    async def _discover(self, contacts: list[str]) -> str | None:
        """Return the first contact that is in a ring, within the time for it; None: nobody is.

        A contact that refuses us ends the start: it is there, but not for us.
        """
        with trio.move_on_after(self.config.discover_seconds):
            while contacts:
                for contact in contacts:
                    if await self._in_a_ring(contact):
                        return contact
                await trio.sleep(self.config.discover_seconds / 10)
        return None

    async def _in_a_ring(self, contact: str) -> bool:
        try:
            await self._links.request(contact, "neighbours", None, self.config.request_seconds)
        except Refused:
            raise
        except MeteorError as error:
            log.debug("%s: %s", contact, error)
            return False
        return True

    async def _enter(self, through: str | None, past: identity.Identity) -> None:
        for peer in past.lost:
            self.overlay.lost.add(peer, trio.current_time())
        if through is not None:
            await self.overlay.join(through)
        else:
            self.overlay.begin(past.low, past.known)

    async def _responsible(self) -> None:
        """Wait until this peer has its arc; it is a member before that, so not for ever."""
        with trio.move_on_after(ARC_SECONDS_MAX):
            while self.overlay.low is None:
                await self.overlay.changed.wait()

    async def _bring_home(self, folder: Path) -> None:
        if self._past_low is not None:
            await self._handover.bring_home(self._past_low)
            self._past_low = None
            self.overlay.past = ()
            self._note(folder)

    async def _remember(self, folder: Path) -> None:
        while True:
            changed = self.overlay.changed
            self._note(folder)
            await changed.wait()

    def _note(self, folder: Path) -> None:
        """Note who this peer is and whom it knows; when it is alone, the last ones stay noted.

        What it had in its last life is its own until it has been brought home.
        """
        overlay = self.overlay
        known = tuple(known.peer for known in overlay.known())
        low, past = overlay.low, self._past_low
        if low is None or (past is not None and between(past, low, self.me.id)):
            low = past
        try:
            known = known or identity.load(folder).known
            identity.save(folder, identity.Identity(self.me.id, low, known, overlay.lost.peers))
        except OSError as error:
            log.warning("can't note the peers known in %s: %s", folder, error.strerror)

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_SECONDS)
            try:
                while await self._point.sweep():
                    await trio.lowlevel.checkpoint()
            except (StoreError, MeteorError) as error:
                log.warning("expired messages are not removed: %s", error)

    async def leave(self) -> None:
        """Hand everything to the successor, tell the neighbours, and stop serving."""
        handed_over = await self._handover.leave()
        with trio.CancelScope(shield=True):  # whoever asked for it may be gone by now
            if handed_over:
                await self.overlay.depart()
            self._serving = False
            self._left.set()

    # -- connections -------------------------------------------------------------------------------

    def _hello(self) -> Hello:
        return {
            "protocol": PROTOCOL,
            "role": "peer",
            "version": VERSION,
            "space": self.space.name,
            "fingerprint": self.space.fingerprint(),
            "id": self.me.id if self._serving else None,
        }

    def _admit(self, hello: Hello) -> Hello:
        """Return our hello to whom we talk to; raise `Refused`, in words, to whom we don't."""
        if self._connections > CONNECTIONS_MAX:
            raise Refused(f"this peer has {CONNECTIONS_MAX} connections already; try another")
        protocol, role = hello.get("protocol"), hello.get("role")
        if protocol != PROTOCOL:
            raise Refused(
                f"you speak protocol {protocol!r}, this peer speaks {PROTOCOL} "
                f"(Meteor {VERSION}): use the same Meteor version on both sides"
            )
        if role not in ("peer", "client"):
            raise Refused(f"you say you are a {role!r}; only peers and clients are served")
        client = hello.get("client")
        if role == "client" and not (isinstance(client, str) and 0 < len(client) <= TEXT_FIELD_MAX):
            raise Refused("a client must say who it is")
        if role == "peer" and hello.get("fingerprint") != self.space.fingerprint():
            raise Refused(
                f"your space is {hello.get('space')!r} ({hello.get('fingerprint')}), this ring's "
                f"is {self.space.name!r} ({self.space.fingerprint()}): start the peer with the "
                "ring's space file"
            )
        return self._hello()

    async def _connected(self, stream: trio.abc.Stream) -> None:
        self._connections += 1
        try:
            channel = await accepted(stream, self._admit)
            if channel is None:
                return
            if channel.hello.get("role") == "client":
                await self._serve_client(channel)
            else:
                await channel.run(self._answer_peer)
        finally:
            self._connections -= 1

    async def _serve_client(self, channel: Channel) -> None:
        client: str = channel.hello["client"]
        async with trio.open_nursery() as nursery:
            if self._serving:
                nursery.start_soon(self._sessions.serve, client, Session(channel))
            await channel.run(lambda method, body: self._answer_client(client, method, body))
            nursery.cancel_scope.cancel()

    async def _answer_client(self, client: str, method: str, body: Value) -> Value:
        self._must_serve()
        match method:
            case "status":
                return self.report()
            case "ping":
                return True
            case "leave":
                await self.leave()
                return True
            case _:
                return await self._service.answer(client, method, body)

    async def _answer_peer(self, method: str, body: Value) -> Value:
        self._must_serve()
        match method, body:
            case "errands", [
                int() as hops,
                int() | float() as seconds,
                int() as sender,
                list() as wires,
            ]:
                errands = [Errand.from_wire(wire) for wire in wires]
                answers = await self._router.route(errands, seconds, min(hops, HOPS_MAX), sender)
                return [answer.to_wire() for answer in answers]
            case "batch", _:
                return await self._posts.answer(body)
            case "deliver", _:
                return self._sessions.answer(body)
            case (("replicate" | "digests" | "names" | "fetch" | "mend"), _):
                return await self._replicas.answer(method, body)
            case "vote", _:
                return await self._voting.answer(body)
            case (("handover" | "claim"), _):
                return await self._handover.answer(method, body)
            case "load", float() as share if 0 <= share <= 1:
                return self._load(share)
            case "leaps", _:
                return self._leaps.answer()
            case _:
                return self.overlay.answer(method, body)

    def _must_serve(self) -> None:
        if not self._serving:
            raise InputError("this peer is not in the ring yet; try again in a moment")

    def _load(self, share: float) -> Value:
        """Say what a joining peer needs to know to choose its place, at a share of the data."""
        overlay, now_ms = self.overlay, self._clock()
        data = self.store.counts(now_ms, overlay.spans)[Kind.DATA]
        middle = self.store.quantile(now_ms, overlay.spans, share)
        return [self.me.id, overlay.low, data, size(overlay.spans) / RING_SIZE, middle]

    def bounds(self) -> Bounds:
        """Say how much there is of all that must not grow, each with its bound."""
        found = {"connections": (self._connections, CONNECTIONS_MAX + 1)}  # one is being refused
        found |= self._writer.bounds() | self._sessions.bounds() | self._links.bounds()
        found |= self._replicas.bounds() | self._router.bounds() | self._service.bounds()
        return found | self.overlay.lost.bounds()

    def report(self) -> dict[str, Any]:
        """Say how this peer is."""
        overlay, now_ms = self.overlay, self._clock()
        counts = self.store.counts(now_ms, overlay.spans)
        stored = sum(self.store.counts(now_ms).values())
        predecessor, successor = overlay.predecessor, overlay.successor
        return {
            "id": self.me.id,
            "address": self.me.address,
            "version": VERSION,
            "pid": os.getpid() if self._pace is None else 0,
            "space": self.space.name,
            "up_seconds": round((self._clock() - self._started_ms) / 1000, 1),
            "low": overlay.low,
            "share": size(overlay.spans) / RING_SIZE,
            "data": counts[Kind.DATA],
            "interests": counts[Kind.INTEREST],
            "advertisements": counts[Kind.ADVERTISEMENT],
            "copies_for_others": stored - sum(counts.values()),
            "copies_at": self._replicas.report(),
            "voters_change": self._voting.renewing,
            "in_doubt": {
                peer.address: size(spans) / RING_SIZE
                for peer, spans in overlay.doubts(overlay.spans).items()
            },
            "clients": len(self._sessions),
            "notifications_lost": self._sessions.lost,
            "predecessor": predecessor.address if predecessor else None,
            "successor": successor.address if successor else None,
            "successors": [peer.address for peer in overlay.successors],
            "known_peers": len(overlay.known()),
        }
