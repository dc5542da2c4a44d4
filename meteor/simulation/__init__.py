"""A whole ring of the real code in one process, on virtual time, where everything goes wrong.

determinism.py  one seed, one history: trio's scheduling and the digest of all that happens
faults.py       what can go wrong, and the frames that are lost, repeated and reordered
disk.py         the disk twin: slow, and after a power cut without what was not synced
world.py        peers and clients of one simulated network
nemesis.py      makes things go wrong, within what the ring promises to bear
workload.py     what clients do, and their own log of what they were told
checks.py       judges the log and the ring
run.py          one simulation from its seed to its report
cores.py        the other tier: Chord cores alone in a plain event loop, in any interleaving
growth.py       thousands of cores, or thousands of seeds
"""
