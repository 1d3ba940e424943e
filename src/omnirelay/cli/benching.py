"""`omnirelay bench`: how fast a node is from here, through the SDK."""

import asyncio
from typing import Annotated

import msgspec
import typer

from omnirelay.cli.bench_load import VERBS, Load, Measured
from omnirelay.cli.calling import check_address, tls_of
from omnirelay.cli.client import Client, calls_a_node
from omnirelay.cli.ending import CommandFailed, print_json
from omnirelay.cli.saying import print_table
from omnirelay.model import limits
from omnirelay.model.ports import RandomIds
from omnirelay.node.keys import ClientSettings
from omnirelay.sdk.connect import connect

_ITEMS = 1_000_000


@calls_a_node
def bench(
    client: Client,
    *,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=600.0, help="How long callers go on.")
    ] = 3.0,
    callers: Annotated[int, typer.Option(min=1, max=1024, help="Callers at the same time.")] = 32,
    batch: Annotated[
        int, typer.Option(min=1, max=limits.BATCH_MAX, help="Items in each call.")
    ] = 1,
    items: Annotated[
        int, typer.Option(min=1, max=_ITEMS, help="Stop after so many, whatever the time.")
    ] = _ITEMS,
) -> None:
    """Put items in, lease and complete them, over and over, and say how many a second and how long
    each call took. Needs an empty queue, and leaves it empty."""
    check_address(client.settings.url)
    if items < batch:
        raise CommandFailed(f"--items {items} is less than one batch of {batch}")
    measured = asyncio.run(_bench(client.settings, seconds, callers, batch, items))
    if client.json:
        said = {"callers": callers, "batch": batch, **msgspec.to_builtins(measured)}
        print_json({"namespace": client.settings.namespace, **said})
    else:
        _say(measured)


async def _bench(
    settings: ClientSettings, seconds: float, callers: int, batch: int, items: int
) -> Measured:
    async with connect(
        settings.url,
        namespace=settings.namespace,
        token=settings.token,
        tls=tls_of(settings),
        retry=settings.retry_s,
    ) as relay:
        load = Load(relay, RandomIds(), batch=batch)
        await load.check_queue()
        return await load.run(callers=callers, seconds=seconds, items_max=items)


def _say(measured: Measured) -> None:
    print(
        f"{measured.cycles_per_s:,.0f} cycles a second "
        f"({measured.cycles:,} in {measured.seconds:.1f} s), milliseconds a call:"
    )
    found = measured.latency_ms
    rows = [(verb, found[verb].p50, found[verb].p99) for verb in VERBS if verb in found]
    print_table(("call", "p50", "p99"), rows)
