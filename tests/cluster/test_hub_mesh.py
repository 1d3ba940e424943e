"""Two nodes whose journal a hub keeps: nodes and the hub die and stop, links are cut and slow."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_nodes import ClusterMesh, cluster_mesh
from omnirelay.testing.cluster_runs import suffer
from omnirelay.testing.servers_hub import HubServer, hub_server

EPOCH_S = 2.0


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with hub_server() as server:
        yield server


@pytest.fixture
def mesh(hub: HubServer, tmp_path: Path) -> Iterator[ClusterMesh]:
    def journal(places: Sequence[str]) -> str:
        return f"hub://{places[0]}"

    with cluster_mesh(tmp_path, journal, 2, epoch_s=EPOCH_S, store=[hub]) as mesh:
        mesh.start()
        yield mesh


async def kill_the_hub(hub: HubServer, nemesis: Nemesis) -> None:
    """Nobody can write until it is back, on what it has stored."""
    nemesis.actions.append("kill the hub")
    hub.kill()
    await asyncio.to_thread(hub.start_serving)


async def stop_the_hub(hub: HubServer, nemesis: Nemesis) -> None:
    """It holds every connection and answers none, for longer than an epoch lasts."""
    nemesis.actions.append("stop the hub")
    hub.freeze()
    await asyncio.sleep(1.5 * EPOCH_S)
    hub.thaw()


@pytest.mark.timeout(90)
async def test_nothing_is_lost_or_doubled_when_nodes_and_their_hub_die(
    mesh: ClusterMesh, hub: HubServer
) -> None:
    nemesis = Nemesis(mesh, epoch_s=EPOCH_S)
    troubles = [
        nemesis.kill_the_owner,
        lambda: kill_the_hub(hub, nemesis),
        nemesis.cut_the_owner_from_the_store,
        lambda: kill_the_hub(hub, nemesis),
        nemesis.let_the_store_answer_nobody,
    ]
    traffic, read = await suffer(mesh, nemesis, troubles, hub.url())
    assert len(read.owners) >= 4, "the owner was replaced at least three times"
    assert not traffic.failed, traffic.failed[:3]


@pytest.mark.timeout(90)
async def test_nothing_is_lost_or_doubled_when_nodes_and_their_hub_stop_or_are_slow(
    mesh: ClusterMesh, hub: HubServer
) -> None:
    nemesis = Nemesis(mesh, epoch_s=EPOCH_S)
    troubles = [
        nemesis.stop_the_owner,
        nemesis.slow_everything_down,
        lambda: stop_the_hub(hub, nemesis),
        nemesis.cut_the_owner_off,
    ]
    traffic, read = await suffer(mesh, nemesis, troubles, hub.url())
    assert len(read.owners) >= 3, "the owner was replaced at least twice"
    assert not traffic.failed, traffic.failed[:3]
