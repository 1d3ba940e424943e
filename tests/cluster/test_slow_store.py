"""Nodes of a mesh that are there before their store is."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnirelay.model.errors import Unavailable
from omnirelay.node.settings import MeshSettings
from omnirelay.sdk import engine
from omnirelay.testing.cluster_nodes import START_S, ClusterNode, cluster_mesh
from omnirelay.testing.servers_valkey import ValkeyServer, valkey_server
from tests.wire.real_node import node

MESH = MeshSettings(peers=("stream://127.0.0.1:1",), epoch_s=1.0)


@pytest.fixture
def gone() -> Iterator[ValkeyServer]:
    with valkey_server() as server:
        server.kill()
        yield server


@pytest.mark.timeout(60)
def test_a_node_waits_for_a_store_that_is_starting(gone: ValkeyServer, tmp_path: Path) -> None:
    with cluster_mesh(tmp_path, lambda _: gone.url("late"), 1, epoch_s=0.8) as mesh:
        first = mesh.nodes[0]
        first.launch()
        _await_words("left service", first)
        gone.start_serving()
        first.await_ready()
        assert first.page("/omnirelay/control/shards")["shards"][0]["role"] == "owner"


def _await_words(words: str, of: ClusterNode) -> None:
    until = time.monotonic() + START_S
    while words not in of.log:
        assert of.is_running, of.log[-2000:]
        assert time.monotonic() < until, of.log[-2000:]
        time.sleep(0.02)


async def test_a_node_whose_store_does_not_come_says_so(
    gone: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "OPENING_S", 0.5)
    with pytest.raises(Unavailable, match=r"redis://127\.0\.0\.1"):
        async with node(journal=gone.url("never"), mesh=MESH, stream="127.0.0.1:0"):
            pass
