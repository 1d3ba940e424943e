"""What the first version stored in each product is read by this one, means the same and goes on.

Each fixture was written once, from `journal-v1.db`, and is never written again: a new version of a
store's layout gets a fixture of its own beside it. A stream and objects say their version only in
those that are called marked.
"""

import base64
import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnirelay
from omnirelay.cli.carrying import carry
from omnirelay.lease.image import facts
from omnirelay.mesh.recovery import recover
from omnirelay.stores.outside import look_outside
from omnirelay.stores.redis_link import RedisTarget
from tests.servers.postgres_storage import fresh_schema
from tests.servers.redis_storage import fresh_prefix

if TYPE_CHECKING:
    from omnirelay.testing.servers_nats import NatsServers
    from omnirelay.testing.servers_postgres import PostgresServer
    from omnirelay.testing.servers_valkey import ValkeyServer

FIXTURES = Path(__file__).parents[1] / "fixtures"
SHARD = "resourcelease"


def plain(text: str) -> bytes:
    return base64.b64decode(text)


async def in_postgres(request: pytest.FixtureRequest, folder: Path) -> str:
    server: PostgresServer = request.getfixturevalue("postgres")
    schema = fresh_schema()
    text = (FIXTURES / "postgres-v1.sql").read_text().replace("fixture_v1", schema)
    for statement in text.split(";\n"):
        if statement.strip():
            server.execute(statement)
    return server.url(schema)


async def in_redis(request: pytest.FixtureRequest, folder: Path) -> str:
    server: ValkeyServer = request.getfixturevalue("valkey")
    prefix = fresh_prefix()
    client = RedisTarget.parse(server.url(prefix)).client()
    for words in json.loads((FIXTURES / "redis-v1.json").read_text()):
        verb, key, *rest = map(plain, words)
        moved = key.replace(b"fixture-v1", prefix.encode())
        await client.execute_command(verb.decode(), moved, *rest)
    await client.aclose()
    return server.url(prefix)


async def in_nats(
    request: pytest.FixtureRequest, folder: Path, fixture: str = "nats-v1.json"
) -> str:
    import nats
    from nats.js.api import StreamConfig

    server: NatsServers = request.getfixturevalue("nats_one")
    name = f"OLD{fresh_schema()}".upper()
    client = await nats.connect(server.url(name).rpartition("/")[0])
    text = (FIXTURES / fixture).read_text().replace("FIXTURE_V1", name)
    for stream in json.loads(text):
        await client.jsm().add_stream(StreamConfig.from_response(stream["config"]))
        for message in stream["messages"]:
            await client.jetstream().publish(
                message["subject"], plain(message["data"]), headers=message["headers"] or None
            )
    await client.close()
    return server.url(name)


async def in_files(
    request: pytest.FixtureRequest, folder: Path, fixture: str = "objects-v1.json"
) -> str:
    for key, body in json.loads((FIXTURES / fixture).read_text()).items():
        file = folder / "journals" / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(plain(body))
    return f"file://{folder}/journals"


async def in_a_backup(request: pytest.FixtureRequest, folder: Path) -> str:
    seen = await look_outside(str(FIXTURES / "backup-v1.ndjson"), SHARD)
    await carry(seen, f"sqlite:///{folder}/restored.db")
    await seen.close()
    return f"sqlite:///{folder}/restored.db"


async def known(url: str) -> tuple[list[bytes], bytes, int]:
    seen = await look_outside(url, SHARD)
    bodies = await seen.source.read(0, 99)
    found = await recover(seen.source)
    await seen.close()
    return bodies, facts(found.state), found.snapshot_sequence


LOADS = {
    "postgres": in_postgres,
    "redis": in_redis,
    "nats": in_nats,
    "nats-marked": partial(in_nats, fixture="nats-v1-marked.json"),
    "files": in_files,
    "files-marked": partial(in_files, fixture="objects-v1-marked.json"),
    "backup": in_a_backup,
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
async def test_the_first_version_s_journal_means_the_same_and_goes_on(
    request: pytest.FixtureRequest, tmp_path: Path, load: object
) -> None:
    assert callable(load)
    shutil.copy(FIXTURES / "journal-v1.db", tmp_path / "first.db")
    wanted = await known(f"sqlite:///{tmp_path}/first.db")
    url: str = await load(request, tmp_path)
    assert await known(url) == wanted
    seen = await look_outside(url, SHARD)
    reader = await seen.checkpoints.read("audit", SHARD)
    await seen.close()
    assert reader is not None
    assert (reader.position, reader.peers) == (21, {"w-1": 20})
    async with omnirelay.connect(url) as relay:
        await relay.enqueue("table", "today")
        stats = await relay.stats()
    assert (stats.pending_count, stats.active_lease_count) == (3, 1)
    async with omnirelay.connect(url) as relay:
        assert (await relay.stats()).pending_count == 3
