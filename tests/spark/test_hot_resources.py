"""How hot a resource is: what its figures come to, also in tables from before they were told."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnirelay.pipeline.datasets import Change, Commit, Snapshot
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.gold_resources import COLUMNS, HOT_RESOURCES
from omnirelay.pipeline.sql import names_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(120)
SUMS = ("items", "grants", "wait_ms_sum", "hold_ms_sum")


def test_a_table_from_before_contention_and_churn_were_told_goes_on_with_them(
    spark: "SparkSession", tmp_path: Path
) -> None:
    tables = DeltaTables(spark, str(tmp_path / "lake"))
    before = COLUMNS.replace(", contention double, churn double", "")
    old = replace(HOT_RESOURCES, columns=before, version=1, migrations=(), expectations=())
    fought_over = {"resource_id": "fought over"} | dict(zip(SUMS, (4, 10, 900, 300), strict=True))
    never_held = {"resource_id": "never held"} | dict(zip(SUMS, (3, 0, 0, 0), strict=True))
    rows = [tuple(row.get(name) for name in names_of(before)) for row in (fought_over, never_held)]
    frame = spark.createDataFrame(rows, before)
    tables.commit(old, Change(replace=frame), Commit(Snapshot(), {"a": 9}, fence=1))
    assert tables.migrate(HOT_RESOURCES, fence=1)
    found = tables.read("hot_resources")
    assert found is not None
    assert tuple(found.columns) == names_of(COLUMNS)
    chosen = found.select("resource_id", "grants", "contention", "churn").collect()
    assert sorted(map(tuple, chosen)) == [("fought over", 10, 3.0, 2.5), ("never held", 0, None, 0)]
    assert tables.snapshot(HOT_RESOURCES).positions == {"a": 9}
