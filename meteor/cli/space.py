"""Information spaces: `meteor space`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meteor.cli.client import Access, client_command
from meteor.cli.display import console, count, plain, print_json, table

if TYPE_CHECKING:
    from meteor.client import Ring
    from squid import Space


@click.command()
@click.argument("file", required=False, type=click.Path())
@click.option("--toml", "as_toml", is_flag=True, help="Print the definition, ready for a file.")
@client_command
def space(access: Access, file: str | None, as_toml: bool, as_json: bool) -> None:
    """Show the ring's space, or check one in a file.

    With FILE no ring is needed: everything that is wrong with the definition is said at once.

    Examples:
      meteor space
      meteor space house.toml
      meteor space --toml > copy.toml
    """
    from meteor.config import load_space
    from squid import Space

    async def work(ring: Ring) -> str:
        return await ring.space()

    shown = load_space(file) if file else Space.from_toml(access.run(work) or "")
    if as_toml:
        click.echo(shown.to_toml(), nl=False)
    elif as_json:
        print_json(_fields(shown))
    else:
        _print_space(shown)


def _fields(space: Space) -> dict[str, Any]:
    return {
        "name": space.name,
        "version": space.version,
        "fingerprint": space.fingerprint(),
        "curve": space.curve_name,
        "bits": space.bits,
        "closed": space.closed,
        "attributes": sorted(space.attributes),
        "dimensions": [{"name": d.name} | d.codec.describe() for d in space.dimensions],
    }


def _print_space(space: Space) -> None:
    from squid import number_text

    out, grid = console(), table("dimension", "codec", "bits", "bounds", "scale", right=("bits",))
    for dimension in space.dimensions:
        codec = dimension.codec.describe()
        low, high, points = codec.get("min"), codec.get("max"), codec.get("points")
        bounds, scale = "any text", str(codec.get("scale", ""))
        if isinstance(points, tuple):
            low, high = points[0], points[-1]
            bounds, scale = f"{low} .. {high}", count(len(points), f"learnt {codec['kind']}")
        elif isinstance(low, (int, float)) and isinstance(high, (int, float)):
            bounds = f"{number_text(low)} .. {number_text(high)}"
        grid.add_row(
            dimension.name, str(codec["codec"]), str(space.bits), plain(bounds), plain(scale)
        )
    out.print(
        f"{plain(space.name)}, version {space.version}, fingerprint {space.fingerprint()}",
        style="bold",
    )
    out.print(grid)
    if space.closed:
        others = ", ".join(sorted(space.attributes)) or "none"
        out.print(f"Closed: no other attributes may be used than these: {others}", markup=False)
    else:
        out.print("Open: other attributes may be used too; they are matched, not routed by.")
