"""An owner whose append got no answer: it need not wait for its own silence to run out."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnirelay
from omnirelay.testing.cluster_links import Link
from omnirelay.testing.cluster_nodes import NAMESPACE, ClusterMesh
from omnirelay.testing.cluster_verdict import Read, read_journal
from omnirelay.testing.servers_postgres import PostgresServer
from tests.cluster.over_postgres import postgres_mesh
from tests.servers.postgres_storage import fresh_schema

EPOCH_S = 20.0
"""Long, so that waiting for it cannot be taken for a slow machine."""


@pytest.fixture
def place(postgres: PostgresServer) -> str:
    return fresh_schema()


@pytest.fixture
def mesh(postgres: PostgresServer, place: str, tmp_path: Path) -> Iterator[ClusterMesh]:
    with postgres_mesh(postgres, place, tmp_path, nodes=2, epoch_s=EPOCH_S) as mesh:
        yield mesh


def enqueued(read: Read) -> list[str]:
    return [event.payload.resource_id for event in read.events if event.payload is not None]


async def arrived(journal: str, name: str) -> None:
    """Until an item of that name is in the journal."""
    async with asyncio.timeout(10):
        while True:
            if name in enqueued(await read_journal(journal, NAMESPACE)):
                return
            await another_look()


async def another_look() -> None:
    await asyncio.sleep(0.02)


@pytest.mark.timeout(90)
async def test_an_owner_that_lost_the_answer_to_an_append_serves_again_at_once(
    mesh: ClusterMesh, postgres: PostgresServer, place: str
) -> None:
    owner, journal = await mesh.owner(), postgres.url(place)
    [link] = mesh.store_roads_of(owner)
    assert isinstance(link, Link), "hosts do not hang up"
    async with omnirelay.connect(owner.url, retry=60.0) as relay:
        await relay.enqueue("table", "before", request_id="before")
        link.cut(there=False)
        unanswered = asyncio.create_task(relay.enqueue("table", "during", request_id="during"))
        await arrived(journal, "during")
        link.hang_up()
        link.heal()
        began = time.monotonic()
        await unanswered
        took_s = time.monotonic() - began
        await relay.enqueue("table", "after", request_id="after")
    read = await read_journal(journal, NAMESPACE)
    assert enqueued(read) == ["before", "during", "after"]
    assert read.owners == {1: {owner.name}, 2: {owner.name}}
    assert took_s < EPOCH_S / 2
