"""Chord, corrected: how a peer finds its place in the ring and keeps its neighbours right.

After P. Zave, "How to make Chord correct" (2017). The owner of an identifier is the first peer at
or after it, clockwise: peer p with predecessor q owns (q, p].

Nothing here does I/O. An operation is a generator: it yields an `Ask`, and is sent the answer, or
None when that peer did not answer as the very peer that was asked (same id, same address). Other
operations may run between the two, so each looks at the current state again after every yield,
and changes it in one assignment from one answer.

Duties of whoever carries operations out:
- a peer answers nothing before its own `join` has returned True (or it is the first of a ring);
- `Notify(peer)` is answered with True, and `rectify(peer)` is started at the peer that got it;
- `Meet(peer)` is answered with True, and `meet(peer)` is started at the peer that got it;
- the other questions are answered with `Chord.answer`.
"""

from __future__ import annotations

from collections.abc import Iterable

from meteor.limits import (
    FORWARD_PEERS,
    LOOKUP_ASKS_MAX,
    RECOVERY_PEERS_MAX,
    SUCCESSORS_KEPT,
)
from meteor.ring.arcs import RING_SIZE
from meteor.ring.fingers import Fingers, Known
from meteor.ring.questions import (
    Answer,
    Ask,
    AskNeighbours,
    AskStep,
    Forward,
    Found,
    Meet,
    Neighbours,
    Notify,
    Operation,
    Peer,
    Step,
    between,
)


class IdTaken(Exception):  # noqa: N818 - it reads as what happened
    """Another peer has the id that this one wants to join with."""

    def __init__(self, wanted: Peer, holder: Peer) -> None:
        super().__init__(
            f"the id {wanted.id} of {wanted.address} is taken by {holder.address}: "
            "join with another id, or wait until the ring has noticed that the other is gone"
        )
        self.holder = holder


