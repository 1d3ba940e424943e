"""Two nodes over an object store, where the only referee is that nothing is ever overwritten."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_nodes import ClusterMesh, cluster_mesh
from omnirelay.testing.cluster_runs import suffer
from omnirelay.testing.servers_objects import ObjectServer

EPOCH_S = 1.0
PREFIX = "mesh"


@pytest.fixture
def mesh(
    s3: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClusterMesh]:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    journal = s3.url(PREFIX)
    with cluster_mesh(tmp_path, lambda _: journal, 2, epoch_s=EPOCH_S, store=[s3]) as mesh:
        for node in mesh.nodes:
            [road] = mesh.store_roads_of(node)
            node.environment["AWS_ENDPOINT_URL"] = f"http://{road.place}"
        mesh.start()
        yield mesh


@pytest.mark.timeout(90)
async def test_nothing_is_lost_or_doubled_over_an_object_store(
    mesh: ClusterMesh, s3: ObjectServer
) -> None:
    nemesis = Nemesis(mesh, epoch_s=EPOCH_S)
    troubles = [nemesis.kill_the_owner, nemesis.let_the_store_answer_nobody]
    traffic, read = await suffer(mesh, nemesis, troubles, s3.url(PREFIX))
    assert len(read.owners) >= 3, "the owner was replaced at least twice"
    assert not traffic.failed, traffic.failed[:3]
