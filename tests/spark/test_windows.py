"""`slo_by_window` from step to step and from version to version: minutes that go on, minutes in
which nothing moved, tables that older programs wrote."""

import asyncio
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from omnirelay.lease.commands import Complete, Heartbeat
from omnirelay.lease.records import Enqueued
from omnirelay.pipeline.datasets import Change, Commit, Dataset, Snapshot
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.gold_windows import COLUMNS, SLO_BY_WINDOW
from omnirelay.pipeline.run import run_pipeline
from omnirelay.pipeline.silver_attempts import LEASE_ATTEMPTS
from omnirelay.pipeline.silver_backpressure import BACKPRESSURE
from omnirelay.pipeline.sql import names_of
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.testing.clock import HandClock
from tests.spark.duck_tables import TablesInDuckDB
from tests.spark.histories import enveloped
from tests.spark.test_silver_endings import T0, Row, S, Story, has
from tests.unit.served import Traffic, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
INPUTS = (LEASE_ATTEMPTS, BACKPRESSURE)
MINUTE_MS = 60_000
NEXT = 20
"""Seconds from T0 to the next whole minute."""
_OF_3 = " waits array<bigint>, holds array<bigint>, state string"
SECOND = replace(
    SLO_BY_WINDOW,
    columns=COLUMNS.removesuffix(f",{_OF_3}"),
    kind="merge",
    partition_by=None,
    version=2,
    migrations=SLO_BY_WINDOW.migrations[:1],
)
FIRST = replace(
    SECOND,
    columns=SECOND.columns.replace(" replication_lag_ms bigint,", ""),
    version=1,
    migrations=(),
)


def beaten() -> Story:
    """A minute with an item, the next with no more than a heartbeat."""
    story = Story().enqueue(0).grant(NEXT - 10)
    return story.do(NEXT + 5, Heartbeat(tokens=(story.token,), principal="ann"))


def windows(story: Story) -> list[Row]:
    """In order; but for the minute in which the queue came to be, long before."""
    found = [row for row in story.rows("slo_by_window") if row["window_end"] > T0]
    return sorted(found, key=lambda row: row["window_start"])


def rows(tables: DeltaTables) -> list[Any]:
    """Any: all columns of all rows."""
    found = tables.read("slo_by_window")
    assert found is not None
    return sorted(map(tuple, found.select(*names_of(COLUMNS)).collect()), key=repr)


def written_by(tables: DeltaTables, older: Dataset) -> None:
    """The table as that version had it, with what the newest makes of the inputs; an older program
    has no rows of minutes in which nothing moved."""
    found = tables.read("slo_by_window")
    assert found is not None
    positions = tables.snapshot(SLO_BY_WINDOW).positions
    chosen = found.where("resource_type <> ''").select(*names_of(older.columns))
    into = DeltaTables(tables.session, f"{tables.root}/older")
    into.commit(older, Change(replace=chosen), Commit(Snapshot(), positions))
    Path(tables.address(SLO_BY_WINDOW)).rename(f"{tables.root}/newest")
    Path(into.address(older)).rename(tables.address(SLO_BY_WINDOW))


@dataclass(frozen=True)
class GoneOn:
    url: str
    tables: Path
    """The windows as of the first minutes; their inputs have gone on since."""
    before: list[Any]
    """Rows of the windows there."""
    once: list[Any]
    """Those of one run over everything."""


