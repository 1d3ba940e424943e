"""Three nodes over one PostgreSQL, in every trouble that a network and an operator can make."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_nodes import ClusterMesh
from omnirelay.testing.cluster_runs import suffer
from omnirelay.testing.servers_postgres import PostgresServer
from tests.cluster.over_postgres import postgres_mesh
from tests.servers.postgres_storage import fresh_schema

EPOCH_S = 2.0


@pytest.fixture
def place(postgres: PostgresServer) -> str:
    return fresh_schema()


@pytest.fixture
def mesh(postgres: PostgresServer, place: str, tmp_path: Path) -> Iterator[ClusterMesh]:
    with postgres_mesh(postgres, place, tmp_path, nodes=3, epoch_s=EPOCH_S) as mesh:
        yield mesh


@pytest.mark.timeout(90)
async def test_nothing_is_lost_or_doubled_whatever_happens_to_the_owner(
    mesh: ClusterMesh, postgres: PostgresServer, place: str
) -> None:
    nemesis = Nemesis(mesh, epoch_s=EPOCH_S)
    traffic, read = await suffer(mesh, nemesis, nemesis.of_nodes(), postgres.url(place))
    assert len(read.owners) >= 4, "the owner was replaced at least three times"
    assert not traffic.failed, traffic.failed[:3]
