"""Killed between every pair of steps of a micro-batch and run again: the tables are those of a
pipeline that nobody interrupted."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from omnirelay.model.ports import set_failpoint
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.hold import Unheld
from omnirelay.pipeline.maintain import maintain
from omnirelay.pipeline.run import open_pipeline, run_pipeline
from omnirelay.pipeline.stream import Stream, StreamOptions
from omnirelay.testing.failpoints import Armed, enumerate_failpoints
from omnirelay.testing.nodes import ProcessDied
from tests.spark.small_tables import COUNTS, LIVES
from tests.spark.test_run import work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {"bronze": "lease_events", "silver": "lives", "gold": "counts"}
DATASETS = (LIVES, COUNTS)
# Each of the three tables of a run comes by the first three points.
STEPS = [
    *(
        (name, hit)
        for name in ("after_write", "before_commit", "after_commit")
        for hit in (1, 2, 3)
    ),
    ("before_position", 1),
    ("after_position", 1),
]
ELSEWHERE = ("after_creation", "after_shards")
"""Met by test_crash_real.py, in every table."""

Content = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Site:
    journal: Path
    begun: Path
    """The tables as of the journal's first half, to begin from."""
    whole: Content


class _Dies(Armed):
    """Stands in for SIGKILL where a process of its own would cost more than it shows: no handler of
    ours answers it, nothing of ours is closed, and the next run begins with new objects."""

    def __init__(self, point: str, hit: int) -> None:
        super().__init__([])
        self._at = (f"pipeline.{point}", hit)

    def __call__(self, name: str) -> None:
        super().__call__(name)
        if (name, self.hits[name]) == self._at:
            raise ProcessDied


def content_of(target: Path) -> Content:
    found: Content = {}
    for layer, name in TABLES.items():
        # Read by delta-rs, so that another reader than the writer is asked.
        rows = DeltaTable(target / layer / name).to_pyarrow_table().to_pylist()
        found[name] = sorted((tuple(row.values()) for row in rows), key=repr)
    return found


def run(spark: "SparkSession", journal: Path, target: Path) -> None:
    tables = DeltaTables(spark, str(target))
    options = {"url": f"sqlite:///{journal}"}
    # One table after the other, so that the n-th hit of a point is always the same table's.
    report = run_pipeline(spark, options, tables, datasets=DATASETS, consumer="pipeline", lanes=1)
    assert not report.failed


@pytest.fixture(scope="module")
def site(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("crash")
    journal, begun, whole = folder / "leases.db", folder / "begun", folder / "whole"
    work(journal, new=4, done=2)
    run(spark, journal, begun)
    work(journal, new=4, done=4)
    run(spark, journal, whole)
    return Site(journal, begun, content_of(whole))


@pytest.fixture(autouse=True)
def leave_nothing_armed(workers_write: None) -> Iterator[None]:
    """What Spark's tasks have written; by the driver: test_crash_real.py."""
    yield
    set_failpoint(None)


def test_every_failpoint_of_the_pipeline_is_met_here() -> None:
    met = {f"pipeline.{name}" for name in (*(name for name, _ in STEPS), *ELSEWHERE)}
    met |= {"pipeline.before_checkpoint", "pipeline.after_compaction"}
    assert {name for name in enumerate_failpoints() if name.startswith("pipeline.")} == met


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("point", "hit"), STEPS)
def test_a_run_that_died_between_two_steps_is_made_good_by_the_next(
    spark: "SparkSession", site: Site, tmp_path: Path, point: str, hit: int
) -> None:
    target = tmp_path / "lake"
    shutil.copytree(site.begun, target)
    set_failpoint(_Dies(point, hit))
    with pytest.raises(ProcessDied):
        run(spark, site.journal, target)
    set_failpoint(None)
    run(spark, site.journal, target)
    assert content_of(target) == site.whole


@pytest.mark.timeout(120)
def test_a_micro_batch_that_spark_did_not_note_changes_nothing_when_it_comes_again(
    spark: "SparkSession", site: Site, tmp_path: Path
) -> None:
    target = tmp_path / "lake"

    def stream() -> None:
        tables = DeltaTables(spark, str(target))
        options = {"url": f"sqlite:///{site.journal}"}
        pipeline = open_pipeline(spark, options, tables, datasets=DATASETS)
        Stream(pipeline, StreamOptions(f"{target}/_cp", is_once=True), lambda _: None).run()

    set_failpoint(_Dies("before_checkpoint", 1))
    with pytest.raises(ProcessDied):
        stream()
    assert content_of(target) == site.whole
    versions = [DeltaTable(target / layer / name).version() for layer, name in TABLES.items()]
    set_failpoint(None)
    stream()
    assert content_of(target) == site.whole
    after = [DeltaTable(target / layer / name).version() for layer, name in TABLES.items()]
    assert after == versions


@pytest.mark.timeout(120)
def test_upkeep_that_died_has_changed_nothing(
    spark: "SparkSession", site: Site, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    shutil.copytree(site.begun, target)
    run(spark, site.journal, target)
    set_failpoint(_Dies("after_compaction", 1))
    with pytest.raises(ProcessDied):
        maintain(DeltaTables(spark, str(target)), Unheld(), datasets=DATASETS)
    assert content_of(target) == site.whole
    set_failpoint(None)
    maintain(DeltaTables(spark, str(target)), Unheld(), datasets=DATASETS)
    assert content_of(target) == site.whole
