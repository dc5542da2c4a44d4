"""Sending: `meteor post` and `meteor delete`."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, BinaryIO

import click

from meteor.cli.client import Access, client_command, credential_option
from meteor.cli.display import count, percent, print_json, say_lost
from meteor.cli.failures import INCOMPLETE, Failure

if TYPE_CHECKING:
    from meteor.client import Receipt, Ring

ACTIONS = (
    "store",
    "retrieve",
    "notify_data",
    "notify_interest",
    "delete_data",
    "delete_interest",
)
"""Table 1 of the paper; written out, as importing them would cost `--help` its speed."""

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def _read_duration(ctx: click.Context, option: click.Parameter, value: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no time; write seconds (0 or more), or 10m, 2h, 1d")
    return float(found[1]) * UNITS[found[2]]


def _read_context(
    ctx: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    context: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is no context; write key=value")
        context[key] = text
    return context


@click.command()
@click.argument("profile")
@click.argument("data", required=False)
@click.option(
    "--data-file", type=click.File("rb"), help="Take the data from a file; - is standard input."
)
@click.option(
    "--ttl",
    default="1h",
    show_default=True,
    metavar="TIME",
    callback=_read_duration,
    help="How long it stays at the ring: seconds, or 10m, 2h, 1d.",
)
@click.option(
    "--action",
    type=click.Choice(ACTIONS),
    default="store",
    show_default=True,
    help="What happens at the rendezvous.",
)
@click.option(
    "--context",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_read_context,
    help="Travels along with the data; repeatable.",
)
@credential_option
@client_command
def post(
    access: Access,
    profile: str,
    data: str | None,
    data_file: BinaryIO | None,
    ttl: float,
    action: str,
    context: dict[str, str],
    as_json: bool,
) -> None:
    """Post a message by what it is about.

    PROFILE says what the message is about. DATA, if any, is what it carries; - takes it from
    standard input. Whoever watches for such data is notified.

    Examples:
      meteor post 'type=temperature, location=hall, degree=91' 'warm today'
      meteor post 'type=picture, location=roof' --data-file roof.jpg --ttl 2d
      date | meteor post 'type=time' -

    The exit code is 2 when a part of the ring did not answer.
    """
    if data is not None and data_file is not None:
        raise click.UsageError("give DATA or --data-file, not both")
    payload = _payload(data, data_file)

    async def work(ring: Ring) -> Receipt:
        return await ring.post(profile, action, payload, ttl=ttl, context=context)

    _print_receipt(access.run(work), action, as_json)


@click.command()
@click.argument("profile")
@click.option("--interests", is_flag=True, help="Delete interests instead of data.")
@click.option("--id", "only", metavar="ID", help="Delete only the message with this id.")
@credential_option
@client_command
def delete(access: Access, profile: str, interests: bool, only: str | None, as_json: bool) -> None:
    """Delete the data that PROFILE selects.

    What was posted with a credential is deleted only with the same one.

    Examples:
      meteor delete 'type=temperature, degree>100'
      meteor delete 'type=*' --interests
    """

    async def work(ring: Ring) -> Receipt:
        return await ring.delete(profile, interests=interests, only=only)

    _print_receipt(access.run(work), "delete_interest" if interests else "delete_data", as_json)


def _payload(data: str | None, file: BinaryIO | None) -> bytes:
    """Return the data; no more is read than a message can carry, and a byte to notice it by."""
    from arms.limits import DATA_BYTES_MAX

    if data == "-":
        file = sys.stdin.buffer
    # What the shell passed on is given back byte for byte.
    payload = (data or "").encode("utf-8", "surrogateescape")
    if file is not None:
        payload = file.read(DATA_BYTES_MAX + 1)
    if len(payload) > DATA_BYTES_MAX:
        raise Failure(
            f"a message carries at most {DATA_BYTES_MAX:,} bytes of data, and these are more; "
            "keep them in a file and post where it is"
        )
    return payload


def _print_receipt(receipt: Receipt | None, action: str, as_json: bool) -> None:
    assert receipt is not None
    if as_json:
        print_json({"action": action} | receipt._asdict())
    else:
        click.echo(_sentence(receipt, action))
    say_lost(receipt.lost)
    if not receipt.complete:
        click.echo(
            f"meteor: {percent(receipt.missing)} of the ring did not answer: what it is "
            "responsible for is not done; try again",
            err=True,
        )
        raise click.exceptions.Exit(INCOMPLETE)


def _sentence(receipt: Receipt, action: str) -> str:
    """Return a receipt for people."""
    where = f"on {count(receipt.peers, 'peer')}"
    matches = receipt.matches
    match action:
        case "store":
            told = f"notified {count(matches, 'watcher')}"
            if not receipt.copies:
                return f"passed on, not stored; {told}"
            return f"stored, {count(receipt.copies, 'copy', 'copies')} so far; {told}"
        case "retrieve":
            return f"{count(matches, 'item')} {where}; `meteor retrieve` shows them"
        case "notify_data":
            return f"interest {where}; {count(matches, 'stored item')} would match it"
        case "notify_interest":
            return f"advertised {where}; {count(matches, 'interest')} in it"
        case "delete_data":
            return f"deleted {count(matches, 'item')} {where}"
        case _:
            return f"deleted {count(matches, 'interest')} {where}"
