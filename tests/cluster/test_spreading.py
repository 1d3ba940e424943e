"""Three nodes with several queues: each has its share, also after one has left and come back."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path

import pytest

from omnirelay.peers.rendezvous import ranked
from omnirelay.testing.cluster_nodes import ClusterMesh, ClusterNode, cluster_mesh
from omnirelay.testing.cluster_runs import held_of, stopped
from omnirelay.testing.cluster_traffic import Traffic
from omnirelay.testing.cluster_verdict import Read, breaches, read_journal

EPOCH_S = 0.8
QUEUES = tuple(f"queue{number}" for number in range(6))
LOOK_S = 0.05
CONVERGE_S = 40.0
ROUNDING_S = 0.005
HANDED_OVER = re.compile(r"^(\S+ \S+) INFO \S+: (\S+) went to node (\S+), epoch (\d+)$", re.M)


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return f"file://{tmp_path}/objects"


@pytest.fixture
def mesh(tmp_path: Path, journal: str) -> Iterator[ClusterMesh]:
    flags = [word for queue in QUEUES for word in ("--namespace", queue)]
    with cluster_mesh(tmp_path, lambda _: journal, 3, *flags, epoch_s=EPOCH_S) as mesh:
        mesh.start()
        yield mesh


def shares(nodes: Sequence[ClusterNode]) -> dict[str, str]:
    """Whom each queue belongs to if these nodes are there."""
    return {queue: ranked(queue, [node.name for node in nodes])[0] for queue in QUEUES}


def owners(mesh: ClusterMesh) -> dict[str, str]:
    """Who says of itself that it owns a queue."""
    found = {}
    for node in mesh.nodes:
        try:
            rows = node.page("/omnirelay/control/shards")["shards"] if node.is_running else []
        except (OSError, HTTPException):
            continue
        found.update({row["shard"]: node.name for row in rows if row["role"] == "owner"})
    return found


async def spread(mesh: ClusterMesh, nodes: Sequence[ClusterNode]) -> None:
    """Until every queue is where it belongs."""
    wanted, found = shares(nodes), dict[str, str]()
    try:
        async with asyncio.timeout(CONVERGE_S):
            while found != wanted:
                found = await asyncio.to_thread(owners, mesh)
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"queues are at {found} and belong to {wanted}") from None


@asynccontextmanager
async def used(mesh: ClusterMesh) -> AsyncIterator[list[Traffic]]:
    """Every queue has a producer and a worker of its own."""
    everywhere = [Traffic(mesh.urls, namespace=queue) for queue in QUEUES]
    async with AsyncExitStack() as stack:
        for traffic in everywhere:
            await stack.enter_async_context(traffic.running(1, 1, pause_s=0.1))
        yield everywhere


def begun(read: Read, epoch: int) -> float:
    """When an epoch began, by the journal's clock."""
    return next(event.timestamp.timestamp() for event in read.events if event.epoch == epoch)


@pytest.mark.timeout(150)
async def test_queues_are_spread_over_the_nodes_and_follow_who_leaves_and_comes(
    mesh: ClusterMesh, journal: str
) -> None:
    assert set(shares(mesh.nodes).values()) == {"n0", "n1", "n2"}, "each node has a share"
    leaving = mesh.named(ranked_most(mesh.nodes))
    staying = [node for node in mesh.nodes if node is not leaving]
    async with used(mesh) as everywhere:
        await spread(mesh, mesh.nodes)
        assert await asyncio.to_thread(leaving.end) == 0, leaving.log[-3000:]
        handed = HANDED_OVER.findall(leaving.log)
        await spread(mesh, staying)
        leaving.launch()
        await asyncio.to_thread(leaving.await_ready)
        await spread(mesh, mesh.nodes)
        for traffic in everywhere:
            await traffic.goes_on(5)
    await stopped(mesh)
    reads = {queue: await read_journal(journal, queue) for queue in QUEUES}
    for traffic in everywhere:
        queue = traffic.namespace
        found = list(breaches(reads[queue], traffic, held_of(mesh, queue)))
        assert not found, "\n".join([queue, *found[:10]])
        assert not traffic.failed, traffic.failed[:3]
        assert traffic.accepted
    its_own = [queue for queue, owner in shares(mesh.nodes).items() if owner == leaving.name]
    last = handed[-len(its_own) :]
    assert {queue for _, queue, *_ in last} == set(its_own), "it gave each of its own away"
    assert {queue: heir for _, queue, heir, _ in last} == {
        queue: owner for queue, owner in shares(staying).items() if queue in its_own
    }
    for (done, *_), (_, queue, _, epoch) in pairwise(last):
        done_s = datetime.strptime(done, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()
        began_s = begun(reads[queue], int(epoch))
        assert began_s >= done_s - ROUNDING_S, "one hand-over at a time"


def ranked_most(nodes: Sequence[ClusterNode]) -> str:
    """The node with the largest share, so that it has several to give away."""
    shared = list(shares(nodes).values())
    return max(set(shared), key=shared.count)
