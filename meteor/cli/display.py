"""How things look: items, bytes, numbers and tables. Text from others can't steer the terminal."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from meteor.client import Item

HEX_BYTES = 16
"""Bytes of binary data that are shown."""

PIPE_COLUMNS = 160
"""The width of tables that do not go to a terminal: wide enough that nothing is cut off."""


def print_item(item: Item, as_json: bool) -> None:
    """Print an item and flush: the next may take a while."""
    if as_json:
        print_json(item_fields(item))
    else:
        click.echo(item_text(item))
    sys.stdout.flush()


def item_text(item: Item) -> str:
    """Return an item for people: its profile, then its data; several lines go below."""
    profile = click.style(plain(item.profile), fg="cyan")
    if not item.data:
        return profile
    text = printable(item.data)
    if text is None:
        preview = item.data[:HEX_BYTES].hex(" ")
        more = " ..." if len(item.data) > HEX_BYTES else ""
        return f"{profile} -> {count(len(item.data), 'byte')}: {preview}{more}"
    text = text.rstrip("\n")
    if "\n" not in text:
        return f"{profile} -> {text}"
    return profile + " ->\n" + "\n".join(f"    {line}" for line in text.split("\n"))


def item_fields(item: Item) -> dict[str, Any]:
    """Return an item for programs; data that are not UTF-8 are in `data_base64`."""
    fields: dict[str, Any] = {"id": item.id, "profile": item.profile}
    try:
        fields["data"] = item.data.decode("utf-8")
    except UnicodeDecodeError:
        fields["data_base64"] = base64.b64encode(item.data).decode("ascii")
    return fields | {
        "sender": item.sender,
        "context": dict(item.context),
        "expires_ms": item.expires_ms,
    }


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON value on a line of its own."""
    click.echo(json.dumps(value, ensure_ascii=False))


def printable(data: bytes) -> str | None:
    """Return data as text when they are text that a terminal can show; else None."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\n\t" for c in text) else None


def plain(text: str) -> str:
    """Return a text on one line, without characters that a terminal acts on."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def count(number: int, noun: str, plural: str = "") -> str:
    """Return `1 copy`, `2 copies`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def percent(share: float) -> str:
    """Return a share of the ring."""
    return f"{share:.1%}" if share >= 0.001 or share == 0 else "<0.1%"


def duration(seconds: float) -> str:
    """Return a time as people say it: two units at most."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, unit, smaller_size, smaller in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller_size} {smaller}"
    raise AssertionError("a minute is the smallest unit")


def console() -> Console:
    """Return the console for tables and trees."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS, highlight=False)


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table; the columns in `right` hold numbers."""
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    return grid


def say_lost(lost: Sequence[str]) -> None:
    """Say on standard error that an answer may not be the whole truth, and because of whom."""
    if lost:
        alone = len(lost) == 1
        are, back = ("is", "it is back") if alone else ("are", "they are back")
        click.echo(
            f"meteor: {', '.join(lost)} {are} out of reach since a crash or a cut of the network; "
            "others answer for that part of the ring, and there may be more than they know. "
            f"This ends when {back}; if not, `meteor forget {lost[0] if alone else 'ADDRESS'}` "
            "ends it",
            err=True,
        )
