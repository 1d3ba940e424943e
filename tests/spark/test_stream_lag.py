"""A node shows how far outside readers of its journal are, as it shows its own followers."""

import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

import omnirelay
from omnirelay import Payload
from omnirelay.pipeline.offsets import forget, hold
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from tests.cli.nodes import Running, running


def sinks_of(node: Running) -> list[dict[str, Any]]:
    with urllib.request.urlopen(
        f"{node.urls['http']}/omnirelay/control/replication/checkpoint"
    ) as answer:
        return list(msgspec.json.decode(answer.read())["shards"][0]["sinks"])


def metric(node: Running, name: str) -> list[float]:
    with urllib.request.urlopen(f"{node.urls['http']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return [float(line.split()[-1]) for line in lines if line.startswith(name)]


@pytest.mark.timeout(60)
def test_the_position_of_a_pipeline_is_a_lag_of_the_node(tmp_path: Path) -> None:
    path = tmp_path / "leases.db"
    with running(tmp_path, "--journal", f"sqlite:///{path}") as node:
        with omnirelay.connect_sync(node.urls["stream"]) as relay:
            relay.enqueue_many([Payload("table", f"t-{n}") for n in range(4)])
        assert sinks_of(node) == []
        assert metric(node, "omnirelay_resourcelease_replication_sequence_lag") == []
        hold(SqliteCheckpoints(f"{path}-positions"), "pipeline", {"resourcelease": 2})
        behind = sinks_of(node)
        assert [(sink["name"], sink["sequence"], sink["sequenceLag"]) for sink in behind] == [
            ("pipeline", 2, 3)
        ]
        assert behind[0]["lagMs"] >= 0
        assert metric(node, "omnirelay_resourcelease_replication_sequence_lag") == [3]
        hold(SqliteCheckpoints(f"{path}-positions"), "pipeline", {"resourcelease": 5})
        assert [(sink["sequenceLag"], sink["lagMs"]) for sink in sinks_of(node)] == [(0, 0)]
        forget(SqliteCheckpoints(f"{path}-positions"), "pipeline", ["resourcelease"])
        assert sinks_of(node) == []
