"""The rendezvous against brute force: at one peer, and at a ring cut anywhere."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from rendezvous_point import Point, post, told

from arms.aggregate import Aggregate, aggregate_of
from arms.message import Action, Kind, Message, region_of
from arms.rendezvous import WHOLE_RING
from arms.store import Spans
from arms.writes import Sweep
from squid import Region, Space


def small_space(dimensions: int) -> Space:
    """Return a space; profiles mention its first dimension and its last two."""
    names = ["a0", *(f"unused{i}" for i in range(dimensions - 3)), "a1", "a2"][:dimensions]
    lines = ['name = "small"', "version = 1"]
    for name in names:
        lines += ["[[dimension]]", f'name = "{name}"']
        lines += (
            ['codec = "number"', "min = 0", "max = 9"] if name == "a1" else ['codec = "keyword"']
        )
    return Space.from_toml("\n".join(lines))


ATTRIBUTES = ("a0", "a1", "a2", "plain")  # `plain` is no dimension and has texts and numbers
WORDS = ("ab", "abc", "b", "ba", "abc-floor-room1", "abc-floor-room2")


def is_text(attribute: str) -> bool:
    return attribute in ("a0", "a2")


words = st.sampled_from(WORDS)
numbers = st.sampled_from(("0", "1", "0.5", "0.500001", "4", "9", "12"))


def number_ranges() -> st.SearchStrategy[str]:
    two = st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted)
    compared = st.builds("{}{}".format, st.sampled_from(("<", "<=", ">", ">=")), numbers)
    return st.one_of(two.map(lambda ends: f"={ends[0]}..{ends[1]}"), compared)


def value(attribute: str, *, many: bool) -> st.SearchStrategy[str]:
    """Return what may follow an attribute: in data, or (many) also what stands for many values."""
    if is_text(attribute):
        options = [words.map("={}".format), st.sampled_from(("", "=7", "=1e20"))]
        if many:
            prefixes = ("=a*", "=ab*", "=b*", "=1*", "=abc-floor-room*")
            options += [st.sampled_from((*prefixes, "=*", "=ab..b", ">=abc", "=7..9"))]
    else:
        options = [numbers.map("={}".format), number_ranges(), st.just("")]
        if many:
            options += [st.sampled_from(("=*", "=0*"))]
        if attribute == "plain":
            options += [words.map("={}".format)]
    return st.one_of(options)


def conjunction(names: list[str], *, many: bool) -> st.SearchStrategy[str]:
    return st.tuples(*(value(name, many=many) for name in names)).map(
        lambda values: ", ".join(map("{}{}".format, names, values))
    )


def data_profiles(*, many: bool = False) -> st.SearchStrategy[str]:
    """Return profiles of one or two levels, each attribute once."""
    names = st.lists(st.sampled_from(ATTRIBUTES), min_size=1, unique=True)

    def levels(names: list[str]) -> st.SearchStrategy[str]:
        whole = conjunction(names, many=many)
        if len(names) == 1:
            return whole
        halves = (conjunction(names[:1], many=many), conjunction(names[1:], many=many))
        return whole | st.tuples(*halves).map(" / ".join)

    return names.flatmap(levels)


def interest_profiles() -> st.SearchStrategy[str]:
    names = st.lists(st.sampled_from(ATTRIBUTES), min_size=1, max_size=2)
    one = names.flatmap(lambda names: conjunction(names, many=True))
    level = st.lists(one, min_size=2, max_size=3).map(
        lambda options: " | ".join(f"({option})" for option in options)
    )
    joined = st.tuples(one, st.sampled_from((" / ", " // ")), one).map("".join)
    return st.one_of(one, level, joined, one.map("//{}".format))


class Model:
    """All messages in a list, and nothing clever."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.messages: dict[str, Message] = {}

    def live(self, now_ms: int, kind: Kind) -> list[Message]:
        return [
            message
            for message in self.messages.values()
            if message.stored_as is kind and message.header.expires_ms > now_ms
        ]

    def found(self, now_ms: int, interest: Message) -> list[tuple[int, str]]:
        places = []
        for data in self.live(now_ms, Kind.DATA):
            if interest.profile.selects(data.profile):
                at = self.region(interest).intersect(self.region(data)).lowest
                assert at is not None, "what matches meets"
                places.append((at, data.id))
        return sorted(places)

    def told(self, now_ms: int, message: Message) -> list[tuple[str, str]]:
        match message.action:
            case Action.STORE:
                return sorted(
                    (interest.id, message.id)
                    for interest in self.live(now_ms, Kind.INTEREST)
                    if interest.profile.selects(message.profile)
                )
            case Action.NOTIFY_DATA:
                return sorted(
                    (offer.id, message.id)
                    for offer in self.live(now_ms, Kind.ADVERTISEMENT)
                    if message.profile.could_select(offer.profile)
                )
            case Action.NOTIFY_INTEREST:
                return sorted(
                    (message.id, interest.id)
                    for interest in self.live(now_ms, Kind.INTEREST)
                    if interest.profile.could_select(message.profile)
                )
            case _:
                return []

    def region(self, message: Message) -> Region:
        return region_of(self.space, message)


