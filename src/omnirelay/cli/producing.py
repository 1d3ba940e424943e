"""`omnirelay enqueue`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from omnirelay.cli.calling import Caller
from omnirelay.cli.client import Client, calls_a_node
from omnirelay.cli.ending import print_json
from omnirelay.cli.saying import counted
from omnirelay.mesh import wire
from omnirelay.model import limits
from omnirelay.model.errors import OutcomeUnknown
from omnirelay.model.items import Payload
from omnirelay.model.ports import RandomIds


@calls_a_node
def enqueue(
    client: Client,
    resource_type: Annotated[str, typer.Argument(metavar="TYPE", help="Such as `table`.")],
    resource_id: Annotated[str, typer.Argument(metavar="ID", help="Such as `sales.orders`.")],
    *,
    body: Annotated[str | None, typer.Option(help="The body, as text.")] = None,
    body_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The body, from a file; - is standard input.")
    ] = None,
    encoding: Annotated[str, typer.Option(help="What the body is.")] = "application/octet-stream",
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="May come several times.")
    ] = None,
    partition_key: Annotated[str | None, typer.Option(help="What it is serial with.")] = None,
    request_id: Annotated[
        str | None, typer.Option(help="The same again gives the first item.")
    ] = None,
    delay: Annotated[float, typer.Option(min=0, help="Seconds until it may be leased.")] = 0.0,
    priority: Annotated[int, typer.Option(help="Higher first.")] = 0,
    max_attempts: Annotated[int | None, typer.Option(min=1, help="Then it is given up.")] = None,
    lease_duration: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds its leases last.")
    ] = None,
) -> None:
    """Hand in one item."""
    named = request_id or RandomIds().lease_id()
    payload = Payload(
        resource_type,
        resource_id,
        partition_key,
        encoding,
        _body(body, body_file),
        _attributes(attribute),
        named,
    )
    request = wire.EnqueueRequest(
        payload,
        round(delay * 1000),
        priority,
        max_attempts,
        None if lease_duration is None else round(lease_duration * 1000),
    )

    async def call(caller: Caller) -> wire.EnqueueResponse:
        return await caller.ask("enqueue", request, wire.EnqueueResponse)

    try:
        response = client.run(call)
    except OutcomeUnknown as error:
        raise OutcomeUnknown(
            f"{error.message}; it may or may not have been taken: say it again with "
            f"--request-id {named}"
        ) from error
    if client.json:
        print_json(response)
    else:
        print(_in_words(response))


def _in_words(response: wire.EnqueueResponse) -> str:
    if response.duplicate:
        return f"item {response.sequence_id} was there already, by the same request id"
    stats = response.stats
    return (
        f"item {response.sequence_id} is in the queue: {stats.pending_count} pending, "
        f"{counted(stats.active_lease_count, 'lease')}"
    )


def _body(text: str | None, file: str | None) -> bytes:
    if text is not None and file is not None:
        raise typer.BadParameter("--body and --body-file exclude each other")
    if file is None:
        return (text or "").encode("utf-8", "surrogateescape")
    most = limits.BODY_BYTES_MAX + 1  # one more is enough to be refused
    if file == "-":
        return sys.stdin.buffer.read(most)
    with Path(file).open("rb") as opened:
        return opened.read(most)


def _attributes(given: list[str] | None) -> dict[str, str] | None:
    found = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"an attribute is NAME=VALUE, not {one!r}")
        found[name] = value
    return found or None
