"""The client library: connect to any peer, post, watch, and stay connected when that peer dies.

ring.py        `connect` and `Ring`: what a program calls
connection.py  the connection that moves to another peer when its own dies
posting.py     plain posts, many in one request
standing.py    the watches at the ring: posted, renewed, told what came
watch.py       watches: async iterators of notifications
inbox.py       reliable watches: what waited in an inbox, acknowledged
requests.py    what goes into requests, checked
retrieval.py   retrievals: async iterators over pages
results.py     what calls return: receipts, items, reports
"""

from meteor.client.results import Aggregated, Item, Post, Receipt, RingReport
from meteor.client.ring import Ring, connect

__all__ = ["Aggregated", "Item", "Post", "Receipt", "Ring", "RingReport", "connect"]
