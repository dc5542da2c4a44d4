"""Cascading local behaviours: the table on its own, and elements on a real ring."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from rings import ring_of
from trio.testing import wait_all_tasks_blocked

from arms.profile import Profile
from meteor import Item, MeteorError, connect
from meteor.behaviour import Behaviour, Content, Context, Event, Post, Transition
from meteor.elements import Element
from meteor.errors import ElementError
from meteor.limits import EVENTS_QUEUED_MAX
from squid import Space

ROOT = Path(__file__).parents[2]
HOME = ROOT / "deployments" / "smart-home"


def load_home() -> ModuleType:
    spec = importlib.util.spec_from_file_location("smart_home", HOME / "home.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


home = load_home()


def silent(device: str, words: str) -> None:
    pass


def item(profile: str, id_: str = "1") -> Item:
    return Item(id_, profile, b"", "someone", {}, 0)


def toggle(name: str = "lamp") -> Behaviour:
    """A lamp with one button."""
    button = Context("button")
    return Behaviour(
        name,
        states=("dark", "lit"),
        transitions=(Transition("dark", button, "lit"), Transition("lit", button, "dark")),
    )


# -- the table -------------------------------------------------------------------------------------


def test_temperature_above_the_threshold_is_posted() -> None:
    sensor = home.sensor(silent)
    step = sensor.step("cool", Event(Context("reading"), 91))
    assert step is not None
    assert step.state == "warm"
    (post,) = step.posts
    assert Profile.parse("type=temperature, degree=91").selects(Profile.parse(post.profile))


def test_an_event_that_no_transition_is_for_changes_nothing() -> None:
    sensor = home.sensor(silent)
    assert sensor.step("cool", Event(Context("reading"), 90)) is None
    assert sensor.step("warm", Event(Context("reading"), 91)) is None
    assert sensor.step("cool", Event(Content("type=temperature"), item("degree=91"))) is None


def test_the_first_transition_of_the_table_whose_condition_holds_takes_place() -> None:
    behaviour = Behaviour(
        "counter",
        states=("few", "some", "many"),
        transitions=(
            Transition("few", Context("count"), "many", when=lambda count: count > 10),
            Transition("few", Context("count"), "some"),
        ),
    )
    for count, state in ((11, "many"), (10, "some")):
        step = behaviour.step("few", Event(Context("count"), count))
        assert step is not None
        assert step.state == state


def test_watches_are_those_of_the_state() -> None:
    window = home.window(silent)
    assert [str(content) for content in window.watches("open")] == [
        "type=temp-control, location=living-room, cooling=on"
    ]
    assert [str(content) for content in window.watches("shut")] == [
        "type=temp-control, location=living-room, cooling=off"
    ]
    assert home.sensor(silent).watches("cool") == ()


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.sampled_from(("x", "y"))), st.sampled_from("abc")
    ),
    st.lists(st.sampled_from(("x", "y"))),
)
def test_a_table_walks_as_a_dictionary_does(
    table: dict[tuple[str, str], str], events: list[str]
) -> None:
    hub = [Transition("hub", Context(f"to_{state}"), state) for state in "abc"]
    rows = [Transition(source, Context(on), target) for (source, on), target in table.items()]
    behaviour = Behaviour("walker", ("hub", *"abc"), (*hub, *rows))
    state = expected = "a"
    for event in events:
        step = behaviour.step(state, Event(Context(event)))
        state = step.state if step else state
        expected = table.get((expected, event), expected)
        assert state == expected


def test_a_wrong_table_is_refused_with_all_that_is_wrong() -> None:
    with pytest.raises(ElementError) as caught:
        Behaviour(
            "the window",
            states=("open", "shut", "shut", "broken"),
            transitions=(
                Transition("open", Content("type=temp-control, cooling="), "shut"),
                Transition("open", Context("wind"), "shutt"),
                Transition("shut", Context("calm"), "open"),
                Transition("shut", Context("calm"), "open", posts=(Post("type=("),)),
            ),
        )
    problems = "\n".join(caught.value.problems)
    for words in (
        "'the window' can't be the name of an element",
        "the state 'shut' is listed 2 times",
        "no transitions lead from 'open' to the state 'broken'",
        "open -> shut on type=temp-control, cooling=: column",
        "there is no state 'shutt'; there are open, shut",
        "it never takes place, because the one to 'open' comes first",
        "column 6",
    ):
        assert words in problems
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    assert isinstance(caught.value, MeteorError)


@pytest.mark.parametrize(
    ("states", "words"),
    [((), "it has no states"), (("open",), "it has no transitions")],
)
def test_an_empty_table_is_refused(states: tuple[str, ...], words: str) -> None:
    with pytest.raises(ElementError, match=words):
        Behaviour("window", states, ())


def test_values_are_read_from_an_items_profile() -> None:
    reading = item('type=temperature, degree=91, error<0.5, note="a: b", indoors / degree=3')
    assert reading.value("degree") == 91
    assert reading.value("type") == "temperature"
    assert reading.value("note") == "a: b"
    assert reading.value("error") is None
    assert reading.value("indoors") is None
    assert reading.value("unit") is None
    assert item("degree=-1.5").value("degree") == -1.5


def test_the_pictures_in_the_documentation_are_made_from_the_tables() -> None:
    pictures = re.findall(
        r"```mermaid\n(.*?)```", (ROOT / "docs" / "elements.md").read_text(), re.DOTALL
    )
    assert pictures == [make(silent).to_mermaid() for make in home.DEVICES.values()]


def test_a_picture_shows_what_means_something_to_mermaid_as_codes() -> None:
    behaviour = Behaviour(
        "alarm", ("calm", "loud"), (Transition("calm", Content('note="a: b;", x>1'), "loud"),)
    )
    assert behaviour.to_mermaid().splitlines() == [
        "stateDiagram-v2",
        "    [*] --> calm",
        '    calm --> loud : note="a#58; b#59;", x#62;1',
    ]
    assert Element(behaviour).to_mermaid() == behaviour.to_mermaid()


# -- elements --------------------------------------------------------------------------------------


SPACES = {
    file.stem: Space.from_toml(file.read_text())
    for file in (HOME / "home.toml", ROOT / "meteor" / "lab.toml")
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
async def test_the_smart_home_with_a_window_that_joins_late(tmp_path: Path, space: Space) -> None:
    said: list[tuple[str, str]] = []

    def say(device: str, words: str) -> None:
        said.append((device, words))

    elements = {device: Element(make(say)) for device, make in home.DEVICES.items()}
    sensor, thermostat, window, fan = elements.values()
    with trio.fail_after(20):
        async with ring_of(3, tmp_path, space=space) as peers, trio.open_nursery() as nursery:
            addresses = list(peers.addresses.values())

            async def live(
                element: Element, address: str, *, task_status: trio.TaskStatus[None]
            ) -> None:
                async with connect(address, name=element.behaviour.name) as ring:
                    await element.run(ring, task_status=task_status)

            for element, address in zip((sensor, thermostat, fan), addresses, strict=True):
                await nursery.start(live, element, address)

            sensor.event("reading", 72)
            await thermostat.wait_state("off")
            sensor.event("reading", 91)
            await thermostat.wait_state("on")
            await fan.wait_state("still")

            assert window.state == "open"
            await nursery.start(live, window, addresses[1])
            await window.wait_state("shut")

            sensor.event("reading", 80)
            sensor.event("reading", 74)
            await thermostat.wait_state("off")
            await fan.wait_state("running")
            await window.wait_state("open")

            sensor.event("reading", 95)
            await window.wait_state("shut")
            await fan.wait_state("still")
            nursery.cancel_scope.cancel()
    assert ("thermostat", "91 degrees: turns the air conditioning on") in said
    assert [words for device, words in said if device == "window"] == [
        "shuts itself",
        "opens again",
        "shuts itself",
    ]


async def test_whoever_comes_late_finds_only_what_still_holds(tmp_path: Path) -> None:
    thermostat = Element(home.thermostat(silent))
    with trio.fail_after(20):
        async with (
            ring_of(1, tmp_path) as peers,
            connect(peers.address) as ring,
            trio.open_nursery() as nursery,
            ring.watch("type=temp-control") as controls,
        ):
            await nursery.start(thermostat.run, ring)
            for degrees in (91, 70, 95):
                await ring.store(f"type=temperature, location=living-room, degree={degrees}")
                await anext(controls)
            stored = await ring.retrieve("type=temp-control").all()
            assert [control.value("cooling") for control in stored] == ["on"]
            nursery.cancel_scope.cancel()


class StoredOnly:
    """A ring that has some items, and gets no others."""

    def __init__(self, *items: Item) -> None:
        self.items = items
        self.watched: list[str] = []

    @asynccontextmanager
    async def watch(self, profile: str, *, replay: bool) -> AsyncIterator[AsyncIterator[Item]]:
        assert replay
        send, receive = trio.open_memory_channel[Item](len(self.items))
        for stored in self.items:
            if Profile.parse(profile).selects(Profile.parse(stored.profile)):
                send.send_nowait(stored)
        self.watched.append(profile)
        try:
            with send, receive:
                yield receive
        finally:
            self.watched.remove(profile)


async def test_a_watch_gives_an_item_once_though_its_state_is_entered_again() -> None:
    """Both balls stay stored: an element that took them again would never come to rest."""
    taken: list[str] = []

    def take(found: Item) -> None:
        taken.append(found.id)

    player = Element(
        Behaviour(
            "player",
            states=("here", "there"),
            transitions=(
                Transition("here", Content("ball=red"), "there", action=take),
                Transition("there", Content("ball=blue"), "here", action=take),
            ),
        )
    )
    ring = StoredOnly(item("ball=red", "1"), item("ball=blue", "2"))
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(player.run, ring)
            await wait_all_tasks_blocked(0.01)
            assert (taken, player.state) == (["1", "2"], "here")
            assert ring.watched == ["ball=red"]
            nursery.cancel_scope.cancel()


async def test_what_came_for_a_state_that_was_left_is_kept_for_when_it_is_entered_again() -> None:
    taken: list[str] = []

    async def take(found: Item) -> None:
        await wait_all_tasks_blocked()  # by now the second ball is queued
        taken.append(found.id)

    player = Element(
        Behaviour(
            "player",
            states=("free", "busy"),
            transitions=(
                Transition("free", Content("ball"), "busy", action=take),
                Transition("busy", Context("thrown"), "free"),
            ),
        )
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(player.run, StoredOnly(item("ball", "1"), item("ball", "2")))
        await wait_all_tasks_blocked(0.01)
        assert (taken, player.state) == (["1"], "busy")
        player.event("thrown")
        await wait_all_tasks_blocked(0.01)
        assert (taken, player.state) == (["1", "2"], "busy")
        nursery.cancel_scope.cancel()


async def test_a_failing_action_leaves_the_state_and_the_element_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    async def shut(strength: int) -> None:
        await trio.lowlevel.checkpoint()
        tries.append(strength)
        if strength < 2:
            raise OSError("the window is jammed")

    window = Element(
        Behaviour(
            "window",
            states=("open", "shut"),
            transitions=(
                Transition(
                    "open", Context("push"), "shut", action=shut, posts=(Post("type=window"),)
                ),
            ),
        )
    )
    with trio.fail_after(20):
        async with (
            ring_of(1, tmp_path) as peers,
            connect(peers.address) as ring,
            trio.open_nursery() as nursery,
            ring.watch("type=window") as messages,
        ):
            window.event("push", 1)
            window.event("push", 2)
            await nursery.start(window.run, ring)
            await anext(messages)
            assert (await ring.aggregate("type=window")).value == 1
            nursery.cancel_scope.cancel()
    assert tries == [1, 2]
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.getMessage() == (
        "window: open -> shut on push / shut / post(type=window) failed; it stays open"
    )
    assert "jammed" in (record.exc_text or "")


async def test_a_failing_condition_and_a_refused_message_do_not_end_the_element(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def strong(value: int) -> bool:
        return 10 // value > 1

    def message(value: int) -> Post:
        return Post("type=*")  # no data: '*' leaves the value open

    element = Element(
        Behaviour(
            "bell",
            states=("quiet", "ringing"),
            transitions=(
                Transition("quiet", Context("push"), "ringing", when=strong, posts=(message,)),
                Transition("ringing", Context("stop"), "quiet"),
            ),
        )
    )
    with trio.fail_after(20):
        async with (
            ring_of(1, tmp_path) as peers,
            connect(peers.address) as ring,
            trio.open_nursery() as nursery,
        ):
            await nursery.start(element.run, ring)
            for value in (0, 1):
                element.event("push", value)
            await element.wait_state("ringing")
            element.event("stop")
            await element.wait_state("quiet")
            nursery.cancel_scope.cancel()
    errors = [r.getMessage() for r in caplog.records if r.name == "meteor.elements"]
    assert errors[0] == "bell: quiet on push failed; it stays quiet"
    assert "type=* is not posted: data can't carry 'type=*'" in errors[1]


def test_events_are_refused_when_unknown_or_too_many() -> None:
    lamp = Element(toggle())
    with pytest.raises(ElementError, match="no context event 'buton'; there are: button"):
        lamp.event("buton")
    for _ in range(EVENTS_QUEUED_MAX):
        lamp.event("button")
    with pytest.raises(ElementError, match=f"{EVENTS_QUEUED_MAX} events waiting"):
        lamp.event("button")


async def test_a_watch_that_the_ring_refuses_ends_the_element_in_words(tmp_path: Path) -> None:
    closed = Space.from_toml(
        'name = "closed"\nversion = 1\nclosed = true\n'
        '[[dimension]]\nname = "type"\ncodec = "keyword"\n'
    )
    window = Element(home.window(silent))
    with trio.fail_after(20):
        async with ring_of(1, tmp_path, space=closed) as peers, connect(peers.address) as ring:
            with pytest.raises(MeteorError, match="is closed and does not know"):
                await window.run(ring)
