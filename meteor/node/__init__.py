"""One rendezvous peer: the trio shell around the cores of squid, arms and the ring.

node.py      puts a peer together and runs it
overlay.py   keeps the peer's place in the ring (drives meteor.ring.chord)
router.py    brings errands to the peers that own their region, and the answers back
errands.py   what is asked of the peers of a region, and what they answer
point.py     the rendezvous point: carries errands out on this peer's own store
handover.py  moves arcs, with what is stored in them, to a peer that joins or from one that leaves
service.py   what clients may ask of a peer
sessions.py  the clients of a peer, and the way of notifications to them
links.py     connections to other peers
writer.py    group commit
"""
