"""What a call brought is free as soon as it is answered: nothing of it waits for the collector.

What waits there is not in any cache any more when it is freed at last, and holds its bodies until
then.
"""

import asyncio
import gc
from collections.abc import Iterator

import pytest

import omnirelay
from omnirelay import Lease, Relay, Worker
from tests.wire.real_node import node

CALLS = 50
FEW = CALLS // 2
"""Of the loop, the connection, and whoever else was at it; not of every call."""


@pytest.fixture(autouse=True)
def collected_by_hand() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def cycles(relay: Relay, count: int) -> None:
    for _ in range(count):
        await relay.enqueue("table", "orders", body=bytes(1000))
        lease = await relay.lease(wait=5)
        await lease.complete()


@pytest.mark.parametrize("over", ["stream", "http"])
async def test_calls_leave_nothing_for_the_collector(over: str) -> None:
    async with node() as opened, omnirelay.connect(opened.urls[over]) as relay:
        await cycles(relay, CALLS)
        gc.collect()
        await cycles(relay, CALLS)
        assert gc.collect() < FEW


async def test_batches_leave_nothing_for_the_collector() -> None:
    async with node() as opened, omnirelay.connect(opened.urls["stream"]) as relay:
        for _ in range(2):
            gc.collect()
            for _ in range(CALLS):
                await relay.enqueue_many([omnirelay.Payload("table", "orders")] * 3)
                await relay.complete_many(await relay.lease_many(3))
        assert gc.collect() < FEW


async def test_a_worker_leaves_nothing_for_the_collector() -> None:
    async with node() as opened, omnirelay.connect(opened.urls["stream"]) as relay:
        worker = Worker(relay, concurrency=1)
        begun: asyncio.Queue[str] = asyncio.Queue()

        @worker.handles("table")
        async def compact(lease: Lease) -> None:
            begun.put_nowait(lease.resource_id)

        running = asyncio.create_task(worker.run())
        for _ in range(2):
            gc.collect()
            await relay.enqueue_many([omnirelay.Payload("table", "orders")] * CALLS)
            for _ in range(CALLS):
                await begun.get()
        assert gc.collect() < FEW
        worker.stop()
        await running
