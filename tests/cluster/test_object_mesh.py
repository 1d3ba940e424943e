"""Two nodes over an object store, where the only referee is that nothing is ever overwritten."""

from pathlib import Path

import pytest

from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_nodes import cluster_mesh
from omnirelay.testing.cluster_runs import suffer

EPOCH_S = 1.0


@pytest.mark.timeout(90)
async def test_nothing_is_lost_or_doubled_over_an_object_store(tmp_path: Path) -> None:
    journal = f"file://{tmp_path}/objects"
    with cluster_mesh(tmp_path, lambda _: journal, 2, epoch_s=EPOCH_S) as mesh:
        mesh.start()
        nemesis = Nemesis(mesh, epoch_s=EPOCH_S)
        traffic, read = await suffer(mesh, nemesis, nemesis.of_nodes(), journal)
    assert len(read.owners) >= 4, "the owner was replaced at least three times"
    assert not traffic.failed, traffic.failed[:3]
