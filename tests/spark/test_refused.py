"""Refused calls in the tables: whose they were, what they were about, and who may be a zombie."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnirelay
from omnirelay import QueueOptions, StaleToken
from omnirelay.lease.records import Refused
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.pipeline.datasets import Change, Commit, Snapshot
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.gold_peers import COLUMNS, PEER_HEALTH
from omnirelay.pipeline.gold_principals import PRINCIPAL_ACTIVITY
from omnirelay.pipeline.run import run_pipeline
from omnirelay.pipeline.silver_attempts import LEASE_ATTEMPTS
from omnirelay.pipeline.silver_items import ITEMS
from omnirelay.stores.memory import MemoryJournal
from omnirelay.testing.clock import HandClock
from omnirelay.testing.envelopes import scan
from tests.spark.audit_histories import found_by_duckdb, table_of
from tests.unit.served import Traffic, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
OPTIONS = QueueOptions(requeue_delay_ms=0, refusals_every_ms=0)
NEEDED = (LEASE_ATTEMPTS, ITEMS, PEER_HEALTH, PRINCIPAL_ACTIVITY)


def come_too_late(file: Path, peer: str, times: int) -> None:
    """A peer that lets go of its lease, and completes it all the same."""
    with omnirelay.connect_sync(f"sqlite:///{file}", options=OPTIONS, peer_id=peer) as relay:
        (lease,) = relay.lease_many(1)
        lease.release()
        for _ in range(times):
            with pytest.raises(StaleToken):
                lease.complete()
        with relay.lease(wait=1):
            pass


def enqueue(file: Path, *names: str) -> None:
    with omnirelay.connect_sync(f"sqlite:///{file}", options=OPTIONS) as relay:
        for name in names:
            relay.enqueue("table", name)


def figures(tables: DeltaTables) -> tuple[list[Any], list[Any]]:
    """Any: values of chosen columns."""
    peers, principals = tables.read("peer_health"), tables.read("principal_activity")
    assert peers is not None
    assert principals is not None
    chosen = peers.select("peer_id", "grants", "released", "refused", "suspected_zombie")
    refused = principals.where("action = 'Refused'")
    named = refused.select("principal", "resource_type", "resource_id", "times")
    return sorted(map(tuple, chosen.collect())), sorted(map(tuple, named.collect()))


def test_late_completions_make_a_suspect_and_are_counted_step_by_step_as_at_once(
    spark: "SparkSession", tmp_path: Path
) -> None:
    journal, lake = tmp_path / "leases.db", str(tmp_path / "lake")
    options = {"url": f"sqlite:///{journal}"}
    steps = DeltaTables(spark, lake)
    enqueue(journal, "orders", "lines", "sums")
    come_too_late(journal, "p1", times=2)
    run_pipeline(spark, options, steps, datasets=NEEDED)
    come_too_late(journal, "p2", times=1)
    run_pipeline(spark, options, steps, datasets=NEEDED)
    with omnirelay.connect_sync(options["url"], options=OPTIONS, peer_id="p3") as relay:
        relay.lease_many(1)
    run_pipeline(spark, options, steps, datasets=NEEDED)
    peers, principals = figures(steps)
    assert peers == [
        ("p1", 2, 1, 2, True),
        ("p2", 2, 1, 1, True),
        ("p3", 1, 0, 0, False),
    ]
    assert principals == [
        ("anonymous", "table", "lines", 1),
        ("anonymous", "table", "orders", 2),
    ]
    once = DeltaTables(spark, f"{lake}-once")
    run_pipeline(spark, options, once, datasets=NEEDED)
    assert figures(once) == (peers, principals)


def test_a_lease_that_ended_in_an_earlier_step_still_names_its_peer(
    spark: "SparkSession", tmp_path: Path
) -> None:
    journal = tmp_path / "leases.db"
    options = {"url": f"sqlite:///{journal}"}
    tables = DeltaTables(spark, str(tmp_path / "lake"))
    enqueue(journal, "orders")
    with omnirelay.connect_sync(options["url"], options=OPTIONS, peer_id="p1") as relay:
        (late,) = relay.lease_many(1)
        late.release()
        with relay.lease(wait=1):
            pass
        run_pipeline(spark, options, tables, datasets=NEEDED)
        with pytest.raises(StaleToken):
            late.complete()
        relay.enqueue("table", "lines")
        run_pipeline(spark, options, tables, datasets=NEEDED)
    assert figures(tables) == (
        [("p1", 2, 1, 1, True)],
        [("anonymous", "table", "orders", 1)],
    )


def test_a_table_from_before_refusals_were_told_goes_on(
    spark: "SparkSession", tmp_path: Path
) -> None:
    tables = DeltaTables(spark, str(tmp_path / "lake"))
    old = replace(
        PEER_HEALTH, columns=COLUMNS.replace(" refused bigint,", ""), version=1, migrations=()
    )
    rows = spark.createDataFrame(
        [("a", "p1", "ann", 3, 1, 0, 1, 0, 2, 50, 25, None, None, True)], old.columns
    )
    tables.commit(old, Change(replace=rows), Commit(Snapshot(), {"a": 9}, fence=1))
    assert tables.migrate(PEER_HEALTH, fence=1)
    found = tables.read("peer_health")
    assert found is not None
    assert found.columns == [part.split()[0] for part in COLUMNS.split(", ")]
    assert [(row.peer_id, row.grants, row.refused, row.hold_ms_sum) for row in found.collect()] == [
        ("p1", 3, 0, 50)
    ]
    assert tables.snapshot(PEER_HEALTH).positions == {"a": 9}


async def test_refusals_disturb_no_statement_of_the_audit() -> None:
    journal, clock = MemoryJournal("resourcelease"), HandClock()
    queue = QueueOptions(lease_duration_ms=200, requeue_delay_ms=0, refusals_every_ms=0)
    options = ShardOptions(node="n", queue=queue)
    async with serving(journal, options, clock=clock) as served:
        await Traffic(served, clock, seed=4).run(400)
        envelopes = await scan(journal, "resourcelease")
    told = [record for envelope in envelopes for record in envelope.records]
    assert sum(isinstance(record, Refused) for record in told) > 10
    assert found_by_duckdb(table_of([envelopes])) == set()
