"""What a store costs beyond the client it stands on, and how fast a journal is folded from it."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import omnirelay
from bench import bare_hub
from omnirelay import Payload
from omnirelay.cli.free_ports import LOOPBACK, free_port
from omnirelay.journal.format import Sealed, seal
from omnirelay.lease.records import Enqueued, Record
from omnirelay.mesh.following import Following
from omnirelay.model.ports import SystemClock
from omnirelay.stores.registry import open_address
from omnirelay.testing.servers import Server
from omnirelay.testing.servers_hub import hub_server
from omnirelay.testing.servers_nats import nats_servers
from omnirelay.testing.servers_objects import az_server, gs_server, s3_server
from omnirelay.testing.servers_postgres import postgres_server
from omnirelay.testing.servers_valkey import valkey_server

ENVELOPES = 400
EVENTS = 100
"""An envelope of the append runs."""
CATCH_UP_ITEMS = 100_000
"""Each leaves three events."""
BATCH = 250
PAYLOAD = Payload("table", "sales.orders", body=bytes(200))
SHARD = "bench"
LEADER_S = 20

Put = Callable[[int, bytes], Awaitable[object]]


def envelopes(count: int, events: int) -> list[Sealed]:
    """A chain of enqueues, as large as a busy shard's."""
    found, link, first = [], "", 1
    for _ in range(count):
        records: list[Record] = [Enqueued(first + n, PAYLOAD) for n in range(events)]
        found.append(_sealed(records, first, link))
        first, link = first + events, found[-1].checksum
    return found


def _sealed(records: list[Record], first: int, link: str) -> Sealed:
    depths = ([1] * len(records), [0] * len(records))
    return seal(records, depths, head=(SHARD, 1, "n"), first=first, time=1, prev=link)


# -- appends beside the bare client ---------------------------------------------------------------


def append_rates(store: str) -> tuple[float, float]:
    """Ours and the bare client's, in turns of one server."""
    blobs = envelopes(ENVELOPES, EVENTS)
    with (
        tempfile.TemporaryDirectory(prefix="omnirelay-bench-") as folder,
        APPENDS[store](Path(folder)) as (url, bare),
    ):
        return asyncio.run(_rates(url, bare, blobs))


async def _rates(url: str, bare: Callable[[], Any], blobs: list[Sealed]) -> tuple[float, float]:
    journal = open_address(url, SHARD).journal
    await journal.open()
    began = time.perf_counter()
    for sealed in blobs:
        await journal.append(sealed, expected=sealed.first - 1)
    ours = len(blobs) / (time.perf_counter() - began)
    await journal.close()
    async with bare() as put:
        began = time.perf_counter()
        for number, sealed in enumerate(blobs):
            await put(number, sealed.body)
        return ours, len(blobs) / (time.perf_counter() - began)


Place = Iterator[tuple[str, Callable[[], Any]]]
"""An address, and a context that gives the bare client's put. Any: async context managers."""


class Bare:
    """A context around a bare client: `open` gives its put and what ends it."""

    def __init__(self, begin: Callable[[], Awaitable[tuple[Put, Callable[[], Any]]]]) -> None:
        self._begin = begin

    async def __aenter__(self) -> Put:
        put, self._end = await self._begin()
        return put

    async def __aexit__(self, *_raised: object) -> None:
        ended = self._end()
        if ended is not None:
            await ended


@contextmanager
def _sqlite(folder: Path) -> Place:
    async def begin() -> tuple[Put, Callable[[], Any]]:
        db = bare_hub.bare_table(str(folder / "bare.db"))

        async def put(number: int, body: bytes) -> None:
            db.execute("INSERT INTO blobs VALUES (?, ?)", (number, body.decode()))

        return put, db.close

    yield f"sqlite:///{folder}/ours.db", lambda: Bare(begin)


@contextmanager
def _postgres(folder: Path) -> Place:
    import psycopg

    with postgres_server({"shared_buffers": "256MB", "max_wal_size": "4GB"}) as server:
        server.execute("CREATE TABLE blobs (number bigint PRIMARY KEY, body bytea)")

        async def begin() -> tuple[Put, Callable[[], Any]]:
            place = f"host=127.0.0.1 port={server.port} user=tests dbname=postgres"
            db = await psycopg.AsyncConnection.connect(place, autocommit=True)

            async def put(number: int, body: bytes) -> None:
                await db.execute("INSERT INTO blobs VALUES (%s, %b)", (number, body), prepare=True)

            return put, db.close

        yield server.url("bench"), lambda: Bare(begin)


@contextmanager
def _redis(folder: Path) -> Place:
    from redis.asyncio import Redis

    with valkey_server() as server:

        async def begin() -> tuple[Put, Callable[[], Any]]:
            client: Any = Redis(host="127.0.0.1", port=server.port, single_connection_client=True)

            async def put(number: int, body: bytes) -> None:
                await client.execute_command("XADD", "blobs", "*", "b", body)

            return put, client.aclose

        yield server.url("bench"), lambda: Bare(begin)


