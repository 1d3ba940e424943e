"""A run that finds segments of its journals reads those, and only the rest from the journals."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnirelay.pipeline.archive import archive_journal
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.run import run_pipeline
from omnirelay.pipeline.shelf import content_of, segments_of
from omnirelay.pipeline.synth import Plan, synthesize
from tests.spark.archives import archive_at, meddle, prune, tell_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 600


def events_of(spark: "SparkSession", folder: Path, *limits: int, **options: str) -> list[str]:
    """The event table after a run for each of `limits` and one more without, row by row."""
    tables = DeltaTables(spark, str(folder))
    for limit in (*limits, None):
        run_pipeline(spark, options, tables, datasets=(), limit=limit)
    rows = tables.read("lease_events")
    assert rows is not None
    return [str(row) for row in rows.orderBy("shard", "sequence").collect()]


@pytest.fixture(params=["folder", "s3"])
def archive(request: pytest.FixtureRequest, spark: "SparkSession") -> str:
    if request.param != "folder":
        tell_workers(request, spark, request.param)
    return archive_at(request, request.param)


def test_segments_and_journal_together_give_every_event_once(
    spark: "SparkSession", tmp_path: Path, archive: str
) -> None:
    url = f"sqlite:///{tmp_path}/leases.db"
    synthesize(Plan(events=EVENTS, shards=2, seed=3, to=url))
    archive_journal(url, archive, segment_events=70)
    shards = ["synth-0000", "synth-0001"]
    ends = [segments_of(archive, shard)[-1].manifest.last for shard in shards]
    assert sum(ends) < EVENTS, "something is left for the journal"
    expected = events_of(spark, tmp_path / "journal", url=url)
    assert len(expected) == EVENTS
    prune(
        tmp_path / "leases.db", {shard: end - 20 for shard, end in zip(shards, ends, strict=True)}
    )
    # A limit cuts through a segment, so that the next run begins inside one.
    assert events_of(spark, tmp_path / "both", 151, url=url, archive=archive) == expected


def test_a_damaged_segment_is_read_from_the_journal_instead(
    spark: "SparkSession", tmp_path: Path, archive: str
) -> None:
    url = f"sqlite:///{tmp_path}/leases.db"
    synthesize(Plan(events=EVENTS, shards=2, seed=4, to=url))
    archive_journal(url, archive, segment_events=100)
    expected = events_of(spark, tmp_path / "journal", url=url)
    damaged = segments_of(archive, "synth-0001")[1]
    meddle(damaged.path, content_of(damaged)[:-1])
    assert events_of(spark, tmp_path / "both", url=url, archive=archive) == expected
