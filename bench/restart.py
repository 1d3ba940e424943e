"""Restart with a million pending items and a tail of 100,000 events after the snapshot."""

import asyncio
import tempfile
import time
from pathlib import Path

import omnirelay
from bench.report import Row

ITEMS = 1_000_000
TAIL = 100_000


async def fill(url: str) -> None:
    # Snapshots are driven by count: one is due after the items, none within the tail.
    keep = omnirelay.KeepOptions(snapshot_every=ITEMS)
    options = omnirelay.QueueOptions(capacity=2 * ITEMS)
    async with omnirelay.connect(url, options=options, keep=keep) as relay:
        for start in range(0, ITEMS, 1000):
            await relay.enqueue_many(
                omnirelay.Payload("table", f"sales.{start + n}", body=bytes(200))
                for n in range(1000)
            )
        await relay.enqueue("table", "the snapshot starts after this one")
        for _ in range(4000):  # idle turns in which the snapshot is written
            await relay.stats()
        for _ in range(TAIL // 2000):
            leases = await relay.lease_many(1000)
            await relay.complete_many(leases)


async def reopen(url: str) -> tuple[float, int]:
    start = time.perf_counter()
    async with omnirelay.connect(url, options=omnirelay.QueueOptions(capacity=2 * ITEMS)) as relay:
        (lease,) = await relay.lease_many(1)
        elapsed = time.perf_counter() - start
        await lease.complete()
        return elapsed, (await relay.stats()).pending_count


def rows(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="omnirelay-bench-") as folder:
        url = f"sqlite:///{Path(folder)}/large.db"
        asyncio.run(fill(url))
        seconds, pending = asyncio.run(reopen(url))
    print(f"{pending:,} items pending after restart, first lease after {seconds:.1f} s")
    return [Row("restart", "seconds_1m_pending_100k_tail", seconds, 10.0, "allowed", 1.0, True)]
