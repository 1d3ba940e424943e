"""Replication lag in the tables: the most that any reader was behind, minute by minute."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omnirelay.lease.commands import Enqueue
from omnirelay.lease.records import Followed
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.items import Payload
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.gold_windows import SLO_BY_WINDOW
from omnirelay.pipeline.run import run_pipeline
from omnirelay.pipeline.silver_attempts import LEASE_ATTEMPTS
from omnirelay.pipeline.silver_backpressure import BACKPRESSURE
from omnirelay.stores.memory import MemoryJournal
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.testing.clock import HandClock
from omnirelay.testing.envelopes import scan
from tests.spark.audit_histories import found_by_duckdb, table_of
from tests.unit.served import Served, Traffic, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
NEEDED = (LEASE_ATTEMPTS, BACKPRESSURE, SLO_BY_WINDOW)
MINUTE_MS = 60_000


def lags(*ms: int) -> tuple[Followed, ...]:
    return tuple(Followed(f"reader-{place}", 1, 1, lag) for place, lag in enumerate(ms))


async def enqueue(served: Served, kind: str, *ms: int) -> None:
    served.shard.tally.followed = lags(*ms)
    await served.ask(Enqueue(payload=Payload(kind, "orders")))


def figures(tables: DeltaTables) -> list[Any]:
    """Any: values of chosen columns."""
    found = tables.read("slo_by_window")
    assert found is not None
    start = "CAST(unix_millis(window_start) DIV 60000 AS INT) AS minute"
    chosen = found.selectExpr(start, "resource_type", "enqueued", "replication_lag_ms")
    return sorted(map(tuple, chosen.collect()))


async def test_the_greatest_lag_of_a_minute_is_told_step_by_step_as_at_once(
    spark: "SparkSession", tmp_path: Path
) -> None:
    url, clock = f"sqlite:///{tmp_path / 'leases.db'}", HandClock(10 * MINUTE_MS)
    steps, once = (DeltaTables(spark, str(tmp_path / name)) for name in ("steps", "once"))
    journal = SqliteJournal(str(tmp_path / "leases.db"), "resourcelease")
    async with serving(journal, clock=clock) as served:
        await enqueue(served, "table", 900, 40)
        await enqueue(served, "view")
        clock.now_ms += MINUTE_MS
        await enqueue(served, "table")
        clock.now_ms += MINUTE_MS
        await enqueue(served, "table", 70, 0)
        run_pipeline(spark, {"url": url}, steps, datasets=NEEDED)
        await enqueue(served, "view", 60, 2_000)
        clock.now_ms += MINUTE_MS
        await enqueue(served, "view", 0)
        run_pipeline(spark, {"url": url}, steps, datasets=NEEDED)
    expected = [
        (10, "table", 1, 900),
        (10, "view", 1, 900),
        (11, "table", 1, None),
        (12, "table", 1, 2_000),
        (12, "view", 1, 2_000),
        (13, "view", 1, 0),
    ]
    assert figures(steps) == expected
    run_pipeline(spark, {"url": url}, once, datasets=NEEDED)
    assert figures(once) == expected


async def test_lags_disturb_no_statement_of_the_audit() -> None:
    journal, clock = MemoryJournal("resourcelease"), HandClock()
    async with serving(journal, ShardOptions(node="n"), clock=clock) as served:
        for seed in range(4):
            served.shard.tally.followed = lags(3, 2)
            await Traffic(served, clock, seed=seed).run(100)
        envelopes = await scan(journal, "resourcelease")
    told = [record for envelope in envelopes for record in envelope.records]
    assert sum(isinstance(record, Followed) for record in told) == 8
    assert found_by_duckdb(table_of([envelopes])) == set()
