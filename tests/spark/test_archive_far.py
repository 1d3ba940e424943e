"""What is read of an archive in a bucket is what is read of the same one in a folder."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from omnirelay.cli.pipeline_replay import replay
from omnirelay.pipeline.archive import archive_journal
from omnirelay.pipeline.archive_reading import archived_events
from omnirelay.pipeline.audit_evidence import evidence_of_places
from omnirelay.pipeline.shelf import content_of, segments_of
from omnirelay.pipeline.synth import Plan, synthesize
from omnirelay.testing.servers_objects import ObjectServer
from tests.spark.archives import archive_at, lose, meddle, prune, tell_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARDS = ("synth-0000", "synth-0001")


class Both:
    def __init__(self, url: str, near: str, far: str) -> None:
        self.url, self.near, self.far = url, near, far


@pytest.fixture
def both(request: pytest.FixtureRequest, spark: "SparkSession", tmp_path: Path) -> Both:
    tell_workers(request, spark, "s3")
    places = Both(f"sqlite:///{tmp_path}/leases.db", str(tmp_path / "a"), archive_at(request, "s3"))
    synthesize(Plan(events=400, shards=2, seed=5, to=places.url))
    for archive in (places.near, places.far):
        archive_journal(places.url, archive, segment_events=70)
    return places


def rows(frame: "DataFrame") -> list[str]:
    return [str(row) for row in frame.orderBy("shard", "sequence").collect()]


def test_a_bucket_s_rows_are_those_that_spark_scans_in_a_folder(
    spark: "SparkSession", both: Both
) -> None:
    near, far = (archived_events(spark, archive) for archive in (both.near, both.far))
    assert far.schema == near.schema
    assert rows(far) == rows(near)
    after, upto = {SHARDS[0]: 31, SHARDS[1]: 75}, {SHARDS[0]: 111, SHARDS[1]: 140}
    parts = [
        archived_events(spark, archive, after=after, upto=upto) for archive in (both.near, both.far)
    ]
    found = rows(parts[1])
    assert found == rows(parts[0])
    assert len(found) == 80 + 65


def test_the_source_takes_a_bucket_s_segments_where_the_journal_is_pruned(
    spark: "SparkSession", both: Both, s3: ObjectServer
) -> None:
    expected = rows(spark.read.format("omnirelay").options(url=both.url).load())
    journal = Path(both.url.removeprefix("sqlite:///"))
    prune(journal, {shard: segments_of(both.far, shard)[-1].manifest.last for shard in SHARDS})
    frame = spark.read.format("omnirelay").options(url=both.url, archive=both.far).load()
    assert rows(frame) == expected
    secret = s3.environment["AWS_SECRET_ACCESS_KEY"]
    assert secret not in frame._jdf.queryExecution().toString()


def test_an_audit_of_a_bucket_has_the_same_evidence(spark: "SparkSession", both: Both) -> None:
    gone = segments_of(both.far, SHARDS[0])[1].manifest.first
    for archive in (both.near, both.far):
        lost, cut = segments_of(archive, SHARDS[0])[1], segments_of(archive, SHARDS[1])[0]
        lose(lost.path)
        meddle(cut.path, content_of(cut)[:-1])
    near = evidence_of_places(spark, [both.near])
    far = evidence_of_places(spark, [], archive=both.far)
    assert rows(far.events) == rows(near.events)
    assert far.acknowledged == near.acknowledged
    told = [
        sorted((row.shard, row.sequence) for row in one.quarantined.collect())
        for one in (near, far)
        if one.quarantined is not None
    ]
    assert told == [[(SHARDS[0], gone), (SHARDS[1], 1)]] * 2


@pytest.mark.usefixtures("spark")
def test_a_replay_of_a_bucket_finds_the_same_queue(both: Both) -> None:
    app = typer.Typer()
    app.command()(replay)
    said = [
        CliRunner().invoke(app, ["--archive", archive, "--json"])
        for archive in (both.near, both.far)
    ]
    assert said[0].exit_code == said[1].exit_code == 0, said[1].output
    assert said[1].stdout == said[0].stdout
