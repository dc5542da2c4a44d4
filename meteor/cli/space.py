"""Information spaces: `meteor space`, and learning and moving to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from meteor.cli.client import Access, client_command
from meteor.cli.display import console, count, plain, print_json, table
from meteor.cli.failures import Failure
from meteor.cli.group import Commands

if TYPE_CHECKING:
    from meteor.client import Ring
    from squid import Space


class _ShowByDefault(Commands):
    """`meteor space` and `meteor space FILE` show a space."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ShowByDefault)
def space() -> None:
    """Show, check and learn information spaces, and move a ring to another.

    Without a command, or with a FILE, it is `show`.

    Examples:
      meteor space
      meteor space house.toml
      meteor space learn > next.toml
      meteor space move next.toml
    """


@space.command()
@click.argument("file", required=False, type=click.Path())
@click.option("--toml", "as_toml", is_flag=True, help="Print the definition, ready for a file.")
@client_command
def show(access: Access, file: str | None, as_toml: bool, as_json: bool) -> None:
    """Show the ring's space, or check one in a file.

    With FILE no ring is needed: everything that is wrong with the definition is said at once.

    Examples:
      meteor space show
      meteor space show house.toml
      meteor space show --toml > copy.toml
    """
    from meteor.config import load_space
    from squid import Space

    moving = ""

    async def work(ring: Ring) -> str:
        nonlocal moving
        moving = _progress((await ring.report()).peers)
        return await ring.space()

    shown = load_space(file) if file else Space.from_toml(access.run(work) or "")
    if as_toml:
        click.echo(shown.to_toml(), nl=False)
    elif as_json:
        print_json(_fields(shown) | ({"moving": moving} if moving else {}))
    else:
        _print_space(shown)
        if moving:
            click.echo(f"On the way to version {shown.version + 1}: {moving}.")


@space.command()
@click.argument("file", required=False, type=click.File(encoding="utf-8"))
@click.option(
    "--space",
    "definition",
    type=click.Path(),
    help="The space to start from, a TOML file; without it, the ring's.",
)
@click.option(
    "--points",
    type=click.IntRange(2, 4096),
    default=1024,
    show_default=True,
    help="Split points of a dimension, at most.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Profiles to learn from, at most: chosen by chance from all that there are.",
)
@click.option("--seed", type=int, default=7, show_default=True, help="Chooses the sample.")
@client_command
def learn(
    access: Access,
    file: TextIO | None,
    definition: str | None,
    points: int,
    sample: int,
    seed: int,
    as_json: bool,
) -> None:
    """Learn a space that spreads data like these evenly, and print it.

    The data profiles come from FILE, one a line or as `meteor retrieve --json` prints them; - is
    standard input. Without FILE they come from the ring: all of its data that have a dimension of
    the space are read once.

    Prints the next version of the space, with quantile codecs, in TOML. How evenly the sample
    spreads before and after goes to standard error: the most in one of 64 equal arcs of the ring,
    beside the mean.

    Examples:
      meteor space learn > next.toml
      meteor space learn profiles.txt --space house.toml > next.toml
      meteor retrieve 'type=*' --json | meteor space learn - > next.toml
    """
    from meteor.cli.learning import Sample, evenness
    from meteor.config import load_space
    from squid import Space, learn_space

    chosen = Sample(sample, seed)

    async def work(ring: Ring) -> Space:
        found = Space.from_toml(await ring.space())
        if file is None:
            await chosen.read_ring(ring, found)
        return found

    if definition is not None and file is not None:
        current = load_space(definition)
    else:
        current = access.run(work) or load_space("")
        current = load_space(definition) if definition is not None else current
    if file is not None:
        chosen.read_lines(file)
    if not chosen.profiles:
        raise Failure("there are no data to learn from")
    learnt = learn_space(current, (p.data_by_attribute() for p in chosen.profiles), points)
    before, after = (evenness(space, chosen.profiles) for space in (current, learnt))
    if as_json:
        print_json(
            {
                "toml": learnt.to_toml(),
                "profiles": len(chosen.profiles),
                "of": chosen.seen,
                "max_over_mean_before": before,
                "max_over_mean_after": after,
            }
        )
        return
    click.echo(learnt.to_toml(), nl=False)
    click.echo(
        f"learnt from {count(len(chosen.profiles), 'profile')} of {chosen.seen:,}; the fullest of "
        f"64 equal arcs has {after:.1f} times the mean, {before:.1f} before",
        err=True,
    )


@space.command()
@click.argument("file", type=click.Path())
@client_command
def move(access: Access, file: str, as_json: bool) -> None:
    """Move the ring to the space in FILE while it runs.

    The space must have the ring's name and dimensions and the next version, as `meteor space learn`
    makes it. Everything stored is copied to a second ring of the same peers; then all requests wait
    for a moment, and from then on the second ring serves. The ring does this by itself: ended by
    Ctrl-C, the command can be given again to watch the rest.

    Example:
      meteor space learn > next.toml
      meteor space move next.toml
    """
    from meteor.config import load_space
    from squid import Space

    wanted = load_space(file)

    async def work(ring: Ring) -> bool:
        import trio

        moves = Space.from_toml(await ring.space()) != wanted
        if moves:
            await ring.move(wanted.to_toml())
        said = ""
        while True:
            report = await ring.report()
            progress = _progress(report.peers)
            if progress not in ("", said):
                click.echo(progress, err=True)
                said = progress
            there = [peer for peer in report.peers if peer["space_version"] == wanted.version]
            if report.complete and all(peer["serves_clients"] for peer in there) and there:
                return moves or bool(said)
            await trio.sleep(0.5)

    moved = access.run(work)
    version = f"version {wanted.version} of {wanted.name}"
    if as_json:
        fields = {"version": wanted.version, "fingerprint": wanted.fingerprint()}
        print_json(fields | {"moved": moved})
    elif moved:
        click.echo(f"moved to {version}")
    else:
        click.echo(f"the ring has {version} already: nothing to do")


PHASES = ("starting", "copying", "frozen", "checked", "moved")


def _progress(peers: Sequence[Mapping[str, Any]]) -> str:
    """Say how far the peers of a ring that moves have come; nothing when it does not."""
    moves = [peer.get("move") for peer in peers]
    if not any(moves):
        return ""
    phases = Counter(move["phase"] if move else 0 for move in moves)
    parts = [f"{count(n, 'peer')} {PHASES[phase]}" for phase, n in sorted(phases.items())]
    behind = sum(move["behind"] or 0 for move in moves if move)
    misfits = [words for move in moves if move for words in move["misfits"]]
    if behind:
        parts.append(f"{behind:,} messages or more to copy")
    if misfits:
        parts.append(f"it can't: some data don't fit the next space, such as {misfits[0]}")
    return ", ".join(parts)


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
