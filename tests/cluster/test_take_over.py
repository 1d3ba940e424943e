"""Holders of leases while the owner of their queue changes: they keep what they hold."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnirelay
from omnirelay.testing.cluster_nodes import NAMESPACE, ClusterMesh, cluster_mesh
from omnirelay.testing.cluster_verdict import read_journal

LEASE_S = 4.0


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return f"file://{tmp_path}/objects"


@pytest.fixture
def mesh(tmp_path: Path, journal: str) -> Iterator[ClusterMesh]:
    with cluster_mesh(tmp_path, lambda _: journal, 2, epoch_s=0.8) as mesh:
        mesh.start()
        yield mesh


@pytest.mark.timeout(60)
@pytest.mark.parametrize("trouble", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_worker_keeps_its_lease_through_a_take_over(
    mesh: ClusterMesh, journal: str, trouble: signal.Signals
) -> None:
    """Its handler goes on for longer than the lease lasts, so heartbeats must find the new owner;
    the worker's connections are to the old one first."""
    owner = await mesh.owner()
    urls = [owner.url, *(node.url for node in mesh.nodes if node is not owner)]
    taken = asyncio.Event()
    lost: list[bool] = []
    async with omnirelay.connect(",".join(urls)) as relay:
        worker = omnirelay.Worker(relay, lease_duration=LEASE_S)

        @worker.handles("table")
        async def handle(lease: omnirelay.Lease) -> None:
            taken.set()
            await asyncio.sleep(1.5 * LEASE_S)
            lost.append(lease.lost.is_set())

        running = asyncio.create_task(worker.run())
        await relay.enqueue("table", "orders")
        await taken.wait()
        owner.send(trouble)
        await mesh.owner(but=owner)
        async with asyncio.timeout(30):
            while not worker.completed:
                await worker_rests()
        worker.stop()
        await running
    if trouble is signal.SIGSTOP:
        owner.send(signal.SIGCONT)
    read = await read_journal(journal, NAMESPACE)
    kinds = [event.event_type for event in read.events]
    assert lost == [False]
    assert (kinds.count("LeaseGranted"), kinds.count("Completed")) == (1, 1)
    assert len(read.owners) >= 2


async def worker_rests() -> None:
    await asyncio.sleep(0.02)
