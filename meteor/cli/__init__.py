"""The `meteor` command. Modules import click at the top and everything else inside commands.

main.py        `meteor` itself: all commands, in their order
group.py       a group of commands: order, help, what becomes of errors
failures.py    errors as people see them, and exit codes
client.py      what commands that talk to a ring share: --peer, --seconds, --json, the connection
display.py     how items, receipts and tables look
post.py        post, delete
find.py        retrieve, watch
ring.py        ring, status, leave
trace.py       trace
space.py       space
node.py        node: one peer
up.py          up: a local ring
local_ring.py  the processes of a local ring
bench.py       bench curve
completion.py  completion
"""
