"""Three nodes over three NATS servers: nodes die, pause, and the stream loses its own leader."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnirelay.stores.nats import NatsJournal
from omnirelay.stores.nats_address import parse
from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_nodes import NAMESPACE, ClusterMesh, cluster_mesh
from omnirelay.testing.cluster_runs import suffer
from omnirelay.testing.servers_nats import NatsServers, nats_servers
from tests.servers.test_nats_product import leader_of

EPOCH_S = 2.0
STREAM = "MESH"


def journal_of(servers: NatsServers) -> str:
    return servers.url(STREAM, "&replicas=3")


@pytest.fixture
def servers() -> Iterator[NatsServers]:
    with nats_servers(3) as servers:
        yield servers


@pytest.fixture
def mesh(servers: NatsServers, tmp_path: Path) -> Iterator[ClusterMesh]:
    with cluster_mesh(tmp_path, lambda _: journal_of(servers), 3, epoch_s=EPOCH_S) as mesh:
        mesh.start()
        yield mesh


async def kill_the_streams_leader(servers: NatsServers, nemesis: Nemesis) -> None:
    journal = NatsJournal(parse(journal_of(servers)), NAMESPACE)
    await journal.open()
    name = await leader_of(journal)
    await journal.close()
    nemesis.actions.append(f"kill server {name}")
    leader = servers.named(name)
    leader.kill()
    await asyncio.sleep(EPOCH_S)
    await asyncio.to_thread(leader.start)


@pytest.mark.timeout(150)
async def test_nothing_is_lost_or_doubled_when_nodes_and_servers_die(
    mesh: ClusterMesh, servers: NatsServers
) -> None:
    nemesis = Nemesis(mesh, epoch_s=EPOCH_S)
    troubles = [
        nemesis.kill_the_owner,
        lambda: kill_the_streams_leader(servers, nemesis),
        nemesis.stop_the_owner,
    ]
    traffic, read = await suffer(mesh, nemesis, troubles, journal_of(servers))
    assert len(read.owners) >= 3, "the owner was replaced at least twice"
    assert not traffic.failed, traffic.failed[:3]
