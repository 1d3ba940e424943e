"""Three nodes over three NATS servers, with links between all of them: nodes die, pause and are cut
off, and the stream loses its own leader."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnirelay.testing.cluster_links import links
from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_nodes import ClusterMesh, cluster_mesh
from omnirelay.testing.cluster_runs import suffer
from omnirelay.testing.servers_nats import NatsServers, nats_servers
from tests.cluster.over_nats import Store

EPOCH_S = 2.0


@pytest.fixture(scope="module")
def servers() -> Iterator[NatsServers]:
    with links() as between, nats_servers(3, net=between) as servers:
        yield servers


@pytest.fixture
def store(servers: NatsServers) -> Store:
    return Store(servers)


@pytest.fixture
def mesh(store: Store, tmp_path: Path) -> Iterator[ClusterMesh]:
    servers = store.servers.servers
    with cluster_mesh(tmp_path, store.url, 3, epoch_s=EPOCH_S, store=servers) as mesh:
        mesh.start()
        yield mesh


async def kill_the_streams_leader(store: Store, nemesis: Nemesis) -> None:
    name = await store.leader()
    nemesis.actions.append(f"kill server {name}")
    leader = store.servers.named(name)
    leader.kill()
    try:
        await asyncio.sleep(EPOCH_S)
    finally:
        leader.start()  # on this thread: a server dies with the thread that started it


async def cut_the_streams_leader(store: Store, nemesis: Nemesis) -> None:
    """From its fellows: the nodes still reach it, and it must not take what they write."""
    name = await store.leader()
    nemesis.actions.append(f"cut server {name} from the others")
    roads = store.servers.roads_of(name)
    for road in roads:
        road.cut()
    try:
        await store.leader(but=name)
    finally:
        for road in roads:
            road.heal()


@pytest.mark.timeout(150)
async def test_nothing_is_lost_or_doubled_when_nodes_and_servers_die(
    mesh: ClusterMesh, store: Store
) -> None:
    nemesis = Nemesis(mesh, epoch_s=EPOCH_S)
    troubles = [
        nemesis.kill_the_owner,
        lambda: kill_the_streams_leader(store, nemesis),
        nemesis.stop_the_owner,
    ]
    traffic, read = await suffer(mesh, nemesis, troubles, store.url())
    assert len(read.owners) >= 3, "the owner was replaced at least twice"
    assert not traffic.failed, traffic.failed[:3]


@pytest.mark.timeout(150)
async def test_nothing_is_lost_or_doubled_when_the_streams_leader_is_cut_off(
    mesh: ClusterMesh, store: Store
) -> None:
    nemesis = Nemesis(mesh, epoch_s=EPOCH_S)
    troubles = [lambda: cut_the_streams_leader(store, nemesis), nemesis.slow_everything_down]
    traffic, _ = await suffer(mesh, nemesis, troubles, store.url())
    assert not traffic.failed, traffic.failed[:3]