@contextmanager
def _nats(folder: Path, count: int = 1) -> Place:
    import nats

    with nats_servers(count) as servers:

        async def begin() -> tuple[Put, Callable[[], Any]]:
            client = await nats.connect(f"nats://127.0.0.1:{servers.servers[0].port}")
            stream = client.jetstream()
            await stream.add_stream(name="BLOBS", subjects=["blobs"], num_replicas=count)

            async def put(number: int, body: bytes) -> None:
                await stream.publish("blobs", body, timeout=10)

            await _first(put)

            return put, client.close

        yield servers.url("BENCH", f"&replicas={count}"), lambda: Bare(begin)


async def _first(put: Put) -> None:
    """A stream of several servers has no leader in the moment it is made, and answers nobody."""
    until = time.monotonic() + LEADER_S
    while True:
        try:
            await put(0, b"first")
        except Exception:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.1)
        else:
            return


@contextmanager
def _nats3(folder: Path) -> Place:
    with _nats(folder, 3) as found:
        yield found


@contextmanager
def _file(folder: Path) -> Place:
    """Its bare client is the disk: a file made, synced, and its name synced."""
    (folder / "bare").mkdir()

    async def begin() -> tuple[Put, Callable[[], Any]]:
        place = os.open(folder / "bare", os.O_RDONLY)

        def write(number: int, body: bytes) -> None:
            handle = os.open(folder / "bare" / f"{number:020d}.json", os.O_CREAT | os.O_WRONLY)
            os.write(handle, body)
            os.fsync(handle)
            os.close(handle)
            os.fsync(place)

        async def put(number: int, body: bytes) -> None:
            await asyncio.to_thread(write, number, body)

        return put, lambda: os.close(place)

    yield f"file://{folder}/ours", lambda: Bare(begin)


@contextmanager
def _objects(serve: Callable[[], Any], folder: Path) -> Place:
    """S3 is moto; the other two are small servers of our own."""
    import obstore
    from obstore.store import from_url

    with serve() as server:
        os.environ.update(server.environment)

        async def begin() -> tuple[Put, Callable[[], Any]]:
            bucket = from_url(server.url("bare"), client_options={"allow_http": True})

            async def put(number: int, body: bytes) -> None:
                await obstore.put_async(bucket, f"{number:020d}.json", body, mode="create")

            return put, lambda: None

        yield server.url("ours"), lambda: Bare(begin)


@contextmanager
def _hub(folder: Path) -> Place:
    """A hub over SQLite; bare are gRPC's own client and server, over the bare SQLite."""
    import grpc.aio

    port = free_port()
    command = [sys.executable, str(bare_hub.__file__), str(port), str(folder / "bare.db")]
    bare = Server(command, folder=folder, port=port)
    with hub_server() as server:
        bare.start()

        async def begin() -> tuple[Put, Callable[[], Any]]:
            channel = grpc.aio.insecure_channel(f"{LOOPBACK}:{port}")
            await channel.channel_ready()
            call: Any = channel.unary_unary(f"/{bare_hub.SERVICE}/Put")

            async def put(number: int, body: bytes) -> None:
                await call(body)

            return put, channel.close

        try:
            yield server.url(), lambda: Bare(begin)
        finally:
            bare.kill()


APPENDS: dict[str, Callable[[Path], Any]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "redis": _redis,
    "nats": _nats,
    "nats3": _nats3,
    "file": _file,
    "s3": partial(_objects, s3_server),
    "gs": partial(_objects, gs_server),
    "az": partial(_objects, az_server),
    "hub": _hub,
}
CATCH_UPS = ("sqlite", "postgres", "nats")


# -- catching up ----------------------------------------------------------------------------------


def catch_up_rate(store: str) -> float:
    """Events a second from the journal into the state of a follower that starts with nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="omnirelay-bench-") as folder,
        APPENDS[store](Path(folder)) as (url, _),
    ):
        return asyncio.run(_catch_up(url))


async def _catch_up(url: str) -> float:
    keep = omnirelay.KeepOptions(snapshot_every=100 * CATCH_UP_ITEMS)  # none: the tail is all
    async with omnirelay.connect(url, namespace=SHARD, keep=keep) as relay:
        for _ in range(CATCH_UP_ITEMS // BATCH):
            await relay.enqueue_many([PAYLOAD] * BATCH)
            await relay.complete_many(await relay.lease_many(BATCH))
    journal = open_address(url, SHARD).journal
    await journal.open()
    began = time.perf_counter()
    following = await Following.begin(journal, SystemClock())
    took = time.perf_counter() - began
    await journal.close()
    return following.state.sequence / took
