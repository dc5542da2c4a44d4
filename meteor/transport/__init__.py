"""How peers reach each other: one interface, a TCP network and an in-memory twin.

network.py   the interface: dial an address, listen at one
tcp.py       sockets
memory.py    the twin: streams in memory with seeded latencies, for simulated rings
frames.py    length-prefixed msgpack, without I/O
channel.py   many requests in flight on one stream, with a handshake; the same on both networks
"""
