"""Three nodes and one PostgreSQL, each on a host of its own: the owner's is gone from the network,
or speaks and is not heard, and nobody is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnirelay.testing.cluster_hosts import hosts
from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_nodes import ClusterMesh
from omnirelay.testing.cluster_runs import suffer
from omnirelay.testing.servers_postgres import postgres_server
from tests.cluster.over_postgres import postgres_mesh

EPOCH_S = 1.0
SCHEMA = "hosts"


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[tuple[ClusterMesh, str]]:
    with (
        hosts() as net,
        postgres_server(host=net.host()) as server,
        postgres_mesh(server, SCHEMA, tmp_path, nodes=3, epoch_s=EPOCH_S, net=net) as mesh,
    ):
        yield mesh, server.url(SCHEMA)


@pytest.mark.timeout(90)
async def test_nothing_is_lost_or_doubled_however_the_owners_host_is_cut_off(
    mesh: tuple[ClusterMesh, str],
) -> None:
    nodes, journal = mesh
    nemesis = Nemesis(nodes, epoch_s=EPOCH_S)
    troubles = [
        nemesis.cut_the_owner_off,
        nemesis.let_the_store_answer_nobody,
        nemesis.silence_the_owner,
    ]
    traffic, read = await suffer(nodes, nemesis, troubles, journal)
    assert len(read.owners) >= 4, "the owner was replaced at least three times"
    assert not traffic.failed, traffic.failed[:3]
