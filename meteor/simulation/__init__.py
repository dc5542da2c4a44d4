"""Rings on virtual time: the real code, driven by a seed, with every fault a network has."""
