"""Finding: `meteor retrieve` and `meteor watch`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from meteor.cli.client import Access, client_command, credential_option
from meteor.cli.display import count, print_item, print_json, say_lost
from meteor.cli.failures import INCOMPLETE

if TYPE_CHECKING:
    from meteor.client import Ring


@click.command()
@click.argument("profile")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many items.")
@click.option("--one", is_flag=True, help="Any one item: the same as --limit 1.")
@click.option(
    "--aggregate",
    type=click.Choice(("count", "min", "max", "sum", "avg")),
    help="A figure over all matches, computed by the peers that have them.",
)
@click.option("--of", "attribute", metavar="ATTRIBUTE", help="What the aggregate is taken of.")
@click.option(
    "--consume", is_flag=True, help="Take items off the ring, one unless --limit says more."
)
@credential_option
@client_command
def retrieve(
    access: Access,
    profile: str,
    limit: int | None,
    one: bool,
    aggregate: str | None,
    attribute: str | None,
    consume: bool,
    as_json: bool,
) -> None:
    """Find the data that PROFILE selects.

    Items are printed as they come: the profile, then the data. With --consume each item goes to
    exactly one taker, also when many take at once.

    Examples:
      meteor retrieve 'type=temp*, degree=80..120'
      meteor retrieve 'type=temperature' --aggregate avg --of degree
      meteor retrieve 'type=job' --consume

    The exit code is 2 when a part of the ring did not answer, so that items may be missing.
    """
    if one and limit is not None:
        raise click.UsageError("give --limit or --one, not both")
    if aggregate and (consume or one or limit is not None):
        raise click.UsageError("--aggregate is over all matches: without --limit, --one, --consume")
    if attribute and not aggregate:
        raise click.UsageError("--of needs --aggregate")
    if aggregate and aggregate != "count" and not attribute:
        raise click.UsageError(f"--aggregate {aggregate} needs --of ATTRIBUTE, such as --of degree")
    limit = 1 if one else limit

    async def work(ring: Ring) -> bool:
        if aggregate:
            return await _aggregate(ring, profile, aggregate, attribute, as_json)
        if consume:
            return await _consume(ring, profile, limit or 1, as_json)
        return await _retrieve(ring, profile, limit, as_json)

    if not access.run(work):
        click.echo("meteor: a part of the ring did not answer: items may be missing", err=True)
        raise click.exceptions.Exit(INCOMPLETE)


async def _retrieve(ring: Ring, profile: str, limit: int | None, as_json: bool) -> bool:
    started, items = time.perf_counter(), 0
    retrieval = ring.retrieve(profile, limit=limit)
    async for item in retrieval:
        print_item(item, as_json)
        items += 1
    took_ms = (time.perf_counter() - started) * 1000
    if not as_json:
        whole = "complete" if retrieval.complete else "not complete"
        click.echo(f"{count(items, 'item')} in {took_ms:.0f} ms, {whole}", err=True)
    say_lost(retrieval.lost)
    return retrieval.complete


async def _aggregate(
    ring: Ring, profile: str, name: str, attribute: str | None, as_json: bool
) -> bool:
    result = await ring.aggregate(profile, name, attribute)
    if as_json:
        print_json(asdict(result))
        return result.complete
    if result.value is None:
        click.echo(f"meteor: no item has a number to take the {name} of", err=True)
    else:
        click.echo(f"{result.value:.10g}")
    of = f" of {attribute}" if attribute else ""
    whole = "complete" if result.complete else "not complete"
    click.echo(f"{name}{of} over {count(result.matches, 'item')}, {whole}", err=True)
    say_lost(result.lost)
    return result.complete


async def _consume(ring: Ring, profile: str, limit: int, as_json: bool) -> bool:
    taken = await ring.consume(profile, limit=limit)
    for item in taken.items:
        print_item(item, as_json)
    if not as_json:
        click.echo(f"took {count(len(taken.items), 'item')}", err=True)
    return taken.complete


@click.command()
@click.argument("profile")
@click.option("--replay", is_flag=True, help="First what is stored already, then what comes.")
@click.option("--count", "wanted", type=click.IntRange(min=1), help="End after so many.")
@click.option(
    "--interests",
    is_flag=True,
    help="Watch for interests in data that PROFILE describes, instead of for data.",
)
@click.option(
    "--reliable",
    metavar="NAME",
    help="Keep notifications in an inbox of this name at the ring until they were printed.",
)
@click.option(
    "--keep",
    type=click.FloatRange(0, min_open=True),
    default=86_400.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a reliable watch and its notifications stay while nobody reads them.",
)
@credential_option
@client_command
def watch(
    access: Access,
    profile: str,
    replay: bool,
    wanted: int | None,
    interests: bool,
    reliable: str | None,
    keep: float,
    as_json: bool,
) -> None:
    """Be notified of data as they are posted.

    PROFILE selects the data. Runs until Ctrl-C, and moves to another peer when the one that serves
    it dies. With --replay nothing is left out between what is stored and what comes, and nothing
    comes twice.

    With --reliable the watch stays at the ring when this command ends, and what matches meanwhile
    waits for the next one with the same PROFILE and NAME. `meteor unwatch` withdraws it.

    Examples:
      meteor watch 'type=temperature, degree=80..120'
      meteor watch 'type=alarm' --reliable dashboard
      meteor watch 'type=job' --replay --json | ./take-jobs
      meteor watch 'type=temperature, location=hall' --interests
    """
    if interests and replay:
        raise click.UsageError("--replay is for data; interests that are there always come first")

    if interests and reliable is not None:
        raise click.UsageError("--reliable is for data, not for interests")

    async def work(ring: Ring) -> None:
        standing = (
            ring.notify_interest(profile)
            if interests
            else ring.watch(profile, replay=replay, reliable=reliable, keep=keep)
        )
        async with standing as matches:
            there = matches.receipt.matches if matches.receipt else 0
            _say_standing(profile, there if not (interests or replay) else 0)
            given = 0
            try:
                async for match in matches:
                    print_item(match, as_json)
                    given += 1
                    if given == wanted:
                        break
            finally:
                if matches.lost:
                    lost = count(matches.lost, "notification")
                    click.echo(f"meteor: {lost} did not get here", err=True)

    access.run(work, endless=True)


@click.command()
@click.argument("profile")
@click.option("--reliable", metavar="NAME", required=True, help="The inbox of the watch.")
@credential_option
@client_command
def unwatch(access: Access, profile: str, reliable: str, as_json: bool) -> None:
    """Withdraw a reliable watch, and what waits for it in its inbox.

    PROFILE and NAME are those that it was made with.

    Example:
      meteor unwatch 'type=alarm' --reliable dashboard
    """

    async def work(ring: Ring) -> bool:
        return bool((await ring.unwatch(profile, reliable=reliable)).matches)

    withdrawn = bool(access.run(work))
    if as_json:
        print_json({"withdrawn": withdrawn})
    else:
        click.echo("withdrawn" if withdrawn else "there was no such watch")


def _say_standing(profile: str, there: int) -> None:
    hint = f" ({count(there, 'item')} stored already, which --replay shows)" if there else ""
    click.echo(f"watching {profile}{hint}; Ctrl-C ends it", err=True)
