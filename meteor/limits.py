"""Every bound of the service, with its reason. Sizes in bytes, times in seconds."""

from __future__ import annotations

from arms.limits import DATA_BYTES_MAX

Bounds = dict[str, tuple[int, int]]
"""How much there is of something that must not grow, and its bound, by its name."""

# -- the wire ------------------------------------------------------------------------------------

PROTOCOL = 4
"""The version that both sides of a connection must share."""

FRAME_BYTES_MAX = 8 * 1024 * 1024
"""A frame holds a page or a batch: several data items of the largest size, yet one fits in memory
many times over."""

LIST_LENGTH_MAX = 16_384
"""Entries of one list in a frame. The decoder makes room for as many as a list claims, at every
level of nesting, before it has seen them: 1,000 levels of this are 128 MB, not all memory."""

MAP_LENGTH_MAX = 1024
"""Entries of one map in a frame."""

HELLO_BYTES_MAX = 64 * 1024
"""Before the handshake nobody is known: a stranger may make us buffer this much and no more."""

HELLO_SECONDS_MAX = 5.0
"""A connection that says nothing (half open, a port scan) is closed after this."""

SEND_BYTES_MAX = 16 * 1024 * 1024
"""What may wait to be sent on one connection; a sender waits beyond it."""

REQUESTS_IN_FLIGHT_MAX = 1024
"""Requests of one connection that a peer works on at once; the next is answered `busy`."""

POSTS_IN_HAND_MAX = 16_384
"""Messages of all clients that a peer works on at once: a second or so of a good disk's work, and
four of the largest requests. The next request is answered `busy`."""

BYTES_IN_HAND_MAX = 64 * 1024 * 1024
"""What those messages may weigh together."""

CONNECTIONS_MAX = 4096
"""Connections that a peer accepts; the next is refused in words."""

LINKS_MAX = 1024
"""Connections that a peer keeps open to others; the longest unused is closed for a new one."""

# -- the overlay -----------------------------------------------------------------------------------

SUCCESSORS_KEPT = 4
"""Zave's r: the ring survives r - 1 neighbours that die at once."""

LOOKUP_ASKS_MAX = 128
"""Questions in one lookup: 63 halvings of the ring, and as many dead peers met on the way."""

FORWARD_PEERS = 3
"""Peers named in one step of a lookup: the best one, and two in case it is dead."""

RECOVERY_PEERS_MAX = 8
"""Far peers that an isolated peer asks in one round before it waits for the next."""

LOST_PEERS_MAX = 256
"""Peers that went without a word and are looked for; beyond it the oldest is given up."""

LOST_SECONDS = 24 * 3600.0
"""How long a lost peer is looked for, and what it had is in doubt: the longest cut that heals by
itself."""

RETURN_SECONDS = 30.0
"""How long a lost peer that was found again may take to hand over what is not its own; some seconds
is usual."""

# -- routing -------------------------------------------------------------------------------------

HOPS_MAX = 64
"""Forwarding ends here: log2 of 2**63 peers, so only a broken ring reaches it."""

ATTEMPTS_MAX = 3
"""How often one peer re-splits a part of the ring whose peer failed, before it leaves the part
to whoever asked."""

REPLY_SHARE = 0.8
"""The share of its own time that a peer gives the peers it asks, so that it can still answer."""

PAGE_BYTES = 1024 * 1024
"""The data a page of a retrieval aims at; at least one item always goes."""

ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""What a peer merges into one answer, of many peers that each sent at least one item."""

POSTS_PER_REQUEST_MAX = 4096
"""Messages in one request, so that one client can't hold a peer's loop for long."""

OWNERS_CACHED_MAX = 8192
"""Owners remembered by arc, so that posting a point is one hop; all of a ring of 5,000 peers."""

VOTES_PER_REQUEST_MAX = 256
"""Items that one ballot is held on at once."""

CONSUME_CANDIDATES = 8
"""Items looked at in one round of a take; under contention another round finds others."""

CONSUMES_REMEMBERED_MAX = 1024
"""Takes of which a peer still knows the answer, if it is asked the same again."""

CONSUME_ROUNDS_MAX = 32
"""Rounds of a take before it says that others were quicker every time."""

DEADLINE_SECONDS_MAX = 300.0
"""The longest time a caller may give one operation."""

# -- notifications -------------------------------------------------------------------------------

DELIVERIES_QUEUED_MAX = 16_384
"""Messages that wait for one other peer or one client: a tenth of a second at full speed. Beyond it
the newest is lost and counted."""

SLOW_WATCHER_SECONDS = 0.25
"""How long who posts is held up for a watcher whose queue is half full. One that does not catch up
in that time is not waited for again, until it has."""

DELIVERIES_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of messages that wait for one other peer or one client; the same happens beyond it."""

WATCHES_PER_CLIENT_MAX = 100_000
"""Watches that one client may have at a peer."""

NOTES_SECONDS_MIN = 0.5
"""What the notes of a post get to be placed in, also when the post itself took all of its time."""

KEEP_SECONDS = 86_400.0
"""How long a reliable watch and its notes are kept when the program does not say: over a night."""

ACKS_PER_REQUEST = 64
"""Notes that are acknowledged together; so many may come again when a reader crashes."""

ACK_SECONDS = 0.05
"""How long acknowledgements wait for others to go with."""

SEEN_IDS_MAX = 65_536
"""Message ids that a watch remembers, so that a replay or a reconnect gives nothing twice."""

GOODBYE_SECONDS = 1.0
"""What a program that ends without closing its blocking connection gives it to withdraw watches."""

# -- elements ------------------------------------------------------------------------------------

EVENTS_QUEUED_MAX = 1024
"""Events that wait for one element: a burst of readings, not a day's. Beyond it what happens at the
device is refused, and what the ring gives waits in its watch."""

REOPEN_SECONDS = 1.0
"""The pause before an element asks again for a watch that the ring did not answer for."""

# -- hand-over -----------------------------------------------------------------------------------

HANDOVER_ROWS = 500
"""Rows in one page of a hand-over."""

HANDOVER_BYTES = 2 * 1024 * 1024
"""Messages in one page of a hand-over; one of the largest may come on top."""

REPAIR_BYTES_PER_SECOND = 8 * 1024 * 1024
"""What mending one copy may take: it must not slow posts down."""

FREEZE_SECONDS_MAX = 5.0
"""How long posts to a moving arc wait for the last page of its hand-over."""

SURVEY_PEERS_MAX = 10_000
"""Peers that one ring report may list."""

assert DATA_BYTES_MAX * 4 < FRAME_BYTES_MAX, "an answer of a few of the largest items must fit"

LEAPS_MAX = 24
"""Leaps of a peer, each twice as far as the last: more than any ring needs."""
