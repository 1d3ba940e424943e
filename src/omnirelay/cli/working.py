"""`omnirelay lease`, `heartbeat`, `complete`, `fail` and `release`: a worker by hand."""

from typing import Annotated

import typer

from omnirelay.cli.calling import Caller
from omnirelay.cli.client import Client, calls_a_node
from omnirelay.cli.ending import EXIT_FAILED, complain, print_json
from omnirelay.cli.saying import body_in_words, clock_time, plain, span
from omnirelay.lease.answers import LeaseResponse
from omnirelay.mesh import wire
from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, NothingToLease, OmniRelayError
from omnirelay.model.items import Token
from omnirelay.model.ports import RandomIds
from omnirelay.rpc.status import ErrorBody, error_of


def _parse(text: str) -> Token:
    try:
        return Token.parse(text)
    except InvalidArgument as error:
        raise typer.BadParameter(error.message) from None


OneToken = Annotated[
    Token, typer.Argument(parser=_parse, metavar="TOKEN", help="seq:attempt:leaseIdHex.")
]
Tokens = Annotated[
    list[Token], typer.Argument(parser=_parse, metavar="TOKEN", help="seq:attempt:leaseIdHex.")
]


@calls_a_node
def lease(
    client: Client,
    *,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for an item.")] = 0.0,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only these types; may come several times.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds the lease lasts.")
    ] = None,
    peer: Annotated[str | None, typer.Option(help="Name of the worker.")] = None,
    request_id: Annotated[
        str | None, typer.Option(help="The same again gives the same leases.")
    ] = None,
    max_items: Annotated[
        int, typer.Option(min=1, max=limits.BATCH_MAX, help="How many at the most.")
    ] = 1,
) -> None:
    """Take an item. Nothing renews it: say `heartbeat`, then `complete`, `fail` or `release`."""
    request = wire.LeaseBatchRequest(
        max_items,
        peer,
        round(wait * 1000),
        tuple(type_) if type_ else None,
        None if duration is None else round(duration * 1000),
        request_id or RandomIds().lease_id(),
    )

    async def call(caller: Caller) -> wire.LeaseBatchResponse | None:
        return await caller.may_ask("leaseBatch", request, wire.LeaseBatchResponse, wait_s=wait)

    response = client.run(call)
    if response is None or not response.leases:
        raise NothingToLease
    if client.json:
        print_json(response if max_items > 1 else response.leases[0])
        return
    for one in response.leases:
        print(_in_words(one))


def _in_words(one: LeaseResponse) -> str:
    payload = one.payload
    lines = [
        f"item {one.sequence_id}  {plain(payload.resource_type)}/{plain(payload.resource_id)}  "
        f"attempt {one.attempt}  fence {one.fence}",
        f"  token    {one.token}",
        f"  expires  {clock_time(one.expires_at)}, {span(one.lease_duration_ms)} after the grant; "
        f"renew every {span(one.heartbeat_interval_ms)}",
        f"  body     {body_in_words(payload.body)}",
    ]
    if one.last_error is not None:
        lines.append(f"  before   {plain(one.last_error.message)}")
    lines.append(f"  then     omnirelay complete {one.token}")
    return "\n".join(lines)


@calls_a_node
def heartbeat(client: Client, held: Tokens) -> None:
    """Keep leases: their time starts anew."""
    _each_token(client, "heartbeatBatch", held)


@calls_a_node
def complete(client: Client, held: Tokens) -> None:
    """Finish leases: their items are done for good."""
    _each_token(client, "completeBatch", held)


def _each_token(client: Client, verb: str, tokens: list[Token]) -> None:
    if len(tokens) > limits.BATCH_MAX:
        raise typer.BadParameter(f"at most {limits.BATCH_MAX} tokens at once")
    request = wire.TokenBatchRequest(tuple(tokens))

    async def call(caller: Caller) -> wire.TokenBatchResponse:
        return await caller.ask(verb, request, wire.TokenBatchResponse)

    results = client.run(call).results
    if client.json and any(result.success for result in results):
        print_json(results[0] if len(results) == 1 else {"results": results})
    for token, result in zip(tokens, results, strict=True):
        if not result.success:
            complain(_refusal(result))
        elif not client.json:
            print(_taken(token, result))
    if not all(result.success for result in results):
        raise typer.Exit(EXIT_FAILED)


def _taken(token: Token, result: wire.TokenResult) -> str:
    if result.expires_at is None:
        return f"item {token.sequence_id} is completed"
    left = span(result.remaining_ms or 0)
    return (
        f"item {token.sequence_id} is held until {clock_time(result.expires_at)}, {left} from now"
    )


def _refusal(result: wire.TokenResult) -> OmniRelayError:
    details = None if result.current_fence is None else {"currentFence": result.current_fence}
    status, code = result.error_status or "INTERNAL", result.error_code or "error.internal"
    return error_of(ErrorBody(result.error_message or "refused", status, code, details))


@calls_a_node
def fail(
    client: Client,
    held: OneToken,
    *,
    reason: Annotated[str | None, typer.Option(help="What went wrong, in words.")] = None,
    error_code: Annotated[str | None, typer.Option(help="What went wrong, for programs.")] = None,
    requeue: Annotated[
        bool, typer.Option("--requeue/--dead-letter", help="Try again later, or give it up.")
    ] = True,
    delay: Annotated[
        float | None, typer.Option(min=0, help="Seconds until the next try; else by backoff.")
    ] = None,
) -> None:
    """Say that the work failed."""
    delay_ms = None if delay is None else round(delay * 1000)
    request = wire.FailRequest(held, reason, error_code, requeue, delay_ms=delay_ms)

    async def call(caller: Caller) -> wire.FailResponse:
        return await caller.ask("fail", request, wire.FailResponse, is_repeatable=False)

    response = client.run(call)
    if client.json:
        print_json(response)
    elif response.disposition == "deadLettered":
        print(f"item {held.sequence_id} is given up; see it: omnirelay explain {held.sequence_id}")
    else:
        print(
            f"item {held.sequence_id} is tried again later; attempt {response.attempt} has failed"
        )


@calls_a_node
def release(client: Client, held: OneToken) -> None:
    """Hand an item back untried: the attempt does not count."""

    async def call(caller: Caller) -> wire.TokenResponse:
        request = wire.TokenRequest(held)
        return await caller.ask("release", request, wire.TokenResponse, is_repeatable=False)

    response = client.run(call)
    if client.json:
        print_json(response)
    else:
        print(f"item {held.sequence_id} is back in the queue")
