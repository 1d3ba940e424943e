"""A mesh that is restarted node by node while it is used, as an upgrade does it."""

from pathlib import Path

import pytest

from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_nodes import NAMESPACE, cluster_mesh
from omnirelay.testing.cluster_runs import stopped
from omnirelay.testing.cluster_traffic import Traffic
from omnirelay.testing.cluster_verdict import breaches, read_journal
from omnirelay.testing.servers_postgres import PostgresServer
from tests.servers.postgres_storage import fresh_schema

EPOCH_S = 10.0
"""So long that nobody who waited for one to run out looks like somebody who was only slow."""
HANDED_OVER = "resourcelease went to node"
CUT_OFF = "error.cancelled"


@pytest.mark.timeout(90)
async def test_callers_do_not_notice_a_rolling_restart(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.url(fresh_schema())
    with cluster_mesh(tmp_path, lambda _: url, 3, "--grace-s", "5", epoch_s=EPOCH_S) as mesh:
        mesh.start()
        nemesis, traffic = Nemesis(mesh, epoch_s=EPOCH_S), Traffic(mesh.urls)
        async with traffic.running():
            await traffic.goes_on()
            await nemesis.restart_one_by_one()
            await traffic.goes_on()
        held = await stopped(mesh)
    read = await read_journal(url, NAMESPACE)
    found = list(breaches(read, traffic, held))
    assert not found, "\n".join(found[:10])
    assert not traffic.failed, traffic.failed[:3]
    waits = [op.returned - op.called for op in traffic.history if op.returned is not None]
    assert max(waits) < EPOCH_S
    handed = sum(node.log.count(HANDED_OVER) for node in mesh.nodes)
    assert len(read.owners) >= 3
    assert handed >= len(read.owners) - 1, "no epoch had to run out"
    lines = [line for node in mesh.nodes for line in node.log.splitlines()]
    cut_off = [line for line in lines if CUT_OFF in line and "leaseBatch" not in line]
    # Who waits for work is sent away, and may leave by itself.
    assert not cut_off, "what was under way when a node stopped was passed on in time"
