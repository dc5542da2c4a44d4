"""The bounds of the profile language, each with its reason."""

from __future__ import annotations

# A page of text: far more than people write, small enough to parse in a few milliseconds.
PROFILE_CHARACTERS_MAX = 8_192

# Brackets in brackets. The parser recurses once a bracket: well inside Python's own stack.
PROFILE_NESTING_MAX = 32

# `/` and `//` levels. Hierarchies that people name (site, building, floor, room) stay below ten.
PROFILE_LEVELS_MAX = 16

# `attr=value` elements. An information space has at most 8 dimensions; the rest is matched only.
PROFILE_ELEMENTS_MAX = 256

# Alternatives once every `|` is multiplied out. Each becomes a box to route by and to index, and a
# few brackets are enough to ask for thousands.
PROFILE_ALTERNATIVES_MAX = 64

# Parsed profiles kept by their text: sensors and watchers use the same few again and again, and
# even if all were as large as allowed they would take some 100 MB.
PARSED_PROFILES_KEPT = 1_024

# Data of one message. A reading, a picture, a small document; larger things belong in a file whose
# profile and place are posted.
DATA_BYTES_MAX = 1024 * 1024

# Ids, senders, credentials, and each side of a context entry.
TEXT_FIELD_MAX = 256

# Entries of a message's context.
CONTEXT_ENTRIES_MAX = 32

# A year and a day: what should outlive that is an archive's business, not a rendezvous'.
TTL_SECONDS_MAX = 366 * 24 * 3600

# The end of time: what SQLite's integers hold.
TIME_MS_MAX = 2**63 - 1

# Characters of the profiles of stored messages that are kept ready for matching, in all: those of
# some 80,000 usual ones. Parsed and compiled they take about twelve times as many bytes.
HOT_CHARACTERS_MAX = 4_000_000

# Blocks of 64 data points that a retrieval looks through in memory; where it would be more, it
# walks the points in order instead. It does so again for each page of some 10 ms.
POINT_BLOCKS_MAX = 1_024

# Ids of crowded places (a thousand messages and more at one identifier) that are kept in order for
# those who read them page by page: so many in all, or those of one place if it has more. 25 MB.
CROWD_IDS_KEPT = 100_000

# Regions kept by profile: computing one takes tens of microseconds, and sensors repeat theirs.
REGIONS_KEPT = 8_192

# Places of data kept by the text of their profile: finding one takes some 10 microseconds, and this
# many take some 25 MB. Sensors with ten thousand different readings stay within it.
SITES_KEPT = 32_768

# Those who watch for data at such places, in all: each takes some 70 bytes.
WATCHERS_KEPT = 262_144

# Values of data whose cells in the finer grid are kept: finding them takes some microseconds.
VALUES_KEPT = 32_768

# Stored data that a new interest counts at one peer; a receipt says "at least" from there on.
MATCHES_COUNTED_MAX = 1_000

# Messages that one transaction deletes, so that posts never wait long behind a large delete.
DELETES_PER_COMMIT = 1_000

# Peers that vote on who takes an item: the copies of a message, with room for larger settings.
VOTERS_MAX = 16

# An action's ballot: a round, and the place of the peer that leads it. Rounds only grow when two
# peers lead at once, so a few bits would do.
ROUNDS_MAX = 2**31

# The name of an inbox: what people call a program or a desk, and it must fit a profile many times.
INBOX_NAME_MAX = 128

# Notes that wait in one inbox for a subscriber who is away; then marks say that there were more.
INBOX_NOTES_MAX = 10_000

# Reliable watches that one post may match at one peer: their notes are placed before it is
# acknowledged, so its sender waits for all of them.
NOTES_PER_POST_MAX = 256
