"""What clients may ask of a peer: post, retrieve page by page, consume, trace, survey.

The peer a client is connected to is the origin of its errands: it stamps the message, sees that
every responsible peer has spoken, asks again for what is missing, and answers with a receipt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import trio

from arms.aggregate import Aggregate
from arms.errors import ArmsError
from arms.inbox import INBOX
from arms.limits import NOTES_PER_POST_MAX
from arms.message import Action, Message, check_ttl, region_of, weight
from arms.rendezvous import Found
from meteor.errors import Busy, InputError, RemoteError
from meteor.limits import (
    CONSUME_CANDIDATES,
    CONSUME_ROUNDS_MAX,
    CONSUMES_REMEMBERED_MAX,
    DEADLINE_SECONDS_MAX,
    PAGE_BYTES,
    POSTS_PER_REQUEST_MAX,
    Bounds,
)
from meteor.node.admission import Admission
from meteor.node.errands import (
    Answer,
    Errand,
    Forget,
    Survey,
    Take,
    errand_for,
    read_resume,
    read_spans,
)
from meteor.node.notices import Notices
from meteor.node.point import TOO_MANY_NOTES
from meteor.node.posts import Posted, Posts
from meteor.node.router import Router
from meteor.node.sessions import Sessions
from meteor.ring.arcs import WHOLE, missing, size, subtract
from meteor.transport.channel import Answer as Reply
from meteor.transport.frames import Value
from squid import Space
from squid.errors import SquidError

TAKE_UNANSWERED = (
    "nobody who is responsible for an item answered in time: it may have been given to you, or not"
)

POSTING = ("store", "store again", "post", "post again")
"""Requests that post. A client that lost its connection says `again`: it may have been done."""


class Service:
    """Serves the clients of one peer."""

    def __init__(
        self,
        space: Space,
        router: Router,
        posts: Posts,
        clock: Callable[[], int],
        random: Random,
        address: str,
        post_seconds: float,
        sessions: Sessions,
    ) -> None:
        self._space, self._router, self._posts, self._clock = space, router, posts, clock
        self._sessions = sessions
        self._random, self._address, self._post_seconds = random, address, post_seconds
        self._taken: OrderedDict[str, _Taken] = OrderedDict()
        self.admission = Admission()
        self._notices = Notices(space, router, clock)
        self.frozen: Callable[[], bool] = lambda: False
        """Says whether the ring is moving on to its next space at this moment."""

    def bounds(self) -> Bounds:
        """Say what is in hand for clients, and remembered."""
        hand = self.admission
        return {
            "messages in hand": (hand.posts, hand.posts_max),
            "bytes in hand": (hand.bytes, hand.bytes_max),
            "takes remembered": (len(self._taken), CONSUMES_REMEMBERED_MAX),
        }

    def answer(self, client: str, method: str, body: Value) -> Reply:
        """Answer one request of a client; `Busy` when there are too many in hand."""
        whole = WHOLE_WHEN.get(method.removesuffix(" again"))
        if self.frozen() and whole is not None:
            raise Busy(MOVING)
        match method, body:
            case (("store" | "store again"), [*columns, wanted]):
                seconds = self._seconds(wanted)
                posted = self._posts.read(client, columns, repeated=method == "store again")
                if self._posts.are_prompt(posted):
                    self.admission.check(len(posted.batch), posted.batch.weight)
                    self._posts.place_now(posted)
                    if not (posted.notes or self._sessions.is_lagging):
                        return posted.to_wire()
                return self._whole(self._store(posted, seconds), whole)
            case _:
                return self._whole(self._answer(client, method, body), whole)

    async def _whole(
        self, answering: Coroutine[Any, Any, Value], whole: Callable[[Any], bool] | None
    ) -> Value:
        """Answer, unless the ring has begun to move meanwhile and the answer says too little."""
        answer = await answering
        if self.frozen() and whole is not None and not whole(answer):
            # Asked again it is answered in the next space, and the same ids double nothing.
            raise Busy(MOVING)
        return answer

    async def _answer(self, client: str, method: str, body: Value) -> Value:
        with self.admission.in_hand(0 if method in POSTING else 1, 0):
            match method, body:
                case (("post" | "post again"), [list() as posts, seconds]):
                    repeated = method == "post again"
                    return await self._post(client, posts, self._seconds(seconds), repeated)
                case "page", [message, cursor, seconds]:
                    return await self._page(client, message, cursor, self._seconds(seconds))
                case "consume", [message, seconds]:
                    return await self._consume(client, message, self._seconds(seconds))
                case "trace", [message, seconds]:
                    return await self._trace(client, message, self._seconds(seconds))
                case "survey", [seconds]:
                    return await self._survey(self._seconds(seconds))
                case "forget", [str() as address, seconds]:
                    return await self._forget(address, self._seconds(seconds))
                case "space", _:
                    return self._space.to_toml()
                case _:
                    raise InputError(f"this peer does not know the request {method!r}, or not so")

    def _seconds(self, wanted: object) -> float:
        match wanted:
            case None:
                return self._post_seconds
            case int() | float() if 0 < wanted <= DEADLINE_SECONDS_MAX:
                return float(wanted)
            case _:
                raise InputError(
                    f"a deadline of {wanted!r} s; give more than 0 and at most "
                    f"{DEADLINE_SECONDS_MAX:.0f}"
                )

    # -- posting -----------------------------------------------------------------------------------

    async def _post(self, client: str, posts: list[Any], seconds: float, repeated: bool) -> Value:
        """Post messages; each gets its receipt or its error, in the order they came."""
        if len(posts) > POSTS_PER_REQUEST_MAX:
            raise InputError(f"{len(posts)} messages in a request; at most {POSTS_PER_REQUEST_MAX}")
        outcomes: list[Value] = [None] * len(posts)
        messages: dict[int, Message] = {}
        for i, post in enumerate(posts):
            try:
                messages[i] = self._admit(client, post)
            except (ArmsError, SquidError, InputError) as error:
                outcomes[i] = ["error", "input", str(error)]
        with self.admission.in_hand(len(messages), sum(map(weight, messages.values()))):
            again = {message.id for message in messages.values()} if repeated else ()
            done = await self.post(list(messages.values()), seconds, again)
        for i, outcome in zip(messages, done, strict=True):
            outcomes[i] = outcome
        return outcomes

    async def post(
        self, messages: list[Message], seconds: float, repeated: Collection[str] = ()
    ) -> list[Value]:
        """Post messages that were admitted; returns the outcome of each.

        Those with the ids `repeated` may have been carried out already.
        """
        if not messages:
            return []
        deadline = trio.current_time() + seconds
        errands = [errand_for(self._space, message) for message in messages]
        if repeated:
            errands = [
                replace(e, repeated=m.id in repeated)
                for e, m in zip(errands, messages, strict=True)
            ]
        answers = await self._router.ask(errands, seconds)
        await self._notices.place(errands, answers, deadline)
        return [self._receipt(*pair) for pair in zip(errands, answers, strict=True)]

    async def _store(self, posted: Posted, seconds: float) -> Value:
        """Post plain data, many at once: the short way."""
        deadline = trio.current_time() + seconds
        batch = posted.batch
        size = batch.weight + sum(map(weight, posted.others.values()))
        with self.admission.in_hand(len(batch) + len(posted.others), size):
            if not posted.placed:
                await self._posts.place(posted, deadline, self.post)
            if posted.notes:
                await self._place_notes(posted, deadline)
        await self._sessions.catch_up()
        return posted.to_wire()

    async def _place_notes(self, posted: Posted, deadline: float) -> None:
        """Place what posts are due to inboxes; one whose notes are not all placed has failed."""
        errands = [errand_for(self._space, posted.batch.message(i)) for i in posted.notes]
        answers = [Answer(notes=dues[:NOTES_PER_POST_MAX]) for dues in posted.notes.values()]
        await self._notices.place(errands, answers, deadline)
        for (i, dues), answer in zip(posted.notes.items(), answers, strict=True):
            if len(dues) > NOTES_PER_POST_MAX:
                answer.faults.append(TOO_MANY_NOTES)
            if answer.faults:
                posted.fail([i], "; ".join(answer.faults))

    def _admit(self, client: str, post: object) -> Message:
        """Stamp a message that enters the ring here: who sent it, and when it ends."""
        match post:
            case [wire, int() | float() as ttl_seconds]:
                message = Message.from_wire(wire)
                expires_ms = self._clock() + round(check_ttl(ttl_seconds) * 1000)
                stamped = message.sent_by(client, self._address, expires_ms)
                stamped.check(self._space)
                if message.action is Action.STORE and INBOX in message.profile.attributes():
                    raise InputError(f"{INBOX} is reserved: only the ring itself writes notes")
                return stamped
            case _:
                raise InputError("what came is not a post")

    async def deliver(self, messages: Sequence[Message]) -> list[bool]:
        """Bring stored messages to their owners; says of each whether all of them have it.

        Where one was stored there may have been fewer watches than there are at its owner: those
        that are reliable are told.
        """
        errands = [replace(errand_for(self._space, message), repeated=True) for message in messages]
        deadline = trio.current_time() + self._post_seconds
        answers = await self._router.ask(errands, self._post_seconds)
        await self._notices.place(errands, answers, deadline)
        return [
            not answer.faults and not missing(e.members(self._space), e.spans, answer.covered)
            for e, answer in zip(errands, answers, strict=True)
        ]

    def _receipt(self, errand: Errand, answer: Answer) -> Value:
        if answer.faults:
            return ["error", "remote", "; ".join(answer.faults)]
        left = missing(errand.members(self._space), errand.spans, answer.covered)
        peers = len({known.peer.id for known in answer.speakers})
        share = size(left) / size(WHOLE)
        return ["receipt", not left, peers, answer.copies, answer.matches, share, answer.lost]

    # -- retrieving --------------------------------------------------------------------------------

    async def _page(self, client: str, wire: object, cursor: object, seconds: float) -> Value:
        """Return the next matches, and where to go on: None when all that matches has been seen."""
        message = self._retrieval(client, wire)
        match cursor:
            case None:
                errand = errand_for(self._space, message)
            case [_, _, int() as version] if version != self._space.version:
                # The ring has moved on, and the places of another space say nothing here.
                return [[], Aggregate().to_wire(), 0, 0, cursor, False, []]
            case [list() as spans, list() as resume, _]:
                errand = replace(
                    errand_for(self._space, message, read_spans(spans)), resume=read_resume(resume)
                )
            case _:
                raise InputError("what came is no place to go on at")
        (answer,) = await self._router.ask([replace(errand, bytes_max=PAGE_BYTES)], seconds)
        left = missing(errand.members(self._space), errand.spans, answer.covered)
        if answer.faults:
            raise RemoteError("; ".join(answer.faults))
        places = dict(errand.resume) | answer.resume
        going_on = [[at, id_] for at, id_ in places.items() if any(a <= at <= b for a, b in left)]
        return [
            [found_wire(found) for found in answer.found],
            answer.aggregate.to_wire(),
            answer.matches,
            len({known.peer.id for known in answer.speakers}),
            [left, going_on, self._space.version] if left else None,
            bool(answer.resume or answer.found),  # whether asking for more is worth it
            answer.lost,
        ]

    def _retrieval(self, client: str, wire: object) -> Message:
        message = self._admit(client, [wire, 0])
        if message.action is not Action.RETRIEVE:
            raise InputError(f"a {message.action} message can't be used to look for data")
        return message

    # -- consuming ---------------------------------------------------------------------------------

    async def _consume(self, client: str, wire: object, seconds: float) -> Value:
        """Take items for one taker; asked again, it gets the same ones, and takes no others."""
        message = self._retrieval(client, wire)
        known = self._taken.get(message.id)
        if known is None:
            known = self._taken[message.id] = _Taken()
            if len(self._taken) > CONSUMES_REMEMBERED_MAX:
                self._taken.popitem(last=False)
            try:
                known.answer = await self._take_some(message, seconds)
            finally:
                known.done.set()
        await known.done.wait()
        if known.answer is None:
            raise RemoteError("this was asked before, and did not come to an end; ask anew")
        return known.answer

    async def _take_some(self, message: Message, seconds: float) -> Value:
        """Take items for one taker: found first, then taken by id where they lie.

        Many takers may find the same item; it is given to the first that asks for it. The others go
        on with the next candidates, and look again when all were gone. Items that can't be given
        away, because too few of those who vote on them can be reached, are passed over.
        """
        wanted = message.modifiers.limit or 1
        deadline = trio.current_time() + seconds
        taken: list[Found] = []
        refused: dict[str, str] = {}
        complete = False
        for _ in range(CONSUME_ROUNDS_MAX):
            limit = wanted - len(taken) + len(refused) + CONSUME_CANDIDATES
            look = replace(message, modifiers=replace(message.modifiers, limit=limit))
            left = deadline - trio.current_time()
            if left <= 0:
                complete = False
                break
            errand = errand_for(self._space, look)
            (answer,) = await self._router.ask([errand], left)
            complete = not missing(errand.members(self._space), errand.spans, answer.covered)
            # While arcs move an item may be named twice, or again after it was taken.
            known = refused.keys() | {f.message.id for f in taken}
            found = {f.message.id: f for f in answer.found if _may_take(f.message, message)}
            candidates = [f for id_, f in found.items() if id_ not in known]
            if not candidates:
                break
            self._random.shuffle(candidates)  # so that many takers don't queue for the same item
            chosen = candidates[: wanted - len(taken)]
            taken += await self._take(chosen, message, deadline, refused)
            if len(taken) == wanted:
                break
        if refused and not taken:
            raise RemoteError("; ".join(sorted(set(refused.values()))))
        # What was refused may have been given all the same, when the peers that know are slow.
        everything = not refused and (complete or len(taken) == wanted)
        return [[found_wire(found) for found in taken], everything]

    async def _take(
        self, chosen: Sequence[Found], taker: Message, deadline: float, refused: dict[str, str]
    ) -> list[Found]:
        """Have items taken where their lowest identifiers lie; then their other copies go too."""
        left = max(0.05, deadline - trio.current_time())
        regions = [region_of(self._space, found.message) for found in chosen]
        errands = []
        for found, region in zip(chosen, regions, strict=True):
            assert region.lowest is not None
            take = Take(found.message.id, taker.id, taker.header.credential)
            errands.append(Errand(take, ((region.lowest, region.lowest),)))
        taken: list[Found] = []
        elsewhere: list[Errand] = []
        answers = await self._router.ask(errands, left)
        for found, region, errand, answer in zip(chosen, regions, errands, answers, strict=True):
            if answer.faults:
                refused[found.message.id] = "; ".join(answer.faults)
            elif answer.matches:
                taken.append(found)
                if not region.is_point:
                    elsewhere.append(errand.within(missing(region, WHOLE, errand.spans)))
            elif not answer.covered:
                refused[found.message.id] = TAKE_UNANSWERED
        if elsewhere:
            await self._router.ask(elsewhere, left)
        return taken

    # -- looking at the ring -----------------------------------------------------------------------

    async def _trace(self, client: str, wire: object, seconds: float) -> Value:
        """Show the way that a message would take; nobody acts on it."""
        message = self._admit(client, [wire, 0])
        errand = replace(errand_for(self._space, message), traced=True)
        (answer,) = await self._router.ask([errand], seconds)
        left = missing(errand.members(self._space), errand.spans, answer.covered)
        return [[trace.to_wire() for trace in answer.traces], not left]

    async def _survey(self, seconds: float) -> Value:
        """Ask every peer of the ring for its report."""
        answer = await self.survey(seconds)
        left = subtract(WHOLE, answer.covered)
        return [answer.reports, not left, size(left) / size(WHOLE)]

    async def survey(self, seconds: float, order: Value = None) -> Answer:
        """Ask every peer of the ring for its report, and give each an order."""
        (answer,) = await self._router.ask([Errand(Survey(order), WHOLE)], seconds)
        return answer

    async def _forget(self, address: str, seconds: float) -> Value:
        """Have every peer of the ring wait no longer for a lost one; says how many did."""
        errand = Errand(Forget(address), WHOLE)
        (answer,) = await self._router.ask([errand], seconds)
        left = missing(errand.members(self._space), WHOLE, answer.covered)
        return [answer.matches, not left]


MOVING = "the ring is moving on to its next space; try again in a moment"

WHOLE_WHEN: dict[str, Callable[[Any], bool]] = {
    "store": lambda answer: all(said[1] == "input" for _, said in answer[2]),
    "post": lambda answer: all(said[1] in (True, "input") for said in answer),
    "page": lambda answer: answer[4] is None,
    "consume": lambda answer: bool(answer[0]) or answer[1],
    "trace": lambda answer: True,
}
"""What is not served while the ring moves; and which answers, on their way by then, still hold."""


class _Taken:
    """What a taker got, for when it asks again."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: Value = None


def found_wire(found: Found) -> Value:
    """Return a match as clients get it."""
    return [found.identifier, found.message.without_credential().to_wire()]


def _may_take(item: Message, taker: Message) -> bool:
    return item.header.credential in ("", taker.header.credential)
