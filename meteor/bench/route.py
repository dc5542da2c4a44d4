"""Measures content routing on rings at rest: whom a query reaches, and what that takes.

The rings are simulated in one process, but each step of a query is decided by the code of a live
peer. Every answer is compared with brute force over all profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from meteor.bench.keywords import QUERIES, Query, make_profiles
from meteor.bench.layouts import Layout, keyword_layout, random_places, split_places
from meteor.bench.report import Plot, Report
from meteor.config import Config
from meteor.simulation.resting import RestingRing, Walk

if TYPE_CHECKING:
    from meteor.bench.layouts import Integers

DEFAULTS = Config()

PEERS = (100, 500, 1_000, 2_000, 5_000)
"""Rings as large as the paper's."""
PROFILES = 1_000_000
"""Profiles in the largest ring; smaller ones have as many a peer."""

WILDCARDS, RANGES = "keyword, wildcards", "three ranges of 10 %"
"""The queries of the paper's Figure 8."""
POSTS = "a post, which is a point"

PAPER_PROCESS, PAPER_MATCH = 11.0, 6.0
"""The paper's bounds for wildcards, in percent of the peers (section 5.2)."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one query took."""

    contacted: int
    owners: int
    matching: int
    messages: int
    depth: int
    asked_twice: int
    wanted: int
    """Profiles that it asks for, by brute force."""
    recalled: int
    """Of these, profiles that a peer which was reached has spoken for."""


