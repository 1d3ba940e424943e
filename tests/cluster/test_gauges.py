"""What two nodes over one journal tell Prometheus: added up, each queue is counted once."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import omnirelay
from omnirelay.cli.free_ports import LOOPBACK
from omnirelay.testing.cluster_nodes import ClusterMesh, ClusterNode, cluster_mesh

DEPTHS = ("pending", "active", "delayed", "dead_letters", "backpressure_active")
HOLDERS = "omnirelay_peer_lease_healthy"


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[ClusterMesh]:
    with cluster_mesh(tmp_path, lambda _: f"file://{tmp_path}/objects", 2, epoch_s=0.8) as mesh:
        mesh.start()
        yield mesh


def scrape(node: ClusterNode) -> dict[str, float]:
    """By name, without `omnirelay_resourcelease_`."""
    with closing(HTTPConnection(LOOPBACK, node.http, timeout=5)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    return {
        sample.name.removeprefix("omnirelay_resourcelease_"): sample.value
        for family in text_string_to_metric_families(text)
        if family.type == "gauge"
        for sample in family.samples
    }


async def scraped_until(node: ClusterNode, **wanted: float) -> dict[str, float]:
    async with asyncio.timeout(20):
        while True:
            found = await asyncio.to_thread(scrape, node)
            if wanted.items() <= found.items():
                return found
            await another_look()


async def another_look() -> None:
    await asyncio.sleep(0.05)


@pytest.mark.timeout(60)
async def test_the_owner_tells_how_full_a_queue_is_and_a_follower_only_of_itself(
    mesh: ClusterMesh,
) -> None:
    owner = await mesh.owner()
    (follower,) = [node for node in mesh.nodes if node is not owner]
    async with omnirelay.connect(",".join(mesh.urls)) as relay:
        for number in range(5):
            await relay.enqueue("table", f"t{number}")
        await relay.lease_many(2)
        told = await scraped_until(owner, pending=3, active=2)
        assert {name: told[name] for name in DEPTHS} == {
            "pending": 3,
            "active": 2,
            "delayed": 0,
            "dead_letters": 0,
            "backpressure_active": 0,
        }
        assert told[HOLDERS] == 1
        level = told["journal_sequence"]
        follows = await scraped_until(follower, ready=1, journal_sequence=level)
        assert not {*DEPTHS, "oldest_pending_age_seconds"} & follows.keys()
        assert follows[HOLDERS] == 0
        owner.close()
        told = await scraped_until(follower, pending=3, active=2)
        assert told[HOLDERS] == 1
