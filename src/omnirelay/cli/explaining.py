"""`omnirelay explain`: why an item is not moving, and what to do."""

import shlex
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated

import typer

from omnirelay.cli.calling import Caller
from omnirelay.cli.client import Client, calls_a_node
from omnirelay.cli.ending import CommandFailed, print_json
from omnirelay.cli.explain_words import Explanation, Found, explain_gone, explain_item
from omnirelay.cli.saying import counted, plain
from omnirelay.journal.events import Event
from omnirelay.mesh import wire
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError
from omnirelay.node.keys import ClientSettings


@calls_a_node
def explain(
    client: Client,
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SEQUENCE | TYPE ID]", help="None: the queue as a whole."),
    ] = None,
) -> None:
    """Say why an item, or the whole queue, is not moving, and what to do."""
    words = what or []
    if not words:
        response = client.run(_stats)
        explained = _explain_queue(response, _flags(client.settings))
    else:
        request = _request(words)
        explained = client.run(lambda caller: _explain(caller, request))
    if client.json:
        print_json(explained)
    else:
        _print(explained)


def _request(words: list[str]) -> wire.InspectRequest:
    if len(words) == 2:
        return wire.InspectRequest(resource_type=words[0], resource_id=words[1])
    if len(words) > 2 or not words[0].isascii() or not words[0].isdigit():
        raise typer.BadParameter("an item is SEQUENCE, or TYPE ID")
    if not 1 <= int(words[0]) <= limits.WIRE_NUMBER_MAX:
        raise typer.BadParameter("a sequence is a number from 1 on")
    return wire.InspectRequest(sequence_id=int(words[0]))


async def _stats(caller: Caller) -> wire.StatsResponse:
    return await caller.ask("stats", wire.StatsRequest(), wire.StatsResponse)


async def _explain(caller: Caller, request: wire.InspectRequest) -> Explanation:
    try:
        view = await caller.ask("inspect", request, wire.InspectResponse)
    except OmniRelayError as error:
        if error.status != "NOT_FOUND" or request.sequence_id is None:
            raise
        gone = explain_gone(request.sequence_id, await _history(caller, request.sequence_id))
        if gone is None:
            raise CommandFailed(
                f"item {request.sequence_id} is not in the queue, and the end of the journal does "
                f"not mention it: it never was, or is long over"
            ) from error
        return gone
    return explain_item(
        Found(
            view=view,
            stats=await _stats(caller),
            now=datetime.now(UTC),
            blocker=await _blocker(caller, view),
            flags=_flags(caller.settings),
        )
    )


async def _blocker(caller: Caller, view: wire.InspectResponse) -> wire.InspectResponse | None:
    """By name the queue finds the leased item of a resource first."""
    if view.state != "parked":
        return None
    payload = view.item.payload
    request = wire.InspectRequest(
        resource_type=payload.resource_type, resource_id=payload.resource_id
    )
    try:
        other = await caller.ask("inspect", request, wire.InspectResponse)
    except OmniRelayError:
        return None  # it ended meanwhile
    return other if other.item.sequence_id != view.item.sequence_id else None


async def _history(caller: Caller, sequence: int) -> list[Event]:
    """The end of the journal is looked through, not all of it."""
    last = (await _stats(caller)).last_sequence
    request = wire.EventsRequest(max(1, last - limits.HISTORY_EVENTS_MAX), follow=False)
    found: list[Event] = []
    async with aclosing(caller.stream("events", request, Event)) as events:
        async for event in events:
            items = event.items or ()
            if event.sequence_id == sequence or any(one.sequence_id == sequence for one in items):
                found.append(event)
    return found


def _explain_queue(stats: wire.StatsResponse, flags: str) -> Explanation:
    pending, active = stats.stats.pending_count, stats.stats.active_lease_count
    ready = pending - stats.delayed_count
    if not pending and not active:
        summary = "The queue is empty: nothing waits and nothing is leased."
    elif not ready and not active:
        summary = f"All that is pending ({pending}) is delayed; each goes on when its time comes."
    elif ready and not active:
        summary = f"{counted(ready, 'item')} could run, no lease is out: no worker asks for them."
    else:
        summary = f"It moves: {counted(active, 'item')} leased, {ready} waiting for a free worker."
    proposed = []
    if stats.backpressure:
        summary += " Enqueue is paused by backpressure until enough is done."
    if ready and not active:
        proposed = [f"omnirelay lease{flags}"]
    if stats.dead_letter_count:
        summary += f" {stats.dead_letter_count} were given up."
        proposed.append(f"omnirelay deadletters list{flags}")
    return Explanation(sequence_id=0, state="queue", summary=summary, next=proposed)


def _flags(settings: ClientSettings) -> str:
    """What was said to reach this queue, for a command that can be copied; never a secret."""
    plain_ones = ClientSettings()
    said = ""
    if settings.url != plain_ones.url:
        said += f" --url {shlex.quote(settings.url)}"
    if settings.namespace != plain_ones.namespace:
        said += f" --namespace {shlex.quote(settings.namespace)}"
    return said


def _print(explained: Explanation) -> None:
    if explained.resource_type is not None:
        name = plain(f"{explained.resource_type}/{explained.resource_id}")
        print(f"item {explained.sequence_id}, {name}: {explained.state}")
    elif explained.sequence_id:
        print(f"item {explained.sequence_id}: {explained.state}")
    print(f"  {explained.summary}")
    for name, value in explained.facts.items():
        print(f"  {name:<14} {value}")
    if explained.history:
        print("what happened:")
        for line in explained.history:
            print(f"  {line}")
    if explained.next:
        print("what to do:")
        for line in explained.next:
            print(f"  {line}")
