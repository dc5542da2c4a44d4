"""The ring and its peers: `meteor ring`, `meteor status`, `meteor leave`, `meteor forget`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from meteor.cli.client import Access, client_command
from meteor.cli.display import console, count, duration, percent, plain, print_json, table
from meteor.cli.failures import FAILED, INCOMPLETE

if TYPE_CHECKING:
    from rich.console import RenderableType

    from meteor.client import Ring, RingReport

WATCH_SECONDS = 1.0
"""How often `--watch` asks again."""

NEIGHBOURS_COLUMNS = 110
"""On a narrower terminal the table is without the columns of the neighbours."""


@click.command()
@click.option("--watch", "watching", is_flag=True, help="Show it again every second until Ctrl-C.")
@client_command
def ring(access: Access, watching: bool, as_json: bool) -> None:
    """Show the peers, and whether the ring is whole.

    Examples:
      meteor ring
      meteor ring --watch
      meteor ring --json | jq '.peers[].address'

    The exit code is 2 when a part of the ring did not answer.
    """
    if watching:
        access.run(lambda ring: _keep_showing(ring, as_json), endless=True)
        return

    async def work(ring: Ring) -> RingReport:
        return await ring.report()

    report = access.run(work)
    assert report is not None
    if as_json:
        print_json(_fields(report))
    else:
        out = console()
        out.print(_picture(report, out.width))
    if not report.complete:
        raise click.exceptions.Exit(INCOMPLETE)


async def _keep_showing(ring: Ring, as_json: bool) -> None:
    import trio
    from rich.live import Live

    from meteor.errors import NoAnswer

    out = console()
    with Live(console=out, auto_refresh=False) as live:
        while True:
            try:
                report = await ring.report()
            except NoAnswer as error:  # the client goes on looking for a peer
                click.echo(f"meteor: {error}", err=True)
            else:
                if as_json:
                    print_json(_fields(report))
                else:
                    picture = _picture(report, out.width)
                    if out.is_terminal:
                        live.update(picture, refresh=True)
                    else:
                        out.print(picture)
                        out.file.flush()
            await trio.sleep(WATCH_SECONDS)


def silent_peers(report: RingReport) -> list[str]:
    """Return the addresses that peers name as neighbours and that did not answer themselves."""
    answered = {peer["address"] for peer in report.peers}
    named = {name for peer in report.peers for name in (peer["predecessor"], *peer["successors"])}
    return sorted(named - answered - {None})


def lost_peers(report: RingReport) -> list[str]:
    """Return the addresses of peers that went without a word, and may know more."""
    return sorted({address for peer in report.peers for address in peer["in_doubt"]})


def broken_links(report: RingReport) -> list[str]:
    """Return, in words, every place where a peer's successor is not the next peer clockwise."""
    peers = report.peers
    following = (*peers[1:], *peers[:1])
    return [
        f"{peer['address']} has the successor {peer['successor'] or 'none'}, "
        f"the next peer is {after['address']}"
        for peer, after in zip(peers, following, strict=True)
        if len(peers) > 1 and peer["successor"] != after["address"]
    ]


def _fields(report: RingReport) -> dict[str, Any]:
    return asdict(report) | {
        "whole": report.complete and not broken_links(report),
        "not_answering": silent_peers(report),
        "lost": lost_peers(report),
    }


