"""The queue of the demo and how its workers work."""

import asyncio
from typing import Final
from urllib.parse import quote

from omnirelay.cli.demo_board import Board
from omnirelay.journal.follower import tail
from omnirelay.lease.options import QueueOptions
from omnirelay.sdk.client import Relay
from omnirelay.sdk.connect import Connecting, connect
from omnirelay.sdk.handling import Handler
from omnirelay.sdk.lease import Lease
from omnirelay.sdk.worker import Worker
from omnirelay.stores.sqlite_look import look

NAMESPACE: Final = "resourcelease"
RESOURCE_TYPES: Final = ("table", "cdc-shard", "saga-step")
EARLY_WORKERS: Final = ("worker-1", "worker-2", "worker-3")
LATE_WORKERS: Final = ("worker-4", "worker-5", "worker-6")
"""Honest, dies, stalls."""
WORK_S: Final = 0.08
# A lease so short that nobody has to wait long for one to expire, and enough attempts that a slow
# machine makes the demo slow, not wrong.
OPTIONS: Final = QueueOptions(lease_duration_ms=1000, max_attempts=100)


def open_queue(path: str) -> Connecting:
    return connect(f"sqlite:///{quote(path)}", namespace=NAMESPACE, options=OPTIONS)


def work_as(peer: str, relay: Relay, handler: Handler) -> Worker:
    worker = Worker(relay, concurrency=1, peer_id=peer, stop_timeout=1.0)
    for kind in RESOURCE_TYPES:
        worker.handles(kind)(handler)
    return worker


async def work_on(lease: Lease) -> None:
    """Stands for the real thing."""
    await asyncio.sleep(WORK_S)


async def catch_up(path: str, namespace: str, board: Board) -> None:
    """Read what is new in the file, read-only: another process may own it."""
    reader = look(path, namespace).reader
    async for events in tail(reader, namespace, board.sequence, follow=False):
        for event in events:
            board.see(event)
    await reader.close()