class Chord:
    """One peer's view of the ring.

    A ring of one has no successors and no predecessor. `successors` never holds `me` and lies in
    clockwise order; in a ring of few peers it is shorter than `successors_kept`. `predecessor` is
    None also when the last one died and no other has come forward.
    """

    def __init__(
        self, me: Peer, successors_kept: int = SUCCESSORS_KEPT, fingers_per_octave: int = 1
    ) -> None:
        self.me = me
        self.successors_kept = successors_kept
        self.fingers = Fingers(me.id, fingers_per_octave)
        self._known: tuple[Known, ...] = ()
        self._made_of: tuple[object, ...] = ()
        self.reset()

    def reset(self) -> None:
        """Become a ring of one."""
        self.predecessor: Peer | None = None
        self.successors: tuple[Peer, ...] = ()
        self.isolated = False  # every successor was found dead; the last one is kept, to try again

    # -- what others may ask -------------------------------------------------------------------

    def answer(self, question: AskNeighbours | AskStep) -> Answer:
        """Answer a question that changes nothing here."""
        if isinstance(question, AskStep):
            return self.step(question.identifier)
        return self.neighbours()

    def neighbours(self) -> Neighbours:
        """Say who I am and between whom."""
        return Neighbours(self.me, self.predecessor, self.successors)

    def step(self, identifier: int) -> Step:
        """Answer one hop of a lookup from what is known here."""
        me = self.me.id
        if not self.successors:
            return Found(self.neighbours())
        successor = self.successors[0].id
        if identifier == successor or between(me, identifier, successor):
            return Found(self.neighbours())
        nearer = [k.peer for k in self.known() if between(me, k.peer.id, identifier)]
        return Forward(tuple(reversed(nearer[-FORWARD_PEERS:])))

    def known(self) -> tuple[Known, ...]:
        """Return every peer known here, clockwise from me, each once.

        Successor lists are renewed much more often than fingers, so they win where both speak. It
        is made anew only when something in it has changed: every errand that passes asks for it.
        """
        made_of = (self.fingers.known(), self.predecessor, self.successors)
        if made_of != self._made_of:
            self._made_of, self._known = made_of, self._table()
        return self._known

    def _table(self) -> tuple[Known, ...]:
        found = {entry.peer.id: entry for entry in self.fingers.known()}
        if self.predecessor is not None:
            heard = found.get(self.predecessor.id)
            found[self.predecessor.id] = Known(
                self.predecessor, None if heard is None else heard.predecessor
            )
        before = self.me
        for peer in self.successors:
            found[peer.id] = Known(peer, before.id)
            before = peer
        return tuple(found[i] for i in sorted(found, key=lambda i: (i - self.me.id) % RING_SIZE))

    # -- finding a place -----------------------------------------------------------------------

    def lookup(self, identifier: int, through: Peer | None = None) -> Operation[Neighbours | None]:
        """Find the predecessor of an identifier, hop by hop; None when nobody could say.

        `through` is the peer to begin at; without it, this one.
        """
        asked = {self.me}
        failed: set[Peer] = set()
        nearest: Peer | None = None  # of those that answered
        candidates: set[Peer] = set()
        if through is not None:
            candidates.add(through)
        else:
            step = self.step(identifier)
            if isinstance(step, Found):
                return step.neighbours
            nearest = self.me
            candidates.update(step.peers)

        def distance(peer: Peer) -> int:
            return (identifier - peer.id - 1) % RING_SIZE  # the peer at `identifier` is farthest

        for _ in range(LOOKUP_ASKS_MAX):
            candidates -= asked
            if candidates:
                peer = min(candidates, key=distance)
                asked.add(peer)
                answer = yield Ask(peer, AskStep(identifier))
                if isinstance(answer, Found):
                    return answer.neighbours
                if isinstance(answer, Forward):
                    candidates.update(answer.peers)
                    if nearest is None or distance(peer) < distance(nearest):
                        nearest = peer
                else:
                    failed.add(peer)
                    self.fingers.forget(peer)
                continue
            # All that were named are dead: look behind them in the nearest peer's list.
            if nearest is None:
                return None
            around = self.neighbours() if nearest == self.me else (yield from _ask(nearest))
            if around is None:
                return None
            alive = tuple(peer for peer in around.successors if peer not in failed)
            if alive and not between(nearest.id, alive[0].id, identifier):
                return Neighbours(around.peer, around.predecessor, alive)
            candidates.update(p for p in alive if between(nearest.id, p.id, identifier))
            if not candidates - asked:
                return None
        return None

    def join(self, through: Peer) -> Operation[bool]:
        """Take my place in the ring that `through` belongs to; False if nobody there answered.

        The last life of a peer that was restarted may still be in others' lists, with my id and
        my address: it counts as me. The same id at another address raises `IdTaken`.
        """
        before = yield from self.lookup(self.me.id, through)
        if before is None:
            return False
        for peer in (before.peer, *before.successors):
            if peer.id == self.me.id and peer != self.me:
                raise IdTaken(self.me, peer)
        self._place_after(before)
        self.predecessor = before.peer
        return True

    def _place_after(self, before: Neighbours) -> None:
        """Take over the successor list of my predecessor, or in a ring of one, that peer."""
        self.successors = self._ordered(before.successors) or (before.peer,)
        self.isolated = False
        self.fingers.learn(before)

    # -- keeping it right ----------------------------------------------------------------------

    def stabilise(self) -> Operation[tuple[Peer, ...]]:
        """Renew the successor list and tell the successor about me; return the peers found dead."""
        dead: list[Peer] = []
        while self.successors:
            successor = self.successors[0]
            answer = yield from _ask(successor)
            if answer is not None:
                if self._adopt(answer):
                    yield from self._improve(answer, dead)
                break
            dead.append(successor)
            self._bury(successor)
            if self.isolated:
                yield from self._recover(dead)
                break
        return tuple(dead)

    def _improve(self, successor: Neighbours, dead: list[Peer]) -> Operation[None]:
        """Go back to the successor's predecessor if it lies between us, and notify whom I have."""
        nearer = successor.predecessor
        if nearer is not None and between(self.me.id, nearer.id, successor.peer.id):
            # It must be asked before it is believed: it may be dead (Zave's first correction).
            answer = yield from _ask(nearer)
            if answer is None:
                dead.append(nearer)
                self.fingers.forget(nearer)
            else:
                self._adopt(answer)
        if self.successors:
            yield Ask(self.successors[0], Notify(self.me))

    def _adopt(self, head: Neighbours) -> bool:
        """Make a live peer my first successor, with its list; not if I have a nearer one by now."""
        self.fingers.learn(head)
        if self.successors and not self.isolated:
            first = self.successors[0].id
            if head.peer.id != first and not between(self.me.id, head.peer.id, first):
                return False
        self.successors = self._ordered((head.peer, *head.successors))
        self.isolated = False
        return True

    def _ordered(self, peers: Iterable[Peer]) -> tuple[Peer, ...]:
        """Cut a list where it reaches me or goes past me, and at the length kept.

        Lists of other peers end behind me in a ring of few peers. Mine, left over from an earlier
        life, may stand at the beginning.
        """
        kept: list[Peer] = []
        last = self.me.id
        for peer in peers:
            if peer.id == self.me.id and not kept:
                continue
            if not between(last, peer.id, self.me.id) or len(kept) == self.successors_kept:
                break
            kept.append(peer)
            last = peer.id
        return tuple(kept)

    def _bury(self, peer: Peer) -> None:
        """Drop a successor that did not answer; the last one stays, and I am isolated."""
        self.forget(peer)
        if self.successors == (peer,):
            self.isolated = True

    def _recover(self, dead: list[Peer]) -> Operation[None]:
        """Look for my place through any other peer known, when every successor is dead."""
        others = [entry.peer for entry in self.known() if entry.peer not in dead]
        for peer in others[:RECOVERY_PEERS_MAX]:
            before = yield from self.lookup(self.me.id, through=peer)
            if not self.isolated:
                return
            if before is not None and before.peer.id != self.me.id:
                # Without a live one in its list, the predecessor itself will do for a successor:
                # stabilising goes back from it, predecessor by predecessor.
                alive = tuple(peer for peer in before.successors if peer not in dead)
                self._place_after(Neighbours(before.peer, before.predecessor, alive))
                return

    def rectify(self, candidate: Peer) -> Operation[bool]:
        """Consider a peer that notified me as my predecessor; say whether it became that."""
        if candidate.id == self.me.id or candidate == self.predecessor:
            return False
        if not self.successors:
            # The second peer of a ring is both neighbours of the first. As a successor it must be
            # asked before it is believed: a late notice may come from the dead.
            answer = yield from _ask(candidate)
            if answer is None:
                return False
            if not self.successors:
                self._adopt(answer)
        current = self.predecessor
        if current is not None and not between(current.id, candidate.id, self.me.id):
            answer = yield from _ask(current)
            if answer is not None:
                self.fingers.learn(answer)
            elif self.predecessor == current:
                self.predecessor = None
                self.fingers.forget(current)
        current = self.predecessor
        if current is None or between(current.id, candidate.id, self.me.id):
            self.predecessor = candidate
            return True
        return False

    def check_predecessor(self) -> Operation[Peer | None]:
        """Ask whether my predecessor lives; if not, forget it and return it.

        Zave has only `rectify`, which does the same when somebody notifies. Nothing but the choice
        of a better successor depends on a predecessor, and a dead one is never chosen: so knowing
        none instead of a dead one changes no invariant, and an owner learns of it without waiting.
        """
        current = self.predecessor
        if current is None:
            return None
        answer = yield from _ask(current)
        if answer is None:
            self.fingers.forget(current)
            if self.predecessor == current:
                self.predecessor = None
            return current
        self.fingers.learn(answer)
        yield from self._come_forward(answer)
        return None

    def _come_forward(self, before: Neighbours) -> Operation[None]:
        """Make myself known where my predecessor's list goes past me.

        It does while I join, and where two rings have met and not closed yet: then the peers in
        that list that lie before me are nearer predecessors, and the nearest skips me.
        """
        me = self.me.id
        nearer = [peer for peer in before.successors if between(before.peer.id, peer.id, me)]
        if nearer:
            answer = yield from _ask(nearer[-1])  # a name in a list may be that of a dead peer
            current = self.predecessor
            if answer and (current is None or between(current.id, answer.peer.id, me)):
                self.predecessor = answer.peer
        elif before.successors and between(before.peer.id, me, before.successors[0].id):
            yield Ask(before.peer, Meet(self.me))

    # -- two rings that become one ---------------------------------------------------------------

    def meet(self, other: Peer) -> Operation[None]:
        """Take a peer of another ring in as my successor, or send it on to mine.

        Ring unification (Shafaat, Ghodsi and Haridi), as a zip: whoever takes a peer in sends it
        the successor that it had before, which belongs somewhere behind it. So the two rings are
        walked once, side by side, until a successor is met that is the right one already. What
        gets lost on the way is found by `check_predecessor`, only later.
        """
        if other.id == self.me.id:
            return
        before = self.successors[:1]
        if not before or self.isolated or between(self.me.id, other.id, before[0].id):
            # As ever, a peer is asked before it is believed.
            answer = yield from _ask(other)
            if answer is None or not self._adopt(answer):
                return
            yield Ask(other, Notify(self.me))
            yield Ask(other, Meet(before[0] if before else self.me))
        elif before[0] != other:
            yield Ask(before[0], Meet(other))

    def refresh_finger(self) -> Operation[None]:
        """Look up the next target of the fingers, and keep its owner."""
        target = self.fingers.next_target(self.successors[0].id) if self.successors else None
        if target is None:
            return
        before = yield from self.lookup(target)
        if before is None:
            return
        for owner in before.successors:
            if owner.id == self.me.id:
                return
            answer = yield from _ask(owner)
            if answer is not None:
                self.fingers.learn(answer)
                return
            self.fingers.forget(owner)

    # -- those who go --------------------------------------------------------------------------

    def forget(self, peer: Peer) -> None:
        """Drop a peer that is dead or leaving; but never the last successor."""
        self.fingers.forget(peer)
        rest = tuple(successor for successor in self.successors if successor != peer)
        self.successors = rest or self.successors

    def departed(self, peer: Peer, replacement: Neighbours) -> None:
        """Close the gap of a peer that leaves in good order, with what it knew last."""
        before = replacement.predecessor
        if self.successors[:1] == (peer,):
            after = tuple(successor for successor in replacement.successors if successor != peer)
            self.successors = self._ordered(after) or self.successors[1:] or self.successors
        self.forget(peer)
        if self.predecessor == peer:
            outside = before is not None and between(before.id, peer.id, self.me.id)
            self.predecessor = before if outside and before != self.me else None
        if self.successors == (peer,):
            if self.predecessor is not None:
                self.successors = (self.predecessor,)  # somebody has joined meanwhile
            elif before == self.me:
                self.reset()  # we were two, and it says so itself
            else:
                self.isolated = True


def _ask(peer: Peer) -> Operation[Neighbours | None]:
    """Ask a peer for its neighbours; another peer at its address does not count as an answer."""
    answer = yield Ask(peer, AskNeighbours())
    return answer if isinstance(answer, Neighbours) and answer.peer == peer else None
