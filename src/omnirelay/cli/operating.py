"""`omnirelay stats` and `omnirelay deadletters`."""

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from omnirelay.cli.calling import Caller
from omnirelay.cli.client import Client, calls_a_node
from omnirelay.cli.ending import print_json
from omnirelay.cli.saying import clock_time, counted, plain, print_table, span
from omnirelay.mesh import wire
from omnirelay.model import limits
from omnirelay.model.items import PendingItem

dead_letters = typer.Typer(help="Items that were given up.", no_args_is_help=True)

TypeFlag = Annotated[str | None, typer.Option("--type", help="Only of this type.")]
IdFlag = Annotated[str | None, typer.Option("--id", help="Only of this resource.")]
Sequences = Annotated[
    list[int] | None, typer.Argument(metavar="SEQUENCE", min=1, help="Only these items.")
]
AllFlag = Annotated[bool, typer.Option("--all", help="All of them.")]


@calls_a_node
def stats(client: Client) -> None:
    """How much waits, is leased, delayed and dead, and who leads."""

    async def call(caller: Caller) -> wire.StatsResponse:
        return await caller.ask("stats", wire.StatsRequest(), wire.StatsResponse)

    response = client.run(call)
    if client.json:
        print_json(response)
        return
    oldest = response.oldest_pending_age_ms
    print_table(
        ("what", "value"),
        [
            ("pending", response.stats.pending_count),
            ("leased", response.stats.active_lease_count),
            ("delayed", response.delayed_count),
            ("dead letters", response.dead_letter_count),
            ("oldest pending", None if oldest is None else span(oldest)),
            ("backpressure", "on: enqueue is paused" if response.backpressure else "off"),
            ("leader", f"{plain(response.leader)}, epoch {response.epoch}"),
            ("last sequence", response.last_sequence),
        ],
    )


# -- dead letters -------------------------------------------------------------------------------


@dead_letters.command("list")
@calls_a_node
def list_dead(
    client: Client,
    *,
    type_: TypeFlag = None,
    id_: IdFlag = None,
    max_items: Annotated[
        int, typer.Option(min=1, max=limits.BATCH_MAX, help="How many at the most.")
    ] = 100,
    after: Annotated[int, typer.Option(min=0, help="Go on behind this sequence.")] = 0,
) -> None:
    """Show them, a page at a time."""
    request = wire.DeadLettersRequest(max_items, after, type_, id_)

    async def call(caller: Caller) -> wire.DeadLettersResponse:
        return await caller.ask("deadLetters", request, wire.DeadLettersResponse)

    response = client.run(call)
    if client.json:
        print_json(response)
        return
    print_table(
        ("sequence", "item", "attempts", "enqueued", "last error"), [*map(_row, response.items)]
    )
    left = response.total - len(response.items)
    if left > 0 and response.items:
        last = response.items[-1].sequence_id
        print(f"{left} more: --after {last}", file=sys.stderr)


def _row(item: PendingItem) -> tuple[object, ...]:
    payload, error = item.payload, item.last_error
    return (
        item.sequence_id,
        plain(f"{payload.resource_type}/{payload.resource_id}"),
        item.attempt,
        clock_time(item.enqueued_at),
        None if error is None else plain(error.message),
    )


@dead_letters.command()
@calls_a_node
def redrive(
    client: Client,
    sequence: Sequences = None,
    *,
    type_: TypeFlag = None,
    id_: IdFlag = None,
    every: AllFlag = False,
) -> None:
    """Bring them back to the queue."""
    selection = _selection(sequence, type_, id_, every=every)
    count = client.run(_moving("redrive", selection))
    if client.json:
        print_json({"count": count})
    else:
        print(f"{counted(count, 'item')} went back to the queue")


@dead_letters.command()
@calls_a_node
def purge(
    client: Client,
    sequence: Sequences = None,
    *,
    type_: TypeFlag = None,
    id_: IdFlag = None,
    every: AllFlag = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Drop them for good."""
    selection = _selection(sequence, type_, id_, every=every)
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("what is purged is gone: say --yes")
        typer.confirm("Drop them for good?", abort=True)
    count = client.run(_moving("purge", selection))
    if client.json:
        print_json({"count": count})
    else:
        print(f"{counted(count, 'item')} dropped for good")


def _selection(
    sequences: list[int] | None, type_: str | None, id_: str | None, *, every: bool
) -> wire.DeadSelection:
    """Never all of them by leaving something out."""
    if not (sequences or type_ or id_ or every):
        raise typer.BadParameter("say which: SEQUENCE..., --type, --id or --all")
    if every and (sequences or type_ or id_):
        raise typer.BadParameter("--all leaves nothing to choose")
    if sequences and len(sequences) > limits.BATCH_MAX:
        raise typer.BadParameter(f"at most {limits.BATCH_MAX} sequences at once")
    return wire.DeadSelection(
        sequence_ids=tuple(sequences) if sequences else None, resource_type=type_, resource_id=id_
    )


def _moving(verb: str, selection: wire.DeadSelection) -> Callable[[Caller], Awaitable[int]]:
    """Page by page until a page was not full."""

    async def call(caller: Caller) -> int:
        moved = 0
        while True:
            page = await caller.ask(verb, selection, wire.CountResponse, is_repeatable=False)
            moved += page.count
            if page.count < selection.max_items or selection.sequence_ids is not None:
                return moved

    return call
