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
from meteor.bench.layouts import Layout, keyword_layout, quantile_layout
from meteor.bench.report import Plot, Report
from meteor.config import Config
from meteor.simulation.resting import RestingRing, Walk

if TYPE_CHECKING:
    from meteor.bench.balance import Identifiers

DEFAULTS = Config()

PEERS = (100, 500, 1_000, 2_000, 5_000)
"""Rings as large as the paper's."""
PROFILES = 200_000
"""Profiles in the largest ring; smaller ones have as many a peer."""

UPKEEP_SAMPLE = 100
"""Peers whose fingers are looked up."""

FIGURE_8 = {
    "Wildcard queries": {"keyword, wildcards": "any", "keyword as posted, wildcards": "posted"},
    "Range queries": {"three ranges of 10 %": "ranges"},
}
"""The two parts of the paper's figure, and the kinds of queries that stand for each."""
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
    layout = quantile_layout(make_profiles(profiles, seed))
    results: dict[int, dict[str, list[Found]]] = {}
    for count in sorted(peers):
        progress(f"{count:,} peers")
        part = layout.first(profiles * count // max(peers))
        random = Random(f"{seed} {count}")
        places = part.places(count, DEFAULTS.samples, random)
        ring = RestingRing(places, DEFAULTS.successors, fingers)
        results[count] = {
            kind: [_ask(ring, part, make(part.profiles, random), random) for _ in range(queries)]
            for kind, make in QUERIES.items()
        } | {POSTS: [_post(ring, part, random) for _ in range(queries)]}
        _routing(report, ring, results[count])
    _upkeep(report, ring, random)
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


def _found(ring: RestingRing, walk: Walk, wanted: Identifiers) -> Found:
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


def _upkeep(report: Report, ring: RestingRing, random: Random) -> None:
    """Say what it takes a peer to look up all of its fingers once."""
    section = report.section(
        f"Fingers of {len(ring):,} peers: what one takes to look all of them up",
        "peers known",
        "lookups",
        "questions a lookup",
    )
    sample = random.sample(ring.ids, min(UPKEEP_SAMPLE, len(ring)))
    targets = [(me, target) for me in sample for target in ring.targets(me)]
    questions = [ring.hops(me, target) + 1 for me, target in targets]  # and one to the owner
    known = fmean(len(ring.known(me)) for me in ring.ids)
    section.add(known, len(targets) / len(sample), fmean(questions) if questions else None)


def _percent(counts: Iterable[int], peers: int) -> float:
    return 100 * fmean(counts) / peers


def _figure_8(report: Report, results: dict[int, dict[str, list[Found]]], profiles: int) -> None:
    """Put the same two lines beside the paper's, for wildcards and for ranges.

    A slab, which is what one keyword and two wildcards are, crosses N^(-1/3) of the peers' arcs at
    least, if these are cubes.
    """
    columns: dict[str, list[tuple[float, float]]] = {}
    for title, kinds in FIGURE_8.items():
        plot = Plot(f"{title}, 3 dimensions", "peers", "% of the peers")
        report.plots.append(plot)
        for kind, label in kinds.items():
            for name, part in (("process", "contacted"), ("match", "matching")):
                line: list[tuple[float, float]] = [
                    (peers, _percent((getattr(one, part) for one in found[kind]), peers))
                    for peers, found in results.items()
                ]
                plot.series[f"{label}: {name}"] = columns[f"{label}: {name}"] = line
    report.plots[0].levels |= {
        "the paper: process": PAPER_PROCESS,
        "the paper: match": PAPER_MATCH,
    }
    section = report.section(
        "% of the peers that process a query and that find matches; in the paper's Figure 8, for "
        f"wildcards, below {PAPER_PROCESS:.0f} and {PAPER_MATCH:.0f}",
        "peers",
        "profiles",
        "N^(-1/3)",
        *columns,
    )
    for i, peers in enumerate(results):
        shares = (line[i][1] for line in columns.values())
        share = profiles * peers // max(results)
        section.add(f"{peers:,}", share, 100 * peers ** (-1 / 3), *shares)


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
    codecs = {
        "keyword": (keyword_layout(layout.profiles), keyword_layout(correlated)),
        "quantile, with dither": (layout, quantile_layout(correlated)),
    }
    for codec, layouts in codecs.items():
        for samples in (0, DEFAULTS.samples):
            words = f"the busiest of {samples} is split" if samples else "random"
            random = Random(f"{seed} {words}")
            spread = (one.imbalance(one.places(peers, samples, random)) for one in layouts)
            section.add(codec, words, *spread)
