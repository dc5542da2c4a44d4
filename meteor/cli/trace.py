"""The way of a message through the ring: `meteor trace`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from meteor.cli.client import Access, client_command
from meteor.cli.display import console, count, plain, print_json
from meteor.cli.failures import INCOMPLETE
from meteor.cli.post import ACTIONS

if TYPE_CHECKING:
    from rich.tree import Tree

    from meteor.client import Ring
    from meteor.node.errands import Trace


@click.command()
@click.argument("profile")
@click.option(
    "--action",
    type=click.Choice(ACTIONS),
    default="retrieve",
    show_default=True,
    help="The action whose way is shown: store goes to a place, the others to a region.",
)
@client_command
def trace(access: Access, profile: str, action: str, as_json: bool) -> None:
    """Show the way of a message through the ring.

    Nothing is stored or deleted by it. Each peer is an owner (it is responsible for a part of what
    PROFILE is about) or only passes on. The time is how long a peer took, with all those below it.

    Examples:
      meteor trace 'type=temp*'
      meteor trace 'type=temperature, location=hall, degree=91' --action store
    """

    async def work(ring: Ring) -> tuple[list[Trace], bool]:
        return await ring.trace(profile, action)

    result = access.run(work)
    assert result is not None
    roots, complete = result
    if as_json:
        print_json(_totals(roots) | {"complete": complete, "tree": [_fields(t) for t in roots]})
    else:
        _print_trees(roots, complete)
    if not complete:
        raise click.exceptions.Exit(INCOMPLETE)


def _walk(roots: list[Trace], depth: int = 0) -> Iterator[tuple[int, Trace]]:
    for root in roots:
        yield depth, root
        yield from _walk(root.hops, depth + 1)


def _totals(roots: list[Trace]) -> dict[str, int]:
    steps = list(_walk(roots))
    return {
        "peers": len({step.peer.id for _, step in steps}),
        "owners": len({step.peer.id for _, step in steps if step.owner}),
        "messages": sum(depth > 0 for depth, _ in steps),
        "depth": max((depth for depth, _ in steps), default=0),
    }


def _fields(step: Trace) -> dict[str, Any]:
    return {
        "address": step.peer.address,
        "id": step.peer.id,
        "owner": step.owner,
        "milliseconds": step.milliseconds,
        "hops": [_fields(hop) for hop in step.hops],
    }


def _print_trees(roots: list[Trace], complete: bool) -> None:
    from rich.text import Text
    from rich.tree import Tree

    out = console()
    for root in roots:
        tree = Tree(_label(root, 0))
        _grow(tree, root, 1)
        out.print(tree)
    totals = _totals(roots)
    words = (
        f"{count(totals['peers'], 'peer')} reached, {count(totals['owners'], 'owner')}; "
        f"{count(totals['messages'], 'message')} between peers, depth {totals['depth']}"
    )
    out.print(Text(words))
    if not complete:
        out.print(Text("A part of the ring did not answer.", style="bold red"))


def _grow(tree: Tree, step: Trace, depth: int) -> None:
    for hop in step.hops:
        _grow(tree.add(_label(hop, depth)), hop, depth + 1)


def _label(step: Trace, depth: int) -> Any:
    from rich.text import Text

    role = Text("owner", style="green") if step.owner else Text("relay", style="dim")
    hops = count(depth, "hop") if depth else "asked by you"
    address = Text(plain(step.peer.address), style="cyan")
    return Text("  ").join((address, role, Text(f"{step.milliseconds:.1f} ms"), Text(hops)))
