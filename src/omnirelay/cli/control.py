"""`omnirelay peers`, `shards` and `backpressure watch`: the node's control plane, over HTTP."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from omnirelay.cli.calling import check_address, credentials, tls_of
from omnirelay.cli.client import Client, calls_a_node
from omnirelay.cli.ending import BadAddress, print_json
from omnirelay.cli.saying import clock_time, plain, print_table, span
from omnirelay.model import limits
from omnirelay.model.errors import DeadlineExceeded, OmniRelayError, Unavailable
from omnirelay.node.keys import ClientSettings
from omnirelay.rpc.status import ErrorBody, error_of
from omnirelay.transports.client_tls import Tls

if TYPE_CHECKING:
    import aiohttp

PREFIX = "/omnirelay/control"

backpressure = typer.Typer(help="When producers are paused.", no_args_is_help=True)

Row = dict[str, Any]  # Any: JSON, as the node of another version may say more


@calls_a_node
def peers(client: Client) -> None:
    """Who holds leases, how many, and how long they still last; and the other nodes."""
    found = asyncio.run(_get(client.settings, f"{PREFIX}/peers"))
    if client.json:
        print_json(found)
        return
    rows = [
        (
            plain(row.get("peerId")),
            plain(row.get("principal")),
            row.get("activeLeases"),
            span(row.get("oldestGrantMs", 0)),
            _left(row.get("nextExpiryMs", 0)),
            ", ".join(row.get("shards", ())),
        )
        for row in _rows(found, "peers")
    ]
    print_table(("peer", "principal", "leases", "oldest", "first runs out", "queues"), rows)
    if nodes := _rows(found, "nodes"):
        print()
        print_table(("node", "at", "version", "state", "owns"), [*map(_node, nodes)])


def _node(row: Row) -> tuple[object, ...]:
    state = "answers" if row.get("isAnswering") else "silent"
    return (
        plain(row.get("nodeId") or "unknown"),
        plain(row.get("url")),
        plain(row.get("version")),
        "leaving" if row.get("isLeaving") and state == "answers" else state,
        ", ".join(row.get("owns", ())),
    )


def _left(ms: float) -> str:
    return f"in {span(ms)}" if ms >= 0 else f"{span(ms)} ago"


@calls_a_node
def shards(client: Client) -> None:
    """Every queue of the node: depths, leader, journal."""
    found = asyncio.run(_get(client.settings, f"{PREFIX}/shards"))
    if client.json:
        print_json(found)
        return
    names = ("pendingCount", "activeLeaseCount", "delayedCount", "deadLetterCount")
    rows = [
        (
            row.get("shard"),
            "ready" if row.get("isReady") else plain(row.get("trouble") or "not ready"),
            *(row.get(name, 0) for name in names),
            row.get("role"),
            row.get("leader"),
            row.get("epoch"),
            row.get("lastSequence"),
            row.get("journal"),
        )
        for row in _rows(found, "shards")
    ]
    counts = ("pending", "leased", "delayed", "dead")
    print_table(("queue", "state", *counts, "role", "leader", "epoch", "last", "journal"), rows)


@backpressure.command()
@calls_a_node
def watch(client: Client) -> None:
    """Print every change as it happens, until Ctrl-C."""
    try:
        asyncio.run(_watch(client))
    except KeyboardInterrupt:
        return  # how a watcher is meant to end


async def _watch(client: Client) -> None:
    now = await _get(client.settings, f"{PREFIX}/backpressure")
    if not client.json and not now:
        print("no change since the node started: nobody is paused", flush=True)
    async for row in _stream(client.settings, f"{PREFIX}/backpressure/stream"):
        if client.json:
            print_json(row)
        else:
            print(_transition(row))
        print(end="", flush=True)


def _transition(row: Row) -> str:
    at = clock_time(datetime.fromtimestamp(row.get("atMs", 0) / 1000, UTC))
    word = "producers are paused" if row.get("state") == "active" else "producers go on"
    return f"{at}  {row.get('shard')}: {word}, {row.get('pendingCount')} pending"


def _rows(found: Row, name: str) -> list[Row]:
    rows = found.get(name)
    return rows if isinstance(rows, list) else []


# -- plumbing -----------------------------------------------------------------------------------


async def _get(settings: ClientSettings, path: str) -> Row:
    """An empty answer is an empty table."""
    async with _opened(settings, path, settings.timeout_s) as response:
        body = await response.content.read(limits.MESSAGE_BYTES_MAX)
        if response.status == 204:
            return {}
        if response.status != 200:
            raise _refusal(response.status, body)
        return msgspec.json.decode(body, type=Row)


async def post(settings: ClientSettings, path: str, body: object, *, url: str | None = None) -> Row:
    """`url` is another node than the settings name."""
    if url is not None:
        settings = msgspec.structs.replace(settings, url=url)
    async with _opened(settings, path, settings.timeout_s, msgspec.json.encode(body)) as response:
        answer = await response.content.read(limits.MESSAGE_BYTES_MAX)
        if response.status != 200:
            raise _refusal(response.status, answer)
        return msgspec.json.decode(answer, type=Row)


async def _stream(settings: ClientSettings, path: str) -> AsyncGenerator[Row]:
    async with _opened(settings, path, None) as response:
        if response.status != 200:
            raise _refusal(response.status, await response.content.read(limits.MESSAGE_BYTES_MAX))
        async for line in response.content:
            if line.startswith(b"data:"):
                yield msgspec.json.decode(line[5:], type=Row)
    raise Unavailable("the node has ended the stream")


@asynccontextmanager
async def _opened(
    settings: ClientSettings, path: str, seconds: float | None, body: bytes | None = None
) -> "AsyncGenerator[aiohttp.ClientResponse]":
    url = _http_address(settings)
    try:
        import aiohttp
    except ModuleNotFoundError as missing:
        raise BadAddress("http:// needs aiohttp: pip install 'omnirelay[http]'") from missing
    timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(5.0, settings.timeout_s))
    async with aiohttp.ClientSession(timeout=timeout, headers=credentials(settings)) as session:
        try:
            async with session.request(
                "GET" if body is None else "POST",
                f"{url}{path}",
                data=body,
                headers={} if body is None else {"content-type": "application/json"},
                ssl=_context(settings, url),
                allow_redirects=False,
            ) as response:
                yield response
        except TimeoutError:
            raise DeadlineExceeded(f"{url} did not answer within {seconds:g} s") from None
        except aiohttp.ClientError as error:
            raise Unavailable(f"{url} cannot be reached: {error}") from error


def _http_address(settings: ClientSettings) -> str:
    check_address(settings.url)
    url = settings.url.partition(",")[0].strip().rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise BadAddress("the control plane is served over HTTP: use --url http://host:port")
    return url


def _context(settings: ClientSettings, url: str) -> ssl.SSLContext | bool:
    return (tls_of(settings) or Tls()).context() if url.startswith("https") else True


def _refusal(status: int, body: bytes) -> OmniRelayError:
    try:
        return error_of(msgspec.json.decode(body, type=ErrorBody))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return OmniRelayError(f"the node answered with {status}")
