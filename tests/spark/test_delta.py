"""Delta tables that Spark writes and we commit: whole or not at all, and for every reader."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import set_failpoint
from omnirelay.pipeline.datasets import (
    EVENTS,
    LEASE_EVENTS,
    Change,
    Commit,
    Dataset,
    ExpectationFailed,
    Snapshot,
    Step,
    TableFenced,
    TableMoved,
    TableTooNew,
)
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.hold import Unheld
from omnirelay.pipeline.maintain import maintain
from tests.spark.small_tables import COUNTS, LIVES, SEEN, content, frame, life

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BEFORE_COMMIT = "pipeline.before_commit"


@pytest.fixture(autouse=True)
def leave_nothing_armed() -> Iterator[None]:
    yield
    set_failpoint(None)


@pytest.fixture
def tables(spark: "SparkSession", tmp_path: Path) -> DeltaTables:
    return DeltaTables(spark, str(tmp_path / "a folder"))


def lives(spark: "SparkSession", *rows: tuple[Any, ...]) -> "DataFrame":
    return spark.createDataFrame(list(rows), LIVES.columns)


def seen(spark: "SparkSession", *sequences: int) -> Change:
    rows = [("a", sequence, "Enqueue") for sequence in sequences]
    return Change(append=spark.createDataFrame(rows, SEEN.columns))


def log_of(tables: DeltaTables, name: str, version: int) -> list[dict[str, Any]]:
    path = Path(tables.address(name)) / "_delta_log" / f"{version:020d}.json"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_table_that_nobody_wrote_is_not_there(tables: DeltaTables) -> None:
    assert tables.read("lives") is None
    assert tables.read_open("lives") is None
    assert tables.positions("lives") == {}
    assert tables.snapshot(LIVES) == Snapshot()
    assert tables.names() == []


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("writer")
def test_closing_rows_and_replacing_the_open_ones_is_one_commit_with_the_positions(
    spark: "SparkSession", tables: DeltaTables
) -> None:
    first = lives(spark, ("a", 1, 1, None, "open"), ("a", 2, 2, None, "open"))
    tables.commit(LIVES, Change(replace=first), Commit(Snapshot(), {"a": 2}, fence=3))
    base = tables.snapshot(LIVES)
    assert base.positions == {"a": 2}
    change = Change(
        append=lives(spark, ("a", 1, 1, 3, "closed")),
        replace=lives(spark, ("a", 2, 2, None, "open"), ("b", 1, 1, None, "open")),
    )
    tables.commit(LIVES, change, Commit(base, {"a": 3, "b": 1}, fence=4, inputs={EVENTS: 9}))
    after = tables.snapshot(LIVES)
    assert (after.positions, after.fence, after.inputs) == ({"a": 3, "b": 1}, 4, {EVENTS: 9})
    # The property that names shard b came before, in a commit of its own without rows.
    assert after.version == base.version + 2
    actions = [next(iter(action)) for action in log_of(tables, "lives", after.version)]
    assert sorted(set(actions)) == ["add", "commitInfo", "remove", "txn"]
    assert content(tables.read("lives")) == [
        ("a", 1, 1, 3, "closed"),
        ("a", 2, 2, None, "open"),
        ("b", 1, 1, None, "open"),
    ]
    assert [row[1] for row in content(tables.read_open("lives"))] == [2, 1]


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("writer")
def test_other_programs_read_the_table_and_skip_files_by_their_statistics(
    spark: "SparkSession", tmp_path: Path
) -> None:
    tables = DeltaTables(spark, str(tmp_path))
    events = frame(spark, life("a", items=3)).coalesce(1)
    tables.commit(LEASE_EVENTS, Change(append=events), Commit(Snapshot(), {"a": 4}))
    both = lives(spark, ("a", 1, 1, 3, "closed"), ("a", 2, 2, None, "open"))
    tables.commit(LIVES, Change(rows=both), Commit(Snapshot(), {"a": 4}))
    at = tables.address("lives")
    in_polars = polars.read_delta(at).sort("sequence_id").select("sequence_id", "state").rows()
    assert in_polars == [(1, "closed"), (2, "open")]
    assert (
        polars.scan_delta(tables.address("lease_events")).select("sequence").collect().height == 4
    )
    files = DeltaTable(at).file_uris()
    counted = duckdb.sql(f"SELECT state, count(*) FROM read_parquet({files}) GROUP BY 1 ORDER BY 1")
    assert counted is not None
    assert counted.fetchall() == [("closed", 1), ("open", 1)]
    log = DeltaTable(tables.address("lease_events"))
    assert len(log.file_uris(file_pruning_predicate="sequence > 3")) == 1
    assert log.file_uris(file_pruning_predicate="sequence > 4") == []
    assert log.file_uris(file_pruning_predicate="timestamp > '2026-01-01T00:00:04.001Z'") == []
    assert len(log.file_uris(file_pruning_predicate="timestamp >= '2026-01-01T00:00:04Z'")) == 1


@pytest.mark.timeout(60)
def test_of_two_writers_on_the_same_version_one_gets_through(
    spark: "SparkSession", tables: DeltaTables
) -> None:
    tables.commit(SEEN, seen(spark, 1), Commit(Snapshot(), {"a": 1}))
    base = tables.snapshot(SEEN)
    outcomes: list[object] = []
    together = Barrier(2, timeout=30)

    def meet(name: str) -> None:
        if name == BEFORE_COMMIT:
            together.wait()

    set_failpoint(meet)

    def write() -> None:
        mine = DeltaTables(spark, tables.root)
        try:
            mine.commit(SEEN, seen(spark, 2), Commit(base, {"a": 2}))
            outcomes.append("through")
        except TableMoved as refused:
            outcomes.append(refused.code)

    threads = [Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes)) == ["error.pipeline.table_moved", "through"]
    assert content(tables.read("seen")) == [("a", 1, "Enqueue"), ("a", 2, "Enqueue")]


@pytest.mark.timeout(60)
def test_a_commit_from_another_base_or_an_older_lease_changes_nothing(
    spark: "SparkSession", tables: DeltaTables
) -> None:
    base = Snapshot()
    tables.commit(SEEN, seen(spark, 1), Commit(base, {"a": 1}, fence=5))
    with pytest.raises(TableFenced, match="fence 4 is over, a pipeline with fence 5"):
        tables.commit(SEEN, seen(spark, 2), Commit(tables.snapshot(SEEN), {"a": 2}, fence=4))
    with pytest.raises(TableMoved, match="run again"):
        tables.commit(SEEN, seen(spark, 1), Commit(base, {"a": 1}, fence=5))
    assert content(tables.read("seen")) == [("a", 1, "Enqueue")]


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("writer")
def test_rows_that_fail_an_expectation_are_not_seen_and_those_that_warn_are_counted(
    spark: "SparkSession", tables: DeltaTables
) -> None:
    orphan = lives(spark, ("a", 1, None, 3, "closed"), ("a", 2, 2, 3, "closed"))
    with pytest.raises(
        ExpectationFailed, match="1 rows do not meet the expectation 'opened first'"
    ):
        tables.commit(LIVES, Change(append=orphan), Commit(Snapshot(), {"a": 3}))
    assert tables.positions("lives") == {}
    assert content(tables.read("lives")) == []
    rare = spark.createDataFrame([("a", "Enqueue", 1), ("a", "Completed", 7)], COUNTS.columns)
    done = tables.commit(COUNTS, Change(replace=rare), Commit(Snapshot(), {"a": 3}))
    assert (done.rows, done.warned) == (2, {"often": 1})


def test_a_change_that_its_kind_of_table_cannot_take_is_refused(
    spark: "SparkSession", tables: DeltaTables
) -> None:
    rows = seen(spark, 1).append
    with pytest.raises(InvalidOption, match="replaces nothing"):
        tables.commit(SEEN, Change(replace=rows), Commit(Snapshot(), {"a": 1}))
    with pytest.raises(InvalidOption, match="carry tables"):
        tables.commit(COUNTS, Change(rows=rows), Commit(Snapshot(), {"a": 1}))


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("writer")
def test_an_older_table_is_migrated_in_one_commit_and_a_newer_one_refused(
    spark: "SparkSession", tables: DeltaTables
) -> None:
    tables.commit(SEEN, seen(spark, 1, 2), Commit(Snapshot(), {"a": 2}, fence=1))
    newer = replace(
        SEEN,
        columns="shard string, sequence bigint, event_type string, even boolean",
        version=2,
        migrations=(lambda older: older.rows.selectExpr("*", "sequence % 2 = 0 AS even"),),
    )
    before = tables.snapshot(newer)
    assert tables.migrate(newer, fence=2)
    assert not tables.migrate(newer, fence=2)
    after = tables.snapshot(newer)
    assert (after.version, after.positions) == (before.version + 1, {"a": 2})
    assert content(tables.read("seen")) == [("a", 1, "Enqueue", False), ("a", 2, "Enqueue", True)]
    with pytest.raises(TableTooNew, match="schema version 2 and this program knows 1"):
        tables.snapshot(SEEN)
    with pytest.raises(TableFenced):
        tables.migrate(replace(newer, version=3, migrations=(*newer.migrations,) * 2), fence=1)


@pytest.mark.timeout(60)
def test_new_events_are_read_from_new_files_and_between_positions(
    spark: "SparkSession", tables: DeltaTables
) -> None:
    rows = life("a", items=4)
    for part, last in ((rows[:3], 3), (rows[3:], 6)):
        events = frame(spark, part)
        base = tables.snapshot(LEASE_EVENTS)
        tables.commit(LEASE_EVENTS, Change(append=events), Commit(base, {"a": last}))
    version = tables.snapshot(LEASE_EVENTS).version
    everything = tables.read_events(Snapshot(), {"a": 6})
    assert sorted(row.sequence for row in everything.collect()) == [1, 2, 3, 4, 5, 6]
    some = tables.read_events(Snapshot(0, {"a": 2}), {"a": 5})
    assert sorted(row.sequence for row in some.collect()) == [3, 4, 5]
    tail = tables.read_events(Snapshot(0, {"a": 3}, inputs={EVENTS: version - 1}), {"a": 6})
    assert len(tail.inputFiles()) < len(everything.inputFiles())
    assert sorted(row.sequence for row in tail.collect()) == [4, 5, 6]


@pytest.mark.timeout(60)
def test_which_types_the_new_events_have_is_known_unless_they_are_many(
    spark: "SparkSession", tables: DeltaTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tables.types_of_events(Snapshot()) is None, "there is no table yet"
    rows = life("a", items=4)
    versions = []
    for part, last in ((rows[:1], 1), (rows[1:], 6)):
        base = tables.snapshot(LEASE_EVENTS)
        tables.commit(LEASE_EVENTS, Change(append=frame(spark, part)), Commit(base, {"a": last}))
        versions.append(tables.snapshot(LEASE_EVENTS).version)
    assert tables.types_of_events(Snapshot()) == frozenset({"Enqueue", "Completed"})
    after = Snapshot(0, {"a": 1}, inputs={EVENTS: versions[0]})
    rows_after = tables.read_events(after, {"a": 6}).collect()
    assert tables.types_of_events(after) == frozenset(row.event_type for row in rows_after)
    level = Snapshot(0, {"a": 6}, inputs={EVENTS: versions[1]})
    assert tables.types_of_events(level) == frozenset()
    monkeypatch.setattr(limits, "ROWS_HERE_MAX", 3)
    assert tables.types_of_events(Snapshot()) is None


@pytest.mark.timeout(60)
def test_a_step_without_events_of_a_type_has_none_to_plan_for(spark: "SparkSession") -> None:
    new = frame(spark, life("a", items=2))
    step = Step(
        session=spark,
        new=new,
        old=None,
        read=lambda _: None,
        recent=lambda _: new,
        moves={"a": (0, 4)},
        is_first=True,
        types=frozenset({"Enqueue", "Completed"}),
    )
    assert step.some("Refused", "Enqueue").count() == new.count()
    assert step.some("Refused").count() == 0
    assert step.some("Refused").columns == new.columns
    assert replace(step, types=None).some("Refused").count() == new.count()


ENDED = Dataset(
    "ended",
    "silver",
    "shard string, sequence_id bigint, ended_sequence bigint, state string",
    ("shard", "sequence_id"),
    "carry",
    (EVENTS,),
    None,
    partition_by="state",
)


@pytest.mark.timeout(60)
def test_what_another_table_has_closed_since_is_read_from_new_files_until_they_are_compacted(
    spark: "SparkSession", tables: DeltaTables
) -> None:
    steps = [[("a", 1, 3, "closed"), ("a", 2, None, "open")], [("a", 2, 5, "closed")]]
    versions = []
    for rows, last in zip(steps, (4, 6), strict=True):
        change = Change(rows=spark.createDataFrame(rows, ENDED.columns))
        tables.commit(ENDED, change, Commit(tables.snapshot(ENDED), {"a": last}))
        versions.append(tables.snapshot(ENDED).version)
    at_first = Snapshot(0, {"a": 4}, inputs={"ended": versions[0]})
    for after in (at_first, Snapshot(0, {"a": 4})):
        assert content(tables.read_recent("ended", after)) == [("a", 2, 5, "closed")]
    assert len(tables.read_recent("ended", at_first).inputFiles()) == 1
    assert len(content(tables.read_recent("ended", Snapshot()))) == 2
    maintain(tables, Unheld(), datasets=(ENDED,))
    assert content(tables.read_recent("ended", at_first)) == [("a", 2, 5, "closed")]
    assert content(tables.read_recent("ended", Snapshot(0, {"b": 9}))) == content(
        tables.read("ended")
    ), "a shard that is not named is new"
    with pytest.raises(InvalidOption, match="no table nothing yet"):
        tables.read_recent("nothing", at_first)


@pytest.mark.timeout(60)
def test_new_events_are_told_from_old_ones_in_files_that_compaction_made(
    spark: "SparkSession", tables: DeltaTables
) -> None:
    rows = life("a", items=4)
    versions = []
    for part, last in ((rows[:3], 3), (rows[3:], 6)):
        base = tables.snapshot(LEASE_EVENTS)
        tables.commit(LEASE_EVENTS, Change(append=frame(spark, part)), Commit(base, {"a": last}))
        versions.append(tables.snapshot(LEASE_EVENTS).version)
    after = Snapshot(0, {"a": 3}, inputs={EVENTS: versions[0]})
    apart = content(tables.read_events(after, {"a": 6}))
    maintain(tables, Unheld(), datasets=())
    assert content(tables.read_events(after, {"a": 6})) == apart
    assert [row[1] for row in apart] == [4, 5, 6]


@pytest.mark.timeout(60)
def test_positions_outlive_a_checkpoint_of_the_log(
    spark: "SparkSession", tables: DeltaTables
) -> None:
    tables.commit(SEEN, seen(spark, 1), Commit(Snapshot(), {"it's": 1, "b\\": 7}, fence=2))
    table = tables.open(SEEN)
    assert table is not None
    table.create_checkpoint()
    fresh = DeltaTables(spark, tables.root).snapshot(SEEN)
    assert (fresh.positions, fresh.fence) == ({"it's": 1, "b\\": 7}, 2)
