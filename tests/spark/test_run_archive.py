"""A run that finds segments of its journals reads those, and only the rest from the journals."""

from pathlib import Path
from typing import TYPE_CHECKING

from omnirelay.pipeline.archive import archive_journal
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.run import run_pipeline
from omnirelay.pipeline.shelf import segments_of
from omnirelay.pipeline.synth import Plan, synthesize

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


def test_segments_and_journal_together_give_every_event_once(
    spark: "SparkSession", tmp_path: Path
) -> None:
    url, archive = f"sqlite:///{tmp_path}/leases.db", str(tmp_path / "archive")
    synthesize(Plan(events=EVENTS, shards=2, seed=3, to=url))
    archive_journal(url, archive, segment_events=70)
    shards = ["synth-0000", "synth-0001"]
    ends = [segments_of(archive, shard)[-1].manifest.last for shard in shards]
    assert sum(ends) < EVENTS, "something is left for the journal"
    expected = events_of(spark, tmp_path / "journal", url=url)
    assert len(expected) == EVENTS
    # A limit cuts through a segment, so that the next run begins inside one.
    assert events_of(spark, tmp_path / "both", 151, url=url, archive=archive) == expected


def test_a_damaged_segment_is_read_from_the_journal_instead(
    spark: "SparkSession", tmp_path: Path
) -> None:
    url, archive = f"sqlite:///{tmp_path}/leases.db", str(tmp_path / "archive")
    synthesize(Plan(events=EVENTS, shards=2, seed=4, to=url))
    archive_journal(url, archive, segment_events=100)
    expected = events_of(spark, tmp_path / "journal", url=url)
    damaged = Path(segments_of(archive, "synth-0001")[1].path)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert events_of(spark, tmp_path / "both", url=url, archive=archive) == expected
