"""Measures a ring of real processes on loopback, and beside it what people use today.

Every system has its own servers, one publisher and one watcher. All flows of a repeat are run one
after the other; then comes the next repeat.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meteor.bench.flow import Flow, FlowFailed, System, measure
from meteor.bench.others import Mosquitto, Nats, Zenoh
from meteor.bench.own_ring import OwnRing
from meteor.bench.report import Cell, Plot, Report, Section, Spread

PACE_PER_SECOND = 500.0
"""Messages a second when latency is measured: so few that none waits for another."""

PACED_MESSAGES = 1_000

WATCHED_SHARE = 5
"""Flows with many watches have a fifth of the messages: each is delivered ten times."""

COMPARED_WITH = ("mosquitto QoS 1", "nats")
"""Systems that have a column of how many times faster the others are."""

Measured = list[dict[str, float]]


@dataclass(frozen=True)
class Case:
    """One flow through one system."""

    system: System
    words: str
    flow: Flow


def run(
    messages: int = 50_000,
    repeats: int = 3,
    peers: Sequence[int] = (1, 3, 8),
    watches: Sequence[int] = (0, 1_000, 10_000),
    seed: int = 7,
    others: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Measure flat out, at a pace, with many watches, and on rings of several peers."""
    report = Report("ring", {"messages": messages, "repeats": repeats, "seed": seed})
    runner = _Runner(report, repeats, progress)
    single = OwnRing()
    brokers: list[System] = [Mosquitto(1), Mosquitto(0), Nats(), Zenoh()] if others else []
    runner.flat_out(single, brokers, messages, seed)
    runner.latency(single, brokers, seed)
    own = [single, OwnRing(learnt=False)]
    runner.watches([*own, *brokers[1:]], watches, messages // WATCHED_SHARE, seed)
    runner.peers(peers, messages, seed)
    return report


class _Runner:
    def __init__(self, report: Report, repeats: int, progress: Callable[[str], None]) -> None:
        self._report, self._repeats, self._progress = report, repeats, progress

    def flat_out(self, own: System, brokers: list[System], messages: int, seed: int) -> None:
        """Compare messages a second, end to end."""
        durable, transient = Flow(messages, "durable", seed=seed), Flow(messages, seed=seed)
        each = Flow(messages // 2, "durable", awaited=True, seed=seed)
        cases = [
            Case(own, "durable, pipelined", durable),
            Case(own, "durable, each post awaited by one of 200 tasks", each),
            Case(own, "transient, pipelined", transient),
        ]
        for i, broker in enumerate(brokers):
            # Only the first acknowledges messages.
            cases.append(Case(broker, "pipelined", transient if i else durable))
        compared = COMPARED_WITH if brokers else ()
        section = self._report.section(
            "Flat out: 100 bytes, one publisher, one watcher; messages a second, end to end",
            "system",
            "posts",
            "messages/s",
            *(f"times {name}" for name in compared),
        )
        results = self._measure(cases)
        plot = Plot("Flat out", "", "messages a second")
        for case, measured in results.items():
            rates = _rates(measured)
            if rates:
                kind = "awaited" if case.flow.awaited else case.words.split(",")[0]
                name = f"{case.system.name} {kind}".replace(" ", "\n")
                plot.bars[name] = Spread.of(rates).median
                section.add(
                    case.system.name,
                    case.words,
                    Spread.of(rates),
                    *(self._against(rates, results, name) for name in compared),
                )
        self._report.plots.append(plot)

    def latency(self, own: System, brokers: list[System], seed: int) -> None:
        """Compare the time from one program to the other when nothing else happens."""
        flow = Flow(PACED_MESSAGES, per_second=PACE_PER_SECOND, seed=seed)
        kept = Flow(PACED_MESSAGES, "durable", per_second=PACE_PER_SECOND, seed=seed)
        cases = [Case(own, "transient", flow), Case(own, "durable", kept)]
        cases += [Case(broker, "", flow) for broker in brokers]
        section = self._report.section(
            f"One way at {PACE_PER_SECOND:.0f} messages a second, microseconds",
            "system",
            "posts",
            "p50",
            "p99",
        )
        self._add(section, cases, "p50_us", "p99_us")

    def watches(
        self, systems: list[System], watches: Sequence[int], messages: int, seed: int
    ) -> None:
        """Compare messages a second when there are many watches, of which each matches ten."""
        section = self._report.section(
            "Many watches: messages a second (with watches, each is delivered 10 times); "
            "meteor's are ranges and prefixes, the others' are plain topics",
            "system",
            "watches",
            "messages/s",
        )
        cases = [
            Case(system, f"{count:,}", Flow(messages, watches=count, seed=seed))
            for count in watches
            for system in systems
        ]
        self._add(section, cases, "per_second")

    def peers(self, peers: Sequence[int], messages: int, seed: int) -> None:
        """Show what more peers, and their copies, add."""
        section = self._report.section(
            "Rings of several peers (up to 3 copies of what is stored), all on this machine",
            "peers",
            "posts",
            "messages/s",
            f"p50 us at {PACE_PER_SECOND:.0f}/s",
            "p99 us",
        )
        for count in peers:
            ring = OwnRing(count)
            for mode in ("transient", "durable"):
                fast = Case(ring, mode, Flow(messages, mode, seed=seed))
                paced = Flow(PACED_MESSAGES, mode, per_second=PACE_PER_SECOND, seed=seed)
                results = self._measure([fast, Case(ring, f"{mode}, paced", paced)])
                flat, slow = results.values()
                section.add(
                    str(count),
                    mode,
                    Spread.of(_rates(flat)) if flat else None,
                    Spread.of(m["p50_us"] for m in slow) if slow else None,
                    Spread.of(m["p99_us"] for m in slow) if slow else None,
                )

    def _add(self, section: Section, cases: list[Case], *figures: str) -> None:
        for case, measured in self._measure(cases).items():
            if measured:
                cells: list[Cell] = [Spread.of(m[name] for m in measured) for name in figures]
                section.add(case.system.name, case.words, *cells)

    def _measure(self, cases: list[Case]) -> dict[Case, Measured]:
        results: dict[Case, Measured] = {case: [] for case in cases}
        for turn in range(self._repeats):
            for case in cases:
                if self._can(case.system):
                    self._progress(f"{case.system.name} {case.words} ({turn + 1}/{self._repeats})")
                    try:
                        with (
                            tempfile.TemporaryDirectory() as folder,
                            case.system.running(folder) as address,
                        ):
                            results[case].append(measure(case.system, address, case.flow))
                    except FlowFailed as error:
                        self._note(f"{case.system.name}, {case.words}: failed: {error}")
        return results

    def _can(self, system: System) -> bool:
        why = system.missing()
        if why:
            self._note(f"{system.name} was left out: {why}")
        return not why

    def _note(self, words: str) -> None:
        if words not in self._report.notes:
            self._report.notes.append(words)

    def _against(
        self, rates: list[float], results: dict[Case, Measured], name: str
    ) -> Spread | None:
        theirs = next((_rates(m) for c, m in results.items() if c.system.name == name), [])
        return Spread.of_ratios(rates, theirs) if len(theirs) == len(rates) and theirs else None


def _rates(measured: Measured) -> list[float]:
    return [m["per_second"] for m in measured]
