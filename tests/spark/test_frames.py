"""How few rows come to Spark and back: in one task, once, and by way of the driver."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import Schema

from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError
from omnirelay.pipeline.audit_report import FINDINGS, RUNS
from omnirelay.pipeline.datasets import QUARANTINED, Change, Commit, Dataset, Snapshot
from omnirelay.pipeline.decode_types import arrow_schema
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.session import FEW_ROWS
from tests.spark.real_tables import TABLES
from tests.spark.small_tables import COUNTS, LIVES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def tables(spark: "SparkSession", tmp_path: Path) -> DeltaTables:
    found = DeltaTables(spark, str(tmp_path))
    count(found, 1)
    return found


def count(tables: DeltaTables, times: int) -> None:
    rows = tables.session.createDataFrame([("a", "Enqueue", times)], COUNTS.columns)
    base = tables.snapshot(COUNTS)
    tables.commit(COUNTS, Change(replace=rows), Commit(base, {"a": times}))


def plan_of(rows: "DataFrame | None") -> str:
    assert rows is not None
    return str(rows.groupBy("shard").count()._jdf.queryExecution().executedPlan())


def test_files_that_were_asked_for_are_one_frame_until_there_are_others(
    tables: DeltaTables,
) -> None:
    first = tables.read("counts")
    assert tables.read("counts") is first
    count(tables, 2)
    second = tables.read("counts")
    assert second is not first
    assert second is not None
    assert [row.times for row in second.collect()] == [2]


def test_frames_that_nobody_asked_for_again_are_forgotten(
    tables: DeltaTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FRAMES_KNOWN_MAX", 2)
    for times in range(2, 6):
        count(tables, times)
        tables.read("counts")
    assert len(tables._frames._known) == 2


@pytest.mark.parametrize(
    ("setting", "value"),
    [("spark.sql.shuffle.partitions", "2"), ("spark.sql.codegen.factoryMode", "FALLBACK")],
    ids=["two tasks", "somebody's own session"],
)
def test_few_rows_are_shuffled_nowhere_and_many_are(
    spark: "SparkSession", tables: DeltaTables, setting: str, value: str
) -> None:
    assert "Exchange" not in plan_of(tables.read("counts"))
    spark.conf.set(setting, value)
    try:
        exchanges = plan_of(DeltaTables(spark, tables.root).read("counts"))
    finally:
        spark.conf.set(setting, FEW_ROWS[setting])
    assert "Exchange" in exchanges


def test_a_row_that_belongs_into_no_folder_is_not_left_out_in_silence(
    spark: "SparkSession", tables: DeltaTables
) -> None:
    homeless = spark.createDataFrame([("a", 1, 1, None, None)], LIVES.columns)
    with pytest.raises(OmniRelayError, match="without state belongs into no folder"):
        tables.commit(LIVES, Change(rows=homeless), Commit(Snapshot(), {"a": 1}))


def test_rows_with_bodies_do_not_come_to_the_driver(
    spark: "SparkSession", tables: DeltaTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few they are, they may be many bytes."""

    def write_here(*_: object, **__: object) -> None:
        raise AssertionError("the driver was to write them")

    monkeypatch.setattr("omnirelay.pipeline.delta.write_here", write_here)
    rows = spark.createDataFrame([("a", 1, "here", "why", b"body", None)], QUARANTINED.columns)
    assert tables.commit(QUARANTINED, Change(append=rows), Commit(Snapshot(), {"a": 1})).rows == 1
    with pytest.raises(AssertionError, match="the driver was to"):
        count(tables, 2)


@pytest.mark.parametrize("dataset", [*TABLES, RUNS, FINDINGS], ids=lambda dataset: dataset.name)
def test_a_table_s_columns_are_those_that_spark_reads_of_the_same_words(
    spark: "SparkSession", dataset: Dataset
) -> None:
    theirs = Schema.from_json(spark.createDataFrame([], dataset.columns).schema.json())
    assert Schema.from_arrow(arrow_schema(dataset.columns)).to_json() == theirs.to_json()