kept_messages = st.one_of(
    st.tuples(st.just("store"), data_profiles()),
    st.tuples(st.just("store"), data_profiles()),
    st.tuples(st.just("notify_data"), interest_profiles()),
    st.tuples(st.just("notify_interest"), data_profiles(many=True)),
)
"""An action and a profile for it."""


class Comparison(RuleBasedStateMachine):
    """A rendezvous point does what the model says."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.numbers = count(1)
        self.takers: dict[str, str] = {}

    @initialize(dimensions=st.sampled_from((1, 3, 5, 8)))
    def begin(self, dimensions: int) -> None:
        space = small_space(dimensions)
        self.model = Model(space)
        self.point = Point(Path(self.folder.name) / "store.db", space)

    def teardown(self) -> None:
        if hasattr(self, "point"):
            self.point.store.close()
        self.folder.cleanup()

    @property
    def now_ms(self) -> int:
        return self.point.now_ms

    @rule(kept=st.lists(kept_messages, min_size=1, max_size=8), ttl_ms=st.integers(0, 50))
    def keep(self, kept: list[tuple[str, str]], ttl_ms: int) -> None:
        for action, profile in kept:
            number = next(self.numbers)
            id_ = f"m{number * 7919 % 1000:03}-{number}"  # ids in no order
            message = post(action, profile, id_, expires_ms=self.now_ms + ttl_ms, data=b"x" * 50)
            expected = self.model.told(self.now_ms, message)
            effect = self.point.post(message)
            assert told(effect) == expected
            matches = len(expected)
            if message.action is Action.NOTIFY_DATA:
                matches = len(self.model.found(self.now_ms, message))
            assert effect.matches == matches
            if ttl_ms and self.model.region(message):
                self.model.messages[id_] = message

    @rule(data=st.data(), more_ms=st.integers(-10, 50))
    def keep_again(self, data: st.DataObject, more_ms: int) -> None:
        alive = [message for kind in Kind for message in self.model.live(self.now_ms, kind)]
        if not alive:
            return
        known = data.draw(st.sampled_from(alive))
        header = known.header
        expires_ms = header.expires_ms + more_ms
        again = known.sent_by(header.sender, header.reply_to, expires_ms)
        if expires_ms > self.now_ms:
            assert self.point.post(again).notifications == ()
            if more_ms > 0:
                self.model.messages[known.id] = again

    @rule(profile=interest_profiles(), rows_max=st.integers(1, 9), bytes_max=st.integers(1, 900))
    def retrieve(self, profile: str, rows_max: int, bytes_max: int) -> None:
        question = post("retrieve", profile)
        expected = self.model.found(self.now_ms, question)
        found, _, _ = self.point.pages(question, bytes_max, rows_max)
        assert [(match.identifier, match.message.id) for match in found] == expected
        assert all(match.message == self.model.messages[match.message.id] for match in found)

    @rule(profile=interest_profiles(), limit=st.integers(1, 3))
    def retrieve_some(self, profile: str, limit: int) -> None:
        question = post("retrieve", profile, limit=limit)
        page = self.point.rendezvous.page(self.now_ms, question, self.point.spans, {}, 10**9, 10**9)
        expected = self.model.found(self.now_ms, question)[:limit]
        assert [(match.identifier, match.message.id) for match in page.found] == expected

    @rule(profile=interest_profiles(), rows_max=st.integers(1, 9))
    def aggregate(self, profile: str, rows_max: int) -> None:
        question = post("retrieve", profile, aggregate="sum", attribute="a1")
        expected = Aggregate()
        for _, id_ in self.model.found(self.now_ms, question):
            expected = expected.merge(aggregate_of(self.model.messages[id_].profile, "a1"))
        _, aggregate, _ = self.point.pages(question, 1, rows_max)
        assert aggregate.result("sum") == pytest.approx(expected.result("sum"))
        for name in ("count", "min", "max"):
            assert aggregate.result(name) == expected.result(name)

    @rule(profile=interest_profiles())
    def delete_data(self, profile: str) -> None:
        delete = post("delete_data", profile)
        doomed = self.model.found(self.now_ms, delete)
        assert self.point.post(delete).matches == len(doomed)
        for _, id_ in doomed:
            self.forget(id_)

    @rule(profile=interest_profiles())
    def delete_interest(self, profile: str) -> None:
        delete = post("delete_interest", profile)
        doomed = [
            interest.id
            for interest in self.model.live(self.now_ms, Kind.INTEREST)
            if delete.profile.selects(interest.profile)
        ]
        assert self.point.post(delete).matches == len(doomed)
        for id_ in doomed:
            self.forget(id_)

    def forget(self, id_: str) -> None:
        """Forget a message, and see that it can't come back."""
        message = self.model.messages.pop(id_)
        assert self.point.post(message).notifications == ()

    @rule(data=st.data(), taker=st.sampled_from(("t1", "t2")))
    def take(self, data: st.DataObject, taker: str) -> None:
        alive = sorted(message.id for message in self.model.live(self.now_ms, Kind.DATA))
        if not alive:
            return
        id_ = data.draw(st.sampled_from(alive))
        assert self.point.take(id_, taker)
        assert self.point.take(id_, taker)
        assert not self.point.take(id_, "somebody else")
        self.forget(id_)

    @rule(later_ms=st.integers(1, 30))
    def wait(self, later_ms: int) -> None:
        self.point.now_ms += later_ms

    @rule(limit=st.integers(1, 5))
    def sweep(self, limit: int) -> None:
        self.point.store.apply(self.now_ms, [[Sweep(limit)]])

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "point"):
            expected = {kind: len(self.model.live(self.now_ms, kind)) for kind in Kind}
            assert self.point.store.counts(self.now_ms) == expected