def run(
    peers: Sequence[int] = PEERS,
    profiles: int = PROFILES,
    queries: int = 50,
    seed: int = 7,
    fingers: int = DEFAULTS.fingers,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Measure rings of several sizes, and how evenly the largest is loaded."""
    settings = {"profiles": profiles, "queries of each kind": queries, "fingers": fingers}
    report = Report("route", {"seed": seed, **settings})
    progress(f"making {profiles:,} profiles")
    layout = keyword_layout(make_profiles(profiles, seed))
    results: dict[int, dict[str, list[Found]]] = {}
    for count in sorted(peers):
        progress(f"{count:,} peers")
        part = layout.first(profiles * count // max(peers))
        random = Random(f"{seed} {count}")
        places = split_places(part, count, DEFAULTS.samples, random)
        ring = RestingRing(places, DEFAULTS.successors, fingers)
        results[count] = {
            kind: [_ask(ring, part, make(part.profiles, random), random) for _ in range(queries)]
            for kind, make in QUERIES.items()
        } | {POSTS: [_post(ring, part, random) for _ in range(queries)]}
        _routing(report, ring, results[count])
    _figure_8(report, results, profiles)
    progress("load")
    _balance(report, layout, max(peers), seed)
    return report


def _ask(ring: RestingRing, layout: Layout, query: Query, random: Random) -> Found:
    region = layout.region(query)
    wanted = layout.identifiers[layout.profiles.matching(query)]
    return _found(ring, Walk(ring, region, random.choice(ring.ids)), wanted)


def _post(ring: RestingRing, layout: Layout, random: Random) -> Found:
    """Follow data to their place, by a peer that has not heard of its owner before."""
    at = random.randrange(len(layout.identifiers))
    wanted = layout.identifiers[at : at + 1]
    return _found(ring, Walk(ring, Place(int(wanted[0])), random.choice(ring.ids)), wanted)


@dataclass(frozen=True, slots=True)
class Place:
    """A region of one identifier."""

    identifier: int

    def next(self, identifier: int) -> int | None:
        """Return the one, if it is not behind."""
        return self.identifier if identifier <= self.identifier else None


def _found(ring: RestingRing, walk: Walk, wanted: Integers) -> Found:
    owners = ring.owners(walk.members)
    assert set(walk.spoken) == owners, "an owner was left out, or somebody spoke for nothing"
    places = np.array(ring.ids, np.int64)
    lows, highs = np.array(walk.covered, np.int64).reshape(-1, 2).T
    span = np.searchsorted(lows, wanted, side="right") - 1  # the last that begins at or before
    recalled = (span >= 0) & (wanted <= highs[span]) if len(lows) else np.zeros(len(wanted), bool)
    return Found(
        walk.contacted,
        len(owners),
        len(np.unique(np.searchsorted(places, wanted) % len(places))),
        walk.messages,
        walk.depth,
        walk.asked_twice,
        len(wanted),
        int(recalled.sum()),
    )


def _routing(report: Report, ring: RestingRing, results: dict[str, list[Found]]) -> None:
    peers = len(ring)
    known = fmean(len(ring.known(me)) for me in ring.ids)
    section = report.section(
        f"{peers:,} peers, each knowing {known:.0f} others: means, and the most",
        "query",
        "contacted %",
        "most %",
        "owners %",
        "with matches %",
        "messages",
        "messages an owner",
        "depth",
        "most",
        "recall %",
        "asked twice",
    )
    for kind, found in results.items():
        owners = sum(one.owners for one in found)
        wanted = sum(one.wanted for one in found)
        section.add(
            kind,
            _percent((one.contacted for one in found), peers),
            100 * max(one.contacted for one in found) / peers,
            _percent((one.owners for one in found), peers),
            _percent((one.matching for one in found), peers),
            fmean(one.messages for one in found),
            sum(one.messages for one in found) / owners if owners else None,
            fmean(one.depth for one in found),
            max(one.depth for one in found),
            100 * sum(one.recalled for one in found) / wanted if wanted else None,
            sum(one.asked_twice for one in found),
        )


def _percent(counts: Iterable[int], peers: int) -> float:
    return 100 * fmean(counts) / peers


def _figure_8(report: Report, results: dict[int, dict[str, list[Found]]], profiles: int) -> None:
    """Put the same two lines beside the paper's, for wildcards and for ranges.

    A slab, which is what one keyword and two wildcards are, crosses N^(-1/3) of the peers' arcs at
    least, if these are cubes.
    """
    section = report.section(
        "Figure 8 of the paper: % of the peers that process a query, and that find matches",
        "peers",
        "profiles",
        "N^(-1/3) %",
        "wildcards: process",
        "match",
        "ranges: process",
        "match ",
    )
    section.add("the paper, to 5,000", "to 1,000,000", None, "< 11", "< 6", None, None)
    for kind, title in ((WILDCARDS, "Wildcard queries"), (RANGES, "Range queries")):
        plot = Plot(f"{title}, 3 dimensions", "peers", "% of the peers")
        report.plots.append(plot)
        for name, part in (("process the query", "contacted"), ("find matches", "matching")):
            plot.series[name] = [
                (peers, _percent((getattr(one, part) for one in found[kind]), peers))
                for peers, found in results.items()
            ]
    report.plots[0].levels |= {
        "the paper: process": PAPER_PROCESS,
        "the paper: match": PAPER_MATCH,
    }
    lines = [dict(line) for plot in report.plots for line in plot.series.values()]
    for peers in results:
        share = profiles * peers // max(results)
        section.add(f"{peers:,}", share, 100 * peers ** (-1 / 3), *(line[peers] for line in lines))


def _balance(report: Report, layout: Layout, peers: int, seed: int) -> None:
    """Say how many profiles the fullest peer has, beside the mean."""
    section = report.section(
        f"Load of {peers:,} peers: profiles of the fullest peer / mean",
        "codec",
        "places",
        "independent words",
        "correlated words",
    )
    correlated = make_profiles(len(layout.profiles), seed, correlated=True)
    pairs = {"keyword": (layout, keyword_layout(correlated))}
    for codec, layouts in pairs.items():
        for words, choose in PLACES.items():
            random = Random(f"{seed} {words}")
            loads = [one.loads(choose(one, peers, random)) for one in layouts]
            section.add(codec, words, *(float(load.max() / load.mean()) for load in loads))


PLACES: dict[str, Callable[[Layout, int, Random], list[int]]] = {
    "random": lambda _, peers, random: random_places(peers, random),
    f"the busiest of {DEFAULTS.samples} split": lambda layout, peers, random: split_places(
        layout, peers, DEFAULTS.samples, random
    ),
}
