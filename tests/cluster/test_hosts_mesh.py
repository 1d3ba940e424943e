"""Meshes whose nodes and servers have a host each: some of them are gone from the network, or speak
and are not heard, and nobody is told."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnirelay.testing.cluster_hosts import Hosts, hosts
from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_nodes import ClusterMesh, cluster_mesh
from omnirelay.testing.cluster_runs import suffer
from omnirelay.testing.servers_nats import nats_servers
from omnirelay.testing.servers_postgres import PostgresServer, postgres_server
from tests.cluster.over_nats import Store
from tests.cluster.over_postgres import postgres_mesh

EPOCH_S = 2.0
SCHEMA = "hosts"


@pytest.fixture
def net() -> Iterator[Hosts]:
    with hosts() as net:
        yield net


@pytest.fixture
def server(net: Hosts) -> Iterator[PostgresServer]:
    with postgres_server(host=net.host()) as server:
        yield server


@pytest.fixture
def over_postgres(net: Hosts, server: PostgresServer, tmp_path: Path) -> Iterator[ClusterMesh]:
    with postgres_mesh(server, SCHEMA, tmp_path, nodes=3, epoch_s=EPOCH_S, net=net) as mesh:
        yield mesh


@pytest.mark.timeout(90)
async def test_nothing_is_lost_or_doubled_however_the_owners_host_is_cut_off(
    over_postgres: ClusterMesh, server: PostgresServer
) -> None:
    nemesis = Nemesis(over_postgres, epoch_s=EPOCH_S)
    troubles = [
        nemesis.cut_the_owner_off,
        nemesis.let_the_store_answer_nobody,
        nemesis.silence_the_owner,
    ]
    traffic, read = await suffer(over_postgres, nemesis, troubles, server.url(SCHEMA))
    assert len(read.owners) >= 4, "the owner was replaced at least three times"
    assert not traffic.failed, traffic.failed[:3]


@pytest.fixture
def store(net: Hosts) -> Iterator[Store]:
    with nats_servers(3, net=net) as servers:
        yield Store(servers)


@pytest.fixture
def over_nats(net: Hosts, store: Store, tmp_path: Path) -> Iterator[ClusterMesh]:
    servers = store.servers.servers
    with cluster_mesh(tmp_path, store.url, 3, epoch_s=EPOCH_S, net=net, store=servers) as mesh:
        mesh.start()
        yield mesh


async def cut_the_leaders_host_off(net: Hosts, store: Store, nemesis: Nemesis) -> None:
    """From its fellows, from the nodes and from everybody."""
    name = await store.leader()
    nemesis.actions.append(f"cut server {name} off")
    roads = net.roads_of(store.servers.named(name).host)
    for road in roads:
        road.cut()
    try:
        await store.leader(but=name)
        await asyncio.sleep(EPOCH_S)
    finally:
        for road in roads:
            road.heal()


@pytest.mark.timeout(150)
async def test_nothing_is_lost_or_doubled_when_hosts_of_nodes_and_servers_are_gone(
    over_nats: ClusterMesh, store: Store, net: Hosts
) -> None:
    nemesis = Nemesis(over_nats, epoch_s=EPOCH_S)
    troubles = [
        lambda: cut_the_leaders_host_off(net, store, nemesis),
        nemesis.cut_the_owner_off,
        nemesis.let_the_store_answer_nobody,
    ]
    traffic, read = await suffer(over_nats, nemesis, troubles, store.url())
    assert len(read.owners) >= 3, "the owner was replaced at least twice"
    assert not traffic.failed, traffic.failed[:3]
