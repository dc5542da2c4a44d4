"""Associative rendezvous: profiles, and which data an interest selects."""

from arms.errors import ArmsError, ProfileError
from arms.profile import And, Axis, Element, Level, Or, Path, Profile, Step

__all__ = [
    "And",
    "ArmsError",
    "Axis",
    "Element",
    "Level",
    "Or",
    "Path",
    "Profile",
    "ProfileError",
    "Step",
]