TestComparison = Comparison.TestCase
TestComparison.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def cut(places: list[int]) -> list[Spans]:
    """Return the arcs of a ring whose peers have these identifiers; one of them wraps."""
    ends = sorted(set(places))
    ((first, last),) = WHOLE_RING
    if not ends:
        return [WHOLE_RING]
    arcs: list[Spans] = [((low + 1, high),) for low, high in pairwise(ends)]
    wrapping = [(first, ends[0])]
    if ends[-1] < last:
        wrapping.append((ends[-1] + 1, last))
    return [wrapping, *arcs]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from((1, 3, 5, 8)),
    st.lists(kept_messages, min_size=1, max_size=25),
    st.lists(interest_profiles(), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 100), st.integers(-1, 1)), max_size=5),
    st.lists(st.integers(0, WHOLE_RING[0][1]), max_size=3),
)
@example(
    3,
    [("notify_data", "a1>3 | a0=a*"), ("store", "a0=ab, a1<8"), ("notify_interest", "a0=*, a1=*")],
    ["a0=*", "a1<9"],
    [(0, 0), (1, -1)],
    [1 << 61],
)
def test_whatever_the_ring_every_match_counts_once(
    dimensions: int,
    kept: list[tuple[str, str]],
    questions: list[str],
    near: list[tuple[int, int]],
    anywhere: list[int],
) -> None:
    """Peers stand anywhere, and near the places where messages begin."""
    space = small_space(dimensions)
    model = Model(space)
    messages = [post(action, profile, data=b"x") for action, profile in kept]
    begins = sorted({model.region(m).lowest or 0 for m in messages})
    places = [max(0, begins[i % len(begins)] + step) for i, step in near] + anywhere
    with tempfile.TemporaryDirectory() as folder:
        peers = [
            Point(Path(folder) / f"{i}.db", space, spans) for i, spans in enumerate(cut(places))
        ]

        def reached(message: Message) -> list[Point]:
            region = model.region(message)
            return [p for p in peers if any(region.meets(low, high) for low, high in p.spans)]

        for message in messages:
            effects = [peer.post(message) for peer in reached(message)]
            notified = Counter(pair for effect in effects for pair in told(effect))
            assert notified == Counter(model.told(0, message))
            if message.action is Action.NOTIFY_DATA:
                counted = sum(effect.matches for effect in effects)
                assert counted == len(model.found(0, message))
            if model.region(message):
                model.messages[message.id] = message
        for profile in questions:
            question = post("retrieve", profile)
            found = [
                (match.identifier, match.message.id)
                for peer in reached(question)
                for match in peer.pages(question, rows_max=2)[0]
            ]
            assert sorted(found) == model.found(0, question)
        delete = post("delete_data", questions[0])
        deleted = sum(peer.post(delete).matches for peer in reached(delete))
        assert deleted == len(model.found(0, delete))
        assert not any(peer.pages(delete)[0] for peer in reached(delete))
        for peer in peers:
            peer.store.close()