@pytest.fixture(scope="module")
def gone_on(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> GoneOn:
    return asyncio.run(go_on(spark, tmp_path_factory.mktemp("windows")))


async def go_on(spark: "SparkSession", folder: Path) -> GoneOn:
    options = {"url": f"sqlite:///{folder / 'leases.db'}"}
    went_on, once = (DeltaTables(spark, str(folder / name)) for name in ("went_on", "once"))
    journal, clock = SqliteJournal(str(folder / "leases.db"), "leases"), HandClock(MINUTE_MS)
    async with serving(journal, clock=clock) as served:
        await Traffic(served, clock, seed=3).run(40)
        clock.now_ms += MINUTE_MS
        await Traffic(served, clock, seed=4).run(40)
        run_pipeline(spark, options, went_on, datasets=(*INPUTS, SLO_BY_WINDOW))
        before = rows(went_on)
        assert len({row[2] for row in before}) > 1, "more than one minute"
        await Traffic(served, clock, seed=5).run(20)
    run_pipeline(spark, options, went_on, datasets=INPUTS)
    run_pipeline(spark, options, once, datasets=(*INPUTS, SLO_BY_WINDOW))
    return GoneOn(options["url"], folder / "went_on", before, rows(once))


@pytest.mark.parametrize("older", [FIRST, SECOND], ids=["version 1", "version 2"])
def test_a_table_of_an_older_program_goes_on_as_if_it_had_never_been_older(
    spark: "SparkSession", tmp_path: Path, gone_on: GoneOn, older: Dataset
) -> None:
    """Its newest minute has gone on since, and so have its inputs, when it is migrated."""
    shutil.copytree(gone_on.tables, tmp_path / "tables")
    tables = DeltaTables(spark, str(tmp_path / "tables"))
    written_by(tables, older)
    assert tables.migrate(SLO_BY_WINDOW, fence=0)
    assert rows(tables) == gone_on.before
    assert not tables.migrate(SLO_BY_WINDOW, fence=0)
    datasets = (*INPUTS, SLO_BY_WINDOW)
    report = run_pipeline(spark, {"url": gone_on.url}, tables, datasets=datasets)
    assert not report.failed
    assert rows(tables) == gone_on.once != gone_on.before


def test_a_table_that_is_split_anew_is_readable_by_others_and_leaves_no_folder(
    spark: "SparkSession", tmp_path: Path
) -> None:
    tables = DeltaTables(spark, str(tmp_path))
    columns = "shard string, sequence bigint, state string"
    whole = Dataset("seen", "gold", columns, ("sequence",), "merge", (), None)
    split = replace(
        whole,
        kind="carry",
        partition_by="state",
        version=2,
        migrations=(lambda older: older.rows,),
    )
    made = spark.createDataFrame([("a", 1, "open"), ("a", 2, "closed")], columns)
    tables.commit(whole, Change(replace=made), Commit(Snapshot(), {"a": 2}, fence=1))
    assert tables.migrate(split, fence=3)
    table = DeltaTable(tables.address(split))
    assert table.metadata().partition_columns == ["state"]
    found = table.to_pyarrow_table().to_pylist()
    assert sorted((row["sequence"], row["state"]) for row in found) == [(1, "open"), (2, "closed")]
    after = tables.snapshot(split)
    assert (after.positions, after.fence) == ({"a": 2}, 3)
    only_open = tables.read_open("seen")
    assert only_open is not None
    assert [row.sequence for row in only_open.collect()] == [1]
    folders = [path.name for path in Path(tables.address(split)).iterdir() if path.is_dir()]
    assert not any(name.startswith(f"c{1:012d}-") for name in folders), folders


def test_a_table_of_an_older_program_in_which_nothing_ever_was_is_migrated_too(
    spark: "SparkSession", tmp_path: Path
) -> None:
    tables = DeltaTables(spark, str(tmp_path))
    tables._create(SECOND)
    assert tables.migrate(SLO_BY_WINDOW, fence=0)
    assert rows(tables) == []
    assert DeltaTable(tables.address(SLO_BY_WINDOW)).metadata().partition_columns == ["state"]


def test_leases_of_items_that_nobody_knows_any_more_are_counted_without_a_type() -> None:
    """In one step and in two, whatever else the minute has."""
    story = Story().enqueue(0).grant(1)
    story.do(2, Complete(token=story.token, principal="ann"))
    whole = enveloped("s", story.enqueue(3).queue.journal)
    lost = next(at for at, one in enumerate(whole) if isinstance(one.records[0], Enqueued))
    once, twice = TablesInDuckDB(), TablesInDuckDB()
    once.advance([*whole[:lost], *whole[lost + 1 :]])
    twice.advance([*whole[:lost], *whole[lost + 1 : -1]])
    twice.advance(whole[-1:])
    for tables in (once, twice):
        found = {row["resource_type"]: row for row in tables.rows("slo_by_window")}
        found = {kind: row for kind, row in found.items() if row["window_end"] > T0}
        has(found[""], granted=1, completed=1, enqueued=0, holds=[1 * S])
        has(found["table"], granted=0, completed=0, enqueued=1)


def test_a_minute_in_which_nothing_but_a_heartbeat_came_has_one_row_without_a_type() -> None:
    story = beaten()
    first, second = windows(story)
    has(first, resource_type="table", enqueued=1, state="closed", waits=None, holds=None)
    has(second, window_start=T0 + NEXT * S, resource_type="", granted=0, state="open")
    has(second, active_max=1, waits=[], holds=[])
    story.enqueue(NEXT + 6)
    assert [row["resource_type"] for row in windows(story)] == ["table", "table"]


def test_a_queue_that_stands_still_under_backpressure_shows_for_how_long() -> None:
    story = Story(pending_high=2, pending_low=0).enqueue(0).enqueue(NEXT - 10)
    story.grant(NEXT + 121, 1).grant(NEXT + 122, 2)
    found = windows(story)
    assert [row["backpressure_ms"] for row in found] == [10 * S, 60 * S, 60 * S, 2 * S]
    assert [row["resource_type"] for row in found] == ["table", "", "", "table"]
    assert [row["pending_max"] for row in found] == [2, None, None, 1]


def test_the_open_minute_keeps_what_its_percentiles_come_from() -> None:
    story = Story().enqueue(0).grant(2)
    story.do(5, Complete(token=story.token, principal="ann"))
    (row,) = windows(story)
    has(row, waits=[2 * S], holds=[3 * S], state="open", wait_p50_ms=2 * S, hold_p99_ms=3 * S)
