"""Doubts: who may know more about which part of the ring."""

from __future__ import annotations

from meteor.limits import LOST_PEERS_MAX, LOST_SECONDS, RETURN_SECONDS
from meteor.ring.arcs import WHOLE, arc, union
from meteor.ring.doubts import UNKNOWN, Lost
from meteor.ring.questions import Peer

A, B, ME = Peer(100, "a:1"), Peer(200, "b:1"), Peer(300, "me:1")


def lost_both() -> Lost:
    """Return the doubts of `ME` after A and B died, which lay between 50 and it."""
    lost = Lost()
    lost.add(B, 0.0)
    lost.add(A, 1.0)
    lost.take_over(50, 200, 2.0)
    return lost


def test_each_lost_peer_is_waited_for_in_its_own_part() -> None:
    assert lost_both().doubts(arc(0, 300)) == {A: arc(50, 100), B: arc(100, 200)}


def test_what_was_before_the_cut_is_in_no_doubt() -> None:
    assert lost_both().doubts(arc(200, 300)) == {}


def test_a_part_whose_peer_nobody_remembers_is_in_doubt_all_the_same() -> None:
    lost = Lost()
    lost.take_over(50, 200, 0.0)
    assert lost.doubts(arc(0, 300)) == {Peer(200, UNKNOWN): arc(50, 200)}
    lost.expire(LOST_SECONDS)
    assert lost.doubts(arc(0, 300)) == {}


def test_doubt_ends_where_somebody_hands_over_who_has_none() -> None:
    lost = lost_both()
    lost.handed(arc(50, 300), arc(50, 100), {}, 3.0)
    assert lost.doubts(arc(0, 300)) == {B: arc(100, 200)}


def test_doubt_stays_where_both_sides_have_it() -> None:
    lost = lost_both()
    lost.handed(arc(50, 300), arc(50, 200), {A: arc(50, 100)}, 3.0)
    assert lost.doubts(arc(0, 300)) == {A: arc(50, 100)}


def test_the_doubt_about_what_is_new_to_me_is_the_givers() -> None:
    lost = Lost()
    lost.handed(arc(200, 300), arc(50, 300), {A: arc(50, 100), ME: arc(200, 300)}, 0.0)
    assert lost.doubts(arc(0, 300)) == {A: arc(50, 100)}


def test_doubts_go_with_the_part_that_they_are_about() -> None:
    lost = lost_both()
    lost.hold(arc(100, 300))
    assert lost.doubts(arc(0, 300)) == {B: arc(100, 200)}


def test_a_peer_that_will_not_come_back_is_not_waited_for() -> None:
    lost = lost_both()
    lost.gone(B)
    assert lost.peers == (A,)
    assert lost.doubts(arc(0, 300)) == {A: arc(50, 100)}
    lost.expire(2.0 + LOST_SECONDS)
    assert lost.peers == ()
    assert union(lost.doubts(arc(0, 300))) == ()


def test_the_arc_of_a_peer_that_will_not_come_back_is_taken_over_without_doubt() -> None:
    """Its host was replaced by another before its successor took its arc over."""
    lost = Lost()
    lost.add(A, 0.0)
    lost.add(B, 0.0)
    lost.gone(B)
    lost.take_over(50, 200, 1.0)
    assert lost.doubts(arc(0, 300)) == {A: arc(50, 100)}


def test_a_peer_that_was_believed_gone_is_waited_for_when_it_is_lost_once_more() -> None:
    lost = Lost()
    lost.add(B, 0.0)
    lost.gone(B)
    lost.add(B, 1.0)
    lost.take_over(50, 200, 2.0)
    assert lost.doubts(arc(0, 300)) == {B: arc(50, 200)}


def test_what_is_in_doubt_stays_so_when_more_are_lost_than_can_be_looked_for() -> None:
    lost = lost_both()
    for place in range(LOST_PEERS_MAX):
        lost.add(Peer(1000 + place, f"{place}:1"), 3.0)
    assert A not in lost.peers
    assert lost.doubts(arc(0, 300)) == {A: arc(50, 100), B: arc(100, 200)}
    for place in range(LOST_PEERS_MAX + 1):
        peer = Peer(1000 + place, f"{place}:1")
        lost.add(peer, 4.0)
        lost.gone(peer)
    assert all(number <= most for number, most in lost.bounds().values())


def test_a_peer_that_is_back_is_looked_for_no_more_but_its_part_waits_to_be_handed_over() -> None:
    lost = lost_both()
    lost.back(A, 1.0)
    assert lost.peers == (B,)
    assert lost.doubts(arc(0, 100)) == {A: arc(50, 100)}


def test_what_may_be_elsewhere() -> None:
    lost = Lost()
    assert not lost.may_be_elsewhere(60, 0.0)
    lost.add(A, 0.0)
    assert lost.may_be_elsewhere(260, 0.0)  # it may go on with what is mine, in a part of its own
    lost.take_over(50, 100, 0.0)
    lost.back(A, 5.0)
    assert lost.may_be_elsewhere(260, 4.0 + RETURN_SECONDS)
    assert not lost.may_be_elsewhere(260, 5.0 + RETURN_SECONDS)
    assert lost.may_be_elsewhere(60, 5.0 + RETURN_SECONDS)  # until it is handed over
    lost.gone(A)
    assert not lost.may_be_elsewhere(60, 5.0 + RETURN_SECONDS)


def test_a_peer_that_nobody_remembers_can_be_forgotten_by_that_name() -> None:
    lost = Lost()
    lost.take_over(10, 20, 0.0)
    assert {peer.address for peer in lost.doubts(WHOLE)} == {UNKNOWN}
    assert lost.forget(UNKNOWN)
    assert not lost.doubts(WHOLE)
    assert not lost.forget(UNKNOWN)