def _picture(report: RingReport, width: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    numbers = ("arc", "data", "copies", "interests", "clients", "up")
    # Of a whole ring they say nothing new, and of another one the lines below the table do.
    neighbours = ("predecessor", "successor") if width >= NEIGHBOURS_COLUMNS else ()
    grid = table("peer", "id", *numbers, *neighbours, right=numbers)
    for peer in report.peers:
        grid.add_row(
            Text(plain(peer["address"]), style="cyan"),
            f"{peer['id']:016x}"[:6],
            percent(peer["share"]),
            f"{peer['data']:,}",
            f"{peer['copies_for_others']:,}",
            f"{peer['interests']:,}",
            f"{peer['clients']:,}",
            duration(peer["up_seconds"]),
            *(Text(plain(peer[neighbour] or "-")) for neighbour in neighbours),
        )
    for address in silent_peers(report):
        grid.add_row(
            Text(plain(address), style="red"), Text("does not answer, or joins", style="red")
        )
    return Group(grid, *(Text(line, style=style) for line, style in _verdict(report)))


def _verdict(report: RingReport) -> list[tuple[str, str]]:
    """Return what to say below the table, with its style."""
    peers = count(len(report.peers), "peer")
    if not report.complete:
        lost = percent(report.missing)
        return [(f"{peers} answered; nobody answered for {lost} of the ring", "bold red")]
    broken = broken_links(report)
    if broken:
        return [
            (f"{peers}; everything is answered for, but the ring is still closing:", "yellow"),
            *((f"  {words}", "yellow") for words in broken),
        ]
    data = count(sum(peer["data"] for peer in report.peers), "data item")
    verdict = [(f"{peers}, {data}; the ring is whole", "green")]
    if gone := lost_peers(report):
        share = percent(sum(s for peer in report.peers for s in peer["in_doubt"].values()))
        verdict.append(
            (
                f"{share} of it was taken over from {', '.join(gone)}, which went "
                "without a word and may know more",
                "yellow",
            )
        )
    return verdict


@click.command()
@client_command
def status(access: Access, as_json: bool) -> None:
    """Show how the peer that serves you is.

    Example:
      meteor status --peer 127.0.0.1:7402
    """

    async def work(ring: Ring) -> dict[str, Any]:
        return await ring.statistics()

    statistics = access.run(work)
    assert statistics is not None
    if as_json:
        print_json(statistics)
        return
    peer = statistics["peer"]
    lines = {
        "peer": f"{peer['address']}, Meteor {peer['version']}",
        "id": f"{peer['id']:016x}",
        "process": str(peer["pid"]),
        "up": duration(peer["up_seconds"]),
        "space": peer["space"],
        "arc": f"{percent(peer['share'])} of the ring",
        "stored": ", ".join(
            count(peer[name], singular)
            for name, singular in (
                ("data", "data item"),
                ("interests", "interest"),
                ("advertisements", "advertisement"),
            )
        ),
        "copies": f"{peer['copies_for_others']:,} kept for others; own ones {_copies(peer)}",
        "clients": f"{peer['clients']:,}",
        "lost": count(peer["notifications_lost"], "notification"),
        "predecessor": peer["predecessor"] or "-",
        "successors": ", ".join(peer["successors"]) or "-",
    }
    for name, words in lines.items():
        click.echo(f"{click.style(f'{name:<12}', bold=True)} {plain(words)}")


def _copies(peer: dict[str, Any]) -> str:
    """Say how far behind each of a peer's copies is."""
    return (
        ", ".join(f"at {copy['address']} ({_lag(copy)})" for copy in peer["copies_at"])
        or "nowhere else"
    )


def _lag(copy: dict[str, Any]) -> str:
    if copy["catching_up"]:
        return "catching up"
    return f"{copy['behind']:,} behind" if copy["behind"] else "up to date"


@click.command()
@client_command
def leave(access: Access, as_json: bool) -> None:
    """Have a peer hand over and leave the ring.

    The successor of the peer at --peer takes over its part of the ring with all data; then the
    peer stops.

    Example:
      meteor leave --peer 127.0.0.1:7403
    """
    if len(access.peers) > 1:
        raise click.UsageError("name the one peer that is to leave: --peer HOST:PORT")

    async def work(ring: Ring) -> None:
        await ring.leave()

    access.run(work)
    if as_json:
        print_json({"left": access.peers[0]})
    else:
        click.echo(f"{access.peers[0]} has handed over and left the ring")


@click.command()
@click.argument("address")
@client_command
def forget(access: Access, address: str, as_json: bool) -> None:
    """Say that a lost peer will not come back.

    Peers wait for one that went without a word, for a day, and their answers name it. This ends it
    everywhere in the ring, so that answers are without doubt again.

    Example:
      meteor forget 127.0.0.1:7403
      meteor forget unknown
    """
    from meteor.ring.doubts import UNKNOWN
    from meteor.transport.network import parse_address

    if address != UNKNOWN:
        parse_address(address)

    async def work(ring: Ring) -> tuple[int, list[str]]:
        found = await ring.forget(address)
        return found, lost_peers(await ring.report()) if not found else []

    found, others = access.run(work) or (0, [])
    if as_json:
        print_json({"forgotten": address, "peers": found})
    elif found:
        click.echo(f"{address} is not waited for any more (by {count(found, 'peer')} until now)")
    else:
        waits = f"{', '.join(others) or 'no peer'} {'are' if len(others) > 1 else 'is'} waited for"
        words = f"nobody waited for {address}; `meteor ring` shows that {waits}"
        click.echo(f"meteor: {words}", err=True)
    if not found:
        raise click.exceptions.Exit(FAILED)
