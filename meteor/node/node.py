"""A rendezvous peer: everything put together, started, and stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import trio

from arms.errors import StoreError
from arms.rendezvous import Rendezvous
from arms.sites import Sites
from arms.store import Store
from meteor.background import background_nursery
from meteor.config import Config
from meteor.errors import InputError, MeteorError, Refused
from meteor.limits import PROTOCOL, Bounds
from meteor.node import epochs, identity
from meteor.node.copying import Copier
from meteor.node.front import Front, Inside
from meteor.node.gate import Gate
from meteor.node.handover import Handover
from meteor.node.leaps import Leaps
from meteor.node.links import Links
from meteor.node.moving import Move
from meteor.node.overlay import Overlay
from meteor.node.place import choose_place
from meteor.node.point import RendezvousPoint
from meteor.node.posts import Posts
from meteor.node.replicas import Replicas
from meteor.node.reports import load_of, report_of
from meteor.node.reunion import Reunion
from meteor.node.router import Router
from meteor.node.service import Service
from meteor.node.sessions import Sessions
from meteor.node.voting import Voting
from meteor.node.writer import Pace, Writer
from meteor.ring.arcs import RING_SIZE, arc, contains
from meteor.ring.questions import Peer, between
from meteor.transport.channel import Answer, Hello
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

    me: Peer
    root: Path
    home: Path
    store: Store
    front: Front
    gate: Gate
    copier: Copier
    overlay: Overlay
    sessions: Sessions
    point: RendezvousPoint
    router: Router
    replicas: Replicas
    voting: Voting
    service: Service
    nursery: trio.Nursery

    def __init__(
        self,
        config: Config,
        space: Space,
        network: Network | None = None,
        clock: Callable[[], int] = wall_clock_ms,
        random: Random | None = None,
        pace: Pace | None = None,
        elder: Node | None = None,
    ) -> None:
        self.config, self.space = config, space
        self._elder = elder
        self.heir: Node | None = None
        """The same peer in the ring with the next space, once the ring moves there."""
        self.serves_clients = elder is None
        self.move = Move(self)
        self._network: Network = network or TcpNetwork()
        self._clock, self._random = clock, random or SystemRandom()
        self.pace, self.started_ms = pace, clock()
        self._left, self.serving = trio.Event(), False

    async def run(self, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Join (or begin) a ring and serve; reports the peer's address once it has its arc."""
        folder = Path(self.config.state)
        with identity.locked(folder):
            self.root, self.home = folder if self._elder is None else self._elder.root, folder
            if self._elder is None:
                self.home, self.space = epochs.current(folder, self.space)
            store = Store(self.home / "profiles.db", self.space, self.config.sync)
            try:
                await self._run(self.home, store, task_status)
            finally:
                store.close()

    async def _run(self, folder: Path, store: Store, task_status: trio.TaskStatus[str]) -> None:
        async with background_nursery() as nursery:
            self.nursery = nursery
            self.front = Front(self) if self._elder is None else self._elder.front
            bound = await nursery.start(
                self._network.listen, self.config.listen, self.front.connected
            )
            address = self._advertised(bound)
            self._links = Links(self._network, self.hello, self.config.request_seconds)
            await nursery.start(self._links.run)
            past = identity.load(folder)
            through = await self._discover(self._contacts(past, address))
            while through is None and not self._may_begin:
                await trio.sleep(self.config.stabilise_seconds)
                through = await self._discover(self._contacts(past, address))
            place = await self._place(past.id, through)
            self._assemble(Peer(place, address), store)
            nursery.start_soon(self._writer.run)
            await nursery.start(self.sessions.run)
            self.move.recall()
            self._past_low = past.low
            if past.low is not None:
                self.overlay.past = arc(past.low, place)
            await self._enter(through, past)
            self.serving = True
            self.overlay.recover = self.replicas.recover
            for task in (self.overlay, self._leaps, self.replicas, self._handover, self.voting):
                nursery.start_soon(task.run)
            nursery.start_soon(self.move.run)
            nursery.start_soon(self._sweep)
            nursery.start_soon(self._remember, folder)
            reunion = Reunion(
                self.overlay,
                self.replicas,
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
        self.gate = gate = Gate()
        clock = self._clock
        self.me, self.store = me, store
        self._writer = Writer(store, clock, self.pace)
        self.overlay = Overlay(me, self.config, self._links, self._random)
        self._leaps = Leaps(self.overlay, self._links, self.config)
        self.sessions = Sessions(me.address, self._links)
        sites = Sites(self.space)
        self.copier = copier = Copier(self.space, store, clock, sites)
        self.replicas = Replicas(
            store, copier, self._writer, self.overlay, self._links, self.config, clock
        )
        self.voting = Voting(
            store,
            self._writer,
            self.replicas,
            self.overlay,
            self._links,
            self.config,
            clock,
            self._random,
        )
        point = RendezvousPoint(
            Rendezvous(self.space, store),
            self._writer,
            self.replicas,
            self.voting,
            clock,
            self.sessions.notify,
            self.sessions.tell,
            self.report,
            self.overlay.forget,
        )
        self.point = point
        point.obey = self.move.obey
        self.router = Router(self.space, self.overlay, self._links, point, gate)
        self.voting.whole = self.router.whole
        self._handover = Handover(
            self.space,
            store,
            copier,
            self._writer,
            self.replicas,
            self.overlay,
            self._links,
            gate,
            clock,
            lambda messages: self.service.deliver(messages),
        )
        self._posts = Posts(
            sites, self.overlay, self._links, point, gate, self.router.owners, clock
        )
        self.service = Service(
            self.space,
            self.router,
            self._posts,
            clock,
            self._random,
            me.address,
            self.config.post_seconds,
            self.sessions,
        )
        self.service.frozen = self._handover.frozen = lambda: point.frozen
        self._handover.order, self._handover.obey = self.move.order, self.move.obey

    # -- entering the ring -------------------------------------------------------------------------

    def _contacts(self, past: identity.Identity, address: str) -> list[str]:
        """Return where others of the ring may be: an heir's are where its elder's are."""
        elder = () if self._elder is None else self._elder.overlay.known()
        found = (*self.config.join, *(k.peer.address for k in elder))
        noted = (peer.address for peer in past.known)
        return [a for a in dict.fromkeys((*found, *noted)) if a != address]

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
        if contacts:
            log.warning("nobody answers at %s: this peer begins alone", ", ".join(contacts[:5]))
        return None

    async def _in_a_ring(self, contact: str) -> bool:
        try:
            await self._links.request(contact, "neighbours", None, self.config.request_seconds)
        except MeteorError as error:
            if isinstance(error, Refused) and self._elder is None:
                raise
            log.debug("%s: %s", contact, error)  # or its heir is not there yet
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
                while await self.point.sweep():
                    await trio.lowlevel.checkpoint()
            except (StoreError, MeteorError) as error:
                log.warning("expired messages are not removed: %s", error)

    async def leave(self) -> None:
        """Hand everything to the successor, tell the neighbours, and stop serving."""
        if self.heir is not None and self.heir.serving:
            await self.heir.leave()
        handed_over = not self.point.frozen and await self._handover.leave()
        with trio.CancelScope(shield=True):  # whoever asked for it may be gone by now
            if handed_over:
                await self.overlay.depart()
            self.serving = False
            self._left.set()
            if self._elder is not None and self.serves_clients:
                self._elder._left.set()

    # -- moving to another space -------------------------------------------------------------------

    def make_heir(self, space: Space, place: int) -> Node:
        """Return the same peer in the ring with the next space, which lives at the same address."""
        config = replace(
            self.config,
            listen=self.me.address,
            advertise=self.me.address,
            join=tuple(known.peer.address for known in self.overlay.known()),
            state=str(epochs.home_of(self.root, space.version)),
            id=place,
        )
        network = Inside(self._network)
        self.heir = Node(config, space, network, self._clock, self._random, self.pace, elder=self)
        return self.heir

    @property
    def _may_begin(self) -> bool:
        """Whether it is for this peer to begin a ring, when it finds none."""
        return self._elder is None or contains(self._elder.overlay.spans, 0)

    def freeze(self) -> None:
        """Change and answer nothing any more but what the move asks."""
        self.point.frozen = True

    def serve_by(self, heir: Node) -> None:
        """Have clients served by the heir from now on."""
        heir.serves_clients, self.serves_clients = True, False

    def now_ms(self) -> int:
        """Return the time of this peer's clock."""
        return self._clock()

    # -- connections -------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """Return how this peer greets."""
        return {
            "protocol": PROTOCOL,
            "role": "peer",
            "version": VERSION,
            "space": self.space.name,
            "fingerprint": self.space.fingerprint(),
            "id": self.me.id if self.serving else None,
        }

    def answer_client(self, client: str, method: str, body: Value) -> Answer:
        """Answer one request of a client."""
        self._must_serve()
        match method:
            case "status":
                return self.report()
            case "ping":  # and by the way, where to go when this peer is gone
                return [peer.address for peer in self.overlay.successors]
            case "leave":
                return self.leave()
            case "move":
                return self.move.announce(body)
            case _:
                return self.service.answer(client, method, body)

    def answer_peer(self, method: str, body: Value) -> Answer:
        """Answer one request of another peer."""
        self._must_serve()
        match method, body:
            case "errands", _:
                return self.router.answer(body)
            case "batch", _:
                return self._posts.answer(body)
            case "deliver", _:
                return self.sessions.answer(body)
            case (("replicate" | "digests" | "names" | "fetch" | "mend"), _):
                return self.replicas.answer(method, body)
            case "vote", _:
                return self.voting.answer(body)
            case (("handover" | "claim"), _):
                return self._handover.answer(method, body)
            case "load", float() as share if 0 <= share <= 1:
                return load_of(self, share)
            case "leaps", _:
                return self._leaps.answer()
            case _:
                return self.overlay.answer(method, body)

    def _must_serve(self) -> None:
        if not self.serving:
            raise InputError("this peer is not in the ring yet; try again in a moment")

    def bounds(self) -> Bounds:
        """Say how much there is of all that must not grow, each with its bound."""
        found = self.front.bounds() | self._writer.bounds() | self.sessions.bounds()
        found |= self._links.bounds() | self.replicas.bounds() | self.router.bounds()
        return found | self.service.bounds() | self.overlay.lost.bounds()

    def report(self) -> dict[str, Any]:
        """Say how this peer is."""
        return report_of(self)
