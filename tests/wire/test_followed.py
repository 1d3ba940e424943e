"""A node tells its journal how far the readers of it are."""

import asyncio
from pathlib import Path

import pytest

import omnirelay
from omnirelay import Event
from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.model import limits
from omnirelay.node.node import Node
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from omnirelay.testing.node_process import settings_of


async def _told(relay: omnirelay.Relay) -> Event:
    """It comes with a commit, and not before the node has looked."""
    after = 0
    while True:
        await relay.enqueue("table", "orders")
        async for event in relay.events(after, follow=False):
            after = event.sequence_number
            if event.event_type == "Followed":
                return event
        await asyncio.sleep(limits.LAG_EVERY_S)


async def test_how_far_a_reader_elsewhere_is_comes_into_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LAG_EVERY_S", 0.01)
    file = tmp_path / "leases.db"
    async with (
        Node(settings_of(("stream",), f"sqlite:///{file}")) as node,
        omnirelay.connect(node.urls["stream"]) as relay,
    ):
        for _ in range(3):
            await relay.enqueue("table", "orders")
        positions = SqliteCheckpoints(f"{file}-positions")
        await positions.write(Checkpoint("lakehouse", "resourcelease", 2))
        await positions.close()
        told = await _told(relay)
    assert told.metadata["reader"] == "lakehouse"
    assert told.metadata["position"] == "2"
    assert int(told.metadata["sequence_lag"]) >= 2
    assert int(told.metadata["lag_ms"]) >= 0
