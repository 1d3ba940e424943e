"""`omnirelay promote`: a region that stood by takes over."""

import asyncio
import re
import sys
from typing import Annotated

import typer

from omnirelay.cli.client import Client, calls_a_node
from omnirelay.cli.control import PREFIX, Row, post
from omnirelay.cli.ending import print_json
from omnirelay.cli.saying import plain
from omnirelay.model.errors import DeadlineExceeded, Unavailable

_LOSS = re.compile(r"([0-9]{1,12})(s?)")


@calls_a_node
def promote(
    client: Client,
    *,
    accept_loss: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N|Ns",
            help="Go on although so many events are missing, or although the other region was "
            "last heard of so many seconds ago. May come twice.",
        ),
    ] = None,
    fence_old: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Let the node there stand down first, if it answers, and wait for its last "
            "event. May come several times.",
        ),
    ] = None,
) -> None:
    """Make a node that stands by serve. Begins a new epoch in its journal, which fences whoever
    still writes there for the other region."""
    wanted = _wanted(accept_loss or [])
    found = asyncio.run(_promote(client, wanted, fence_old or []))
    if client.json:
        print_json(found)
        return
    for row in found["shards"]:
        print(
            f"{plain(row.get('shard'))}: served by {plain(row.get('leader'))}, epoch "
            f"{row.get('epoch')}, from sequence {row.get('lastSequence')} on"
        )
    print(plain(found.get("why")))


def _wanted(given: list[str]) -> Row:
    wanted: Row = {}
    for one in given:
        found = _LOSS.fullmatch(one)
        if found is None:
            raise typer.BadParameter(
                f"{one!r} is neither a number of events nor of seconds, such as 20 or 90s",
                param_hint="--accept-loss",
            )
        if found[2]:
            wanted["acceptLossMs"] = int(found[1]) * 1000
        else:
            wanted["acceptLossEvents"] = int(found[1])
    return wanted


async def _promote(client: Client, wanted: Row, fence_old: list[str]) -> Row:
    last: dict[str, int] = {}
    for url in fence_old:
        for name, sequence in (await _stood_down(client, url)).items():
            last[name] = max(sequence, last.get(name, 0))
    return await post(
        client.settings, f"{PREFIX}/region/promote", {**wanted, "lastSequences": last}
    )


async def _stood_down(client: Client, url: str) -> dict[str, int]:
    """Where each of its queues has ended; none if it does not answer."""
    why = {"why": f"the region of {client.settings.url} takes over"}
    try:
        answer = await post(client.settings, f"{PREFIX}/region/stand-down", why, url=url)
    except (Unavailable, DeadlineExceeded) as error:
        print(f"omnirelay: {error.message}; it was not told", file=sys.stderr)
        return {}
    found: dict[str, int] = answer["lastSequences"]
    return found
