"""`omnirelay dev`: a node to try things out with, in this terminal."""

import asyncio
import signal
import sys
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec
import typer

from omnirelay.cli.calling import Caller
from omnirelay.cli.client import ConfigFlag
from omnirelay.cli.ending import JsonFlag, print_json
from omnirelay.cli.event_words import event_in_words
from omnirelay.cli.serving import (
    DataFlag,
    GrpcFlag,
    HttpFlag,
    NamespaceFlag,
    SetFlag,
    StreamFlag,
    node_sources,
    starting,
)
from omnirelay.journal.events import Event, encode_event
from omnirelay.mesh import wire
from omnirelay.model.errors import Unavailable
from omnirelay.model.items import Payload
from omnirelay.node.keys import ClientSettings

if TYPE_CHECKING:
    from omnirelay.node.node import Node
    from omnirelay.node.settings import NodeSettings

SEEDS = (
    ("table", "sales.orders", b"compact"),
    ("table", "sales.returns", b"compact"),
    ("report", "daily-revenue", b'{"day":"2024-02-29"}'),
    ("model", "churn", b"train"),
    ("table", "web.clicks", b"vacuum"),
)


def dev(
    context: typer.Context,
    *,
    data: DataFlag = None,
    http: HttpFlag = None,
    grpc: GrpcFlag = None,
    stream: StreamFlag = None,
    namespace: NamespaceFlag = None,
    seed: Annotated[
        bool, typer.Option("--seed/--no-seed", help="Put a few items into a new queue.")
    ] = True,
    set_: SetFlag = None,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> None:
    """Run a node on this machine, with a few items to play with; Ctrl-C stops it, and the next
    start goes on where it was. Identity is not asked for: only loopback is served."""
    with starting():
        from omnirelay.node.settings import NodeSettings, check

        settings = node_sources(context, set_, config).node()
        identity = NodeSettings().identity
        settings = msgspec.structs.replace(settings, identity=identity, insecure=False)
        check(settings)
        asyncio.run(_dev(settings, seed=seed, json=json))


async def _dev(settings: "NodeSettings", *, seed: bool, json: bool) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    node = await _opened(settings)
    try:
        seeded = await _seed_all(node) if seed else 0
        _say(node, seeded, json=json)
        telling = [
            asyncio.create_task(_tell(node, name, json=json)) for name in settings.all_namespaces()
        ]
        await stopping.wait()
        for task in telling:
            task.cancel()
        await asyncio.gather(*telling, return_exceptions=True)
    finally:
        await node.__aexit__(None, None, None)
    if not json:
        print("stopped; everything is kept: `omnirelay dev` goes on from here", file=sys.stderr)


async def _opened(settings: "NodeSettings") -> "Node":
    """A usual port that is taken is replaced by a free one: who tries things out may have another
    node running."""
    from omnirelay.node.node import Node
    from omnirelay.node.settings import DOORS

    try:
        return await Node(settings).__aenter__()
    except Unavailable as taken:
        if "is taken" not in taken.message:
            raise
        print(f"{taken.message}; free ports are used instead", file=sys.stderr)
    free = {
        name: f"{at.rpartition(':')[0]}:0"
        for name in DOORS
        if (at := getattr(settings, name)) and not at.startswith("unix:")
    }
    return await Node(msgspec.structs.replace(settings, **free)).__aenter__()


def _client(node: "Node", namespace: str) -> ClientSettings:
    urls = node.urls
    return ClientSettings(url=urls.get("http") or next(iter(urls.values())), namespace=namespace)


# -- seeds --------------------------------------------------------------------------------------


async def _seed_all(node: "Node") -> int:
    return sum([await _seed(_client(node, name)) for name in node.settings.all_namespaces()])


async def _seed(settings: ClientSettings) -> int:
    """Only a journal in which nothing but its beginning stands is new."""
    async with Caller(settings) as caller:
        stats = await caller.ask("stats", wire.StatsRequest(), wire.StatsResponse)
        if stats.last_sequence > 1:
            return 0
        items = [
            wire.EnqueueRequest(Payload(kind, name, body=body, request_id=f"dev-seed-{number}"))
            for number, (kind, name, body) in enumerate(SEEDS)
        ]
        request = wire.EnqueueBatchRequest(tuple(items))
        await caller.ask("enqueueBatch", request, wire.EnqueueBatchResponse)
        return len(items)


# -- what is said -------------------------------------------------------------------------------


def _say(node: "Node", seeded: int, *, json: bool) -> None:
    if json:
        print_json({**node.urls, "nodeId": node.node_id, "seeded": seeded})
        print(end="", flush=True)
        return
    name = next(iter(node.settings.all_namespaces()))
    lines = [f"node {node.node_id}, data in {Path(node.settings.data)}", ""]
    http = node.urls.get("http")
    pages = node.urls.get("control") or http
    if pages is not None:
        lines += [
            f"  dashboard  {pages}/",
            f"  metrics    {pages}/metrics",
            f"  openapi    {pages}/openapi.json  (to read: {pages}/docs)",
        ]
    lines += [f"  {wire_name:<9}  {url}" for wire_name, url in node.urls.items()]
    lines += ["", "try:"]
    if http is not None:
        lines += [
            f"  curl -s {http}/v1/{name}/enqueue -d "
            f"""'{{"payload":{{"resourceType":"table","resourceId":"a"}}}}'"""
        ]
    lines += [f"  omnirelay lease{_flag(http)}", f"  omnirelay explain 1{_flag(http)}", ""]
    if seeded:
        lines += [f"{seeded} items were put in to play with.", ""]
    lines += ["Ctrl-C stops it. What happens:"]
    print("\n".join(lines), flush=True)


def _flag(http: str | None) -> str:
    usual = http is not None and urlsplit(http).port == 7400
    return "" if usual or http is None else f" --url {http}"


async def _tell(node: "Node", namespace: str, *, json: bool) -> None:
    settings = _client(node, namespace)
    prefix = "" if len(node.settings.all_namespaces()) == 1 else f"{namespace}  "
    async with Caller(settings) as caller:
        stats = await caller.ask("stats", wire.StatsRequest(), wire.StatsResponse)
        request = wire.EventsRequest(stats.last_sequence + 1, follow=True)
        with suppress(Unavailable):  # the node stops
            async with aclosing(caller.stream("events", request, Event)) as events:
                async for event in events:
                    print(encode_event(event).decode() if json else prefix + event_in_words(event))
                    print(end="", flush=True)
