"""The smart home of Figure 4: four devices that know nothing of each other.

python home.py --peer 127.0.0.1:7400                    all devices in one program
python home.py --peer 127.0.0.1:7400 --device window    one device, perhaps later
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from itertools import cycle

import trio

from meteor import Item, MeteorError, Post, connect
from meteor.elements import Behaviour, Content, Context, Element, Transition

ROOM = "location=living-room"
TOO_WARM, COOL_ENOUGH = 90, 75  # degrees Fahrenheit; apart, so that nothing flickers
A_DAY = (72, 79, 86, 91, 94, 88, 81, 74, 70)
TTL_SECONDS = 600

Say = Callable[[str, str], None]
"""Is told which device did what."""


def sensor(say: Say) -> Behaviour:
    """Post the temperature whenever it has become too warm, or cool enough again."""

    def too_warm(degrees: float) -> bool:
        return degrees > TOO_WARM

    def cool_enough(degrees: float) -> bool:
        return degrees < COOL_ENOUGH

    def note(degrees: float) -> None:
        say("sensor", f"it is {degrees} degrees")

    def temperature(degrees: float) -> Post:
        return Post(f"type=temperature, {ROOM}, degree={degrees}, unit=Fahrenheit", ttl=TTL_SECONDS)

    def row(source: str, when: Callable[[float], bool], target: str) -> Transition:
        return Transition(
            source,
            Context("reading"),
            target,
            when=when,
            action=note,
            withdraws=(f"type=temperature, {ROOM}",),
            posts=(temperature,),
        )

    return Behaviour(
        "sensor",
        states=("started", "cool", "warm"),
        transitions=(
            row("started", too_warm, "warm"),
            row("started", cool_enough, "cool"),
            row("cool", too_warm, "warm"),
            row("warm", cool_enough, "cool"),
        ),
    )


def thermostat(say: Say) -> Behaviour:
    """Turn the air conditioning on when it is warm, and tell the room."""

    def turn_on(item: Item) -> None:
        say("thermostat", f"{item.value('degree')} degrees: turns the air conditioning on")

    def turn_off(item: Item) -> None:
        say("thermostat", f"{item.value('degree')} degrees: turns the air conditioning off")

    def row(source: str, degrees: str, target: str, action: Callable[[Item], None]) -> Transition:
        return Transition(
            source,
            Content(f"type=temperature, {ROOM}, {degrees}"),
            target,
            action=action,
            withdraws=(f"type=temp-control, {ROOM}",),
            posts=(Post(f"type=temp-control, {ROOM}, cooling={target}", ttl=TTL_SECONDS),),
        )

    return Behaviour(
        "thermostat",
        states=("started", "off", "on"),
        transitions=(
            row("started", f"degree>{TOO_WARM}", "on", turn_on),
            row("started", f"degree<{COOL_ENOUGH}", "off", turn_off),
            row("off", f"degree>{TOO_WARM}", "on", turn_on),
            row("on", f"degree<{COOL_ENOUGH}", "off", turn_off),
        ),
    )


def window(say: Say) -> Behaviour:
    """Keep the window shut while the room is cooled."""

    def shut(item: Item) -> None:
        say("window", "shuts itself")

    def open_again(item: Item) -> None:
        say("window", "opens again")

    return Behaviour(
        "window",
        states=("open", "shut"),
        transitions=(
            Transition("open", _cooling("on"), "shut", action=shut),
            Transition("shut", _cooling("off"), "open", action=open_again),
        ),
    )


def fan(say: Say) -> Behaviour:
    """Let the fan rest while the room is cooled."""

    def turn_off(item: Item) -> None:
        say("fan", "turns itself off")

    def turn_on(item: Item) -> None:
        say("fan", "turns itself on again")

    return Behaviour(
        "fan",
        states=("running", "still"),
        transitions=(
            Transition("running", _cooling("on"), "still", action=turn_off),
            Transition("still", _cooling("off"), "running", action=turn_on),
        ),
    )


def _cooling(value: str) -> Content:
    return Content(f"type=temp-control, {ROOM}, cooling={value}")


DEVICES = {"sensor": sensor, "thermostat": thermostat, "window": window, "fan": fan}


async def live(device: str, peers: list[str], seconds: float, say: Say) -> None:
    """Have a device live on the ring, with a connection of its own, as it would on its own chip."""
    element = Element(DEVICES[device](say))
    async with connect(*peers, name=device) as ring, trio.open_nursery() as nursery:
        await nursery.start(element.run, ring)
        say(device, f"is there, {element.state}")
        if device == "sensor":
            await read_temperatures(element, seconds)


async def read_temperatures(element: Element, seconds: float) -> None:
    """Simulate one hot day after the other."""
    for degrees in cycle(A_DAY):
        element.event("reading", degrees)
        await trio.sleep(seconds)


async def main(devices: list[str], peers: list[str], seconds: float) -> None:
    def say(device: str, words: str) -> None:
        print(f"{device:<12}{words}", flush=True)

    async with trio.open_nursery() as nursery:
        for device in devices:
            nursery.start_soon(live, device, peers, seconds, say)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", action="append", help="a peer of the ring (127.0.0.1:7400)")
    parser.add_argument("--device", action="append", choices=DEVICES, help="only this one")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between readings (1)")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        trio.run(main, given.device or [*DEVICES], given.peer or ["127.0.0.1:7400"], given.every)
    except* KeyboardInterrupt:
        pass
    except* MeteorError as group:
        sys.exit(f"home: {group.exceptions[0]}")
