"""`format("omnirelay")`: what Spark sees of journals and archives."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

import omnirelay
from omnirelay import Payload
from omnirelay.pipeline.archive import archive_journal
from omnirelay.pipeline.archive_reading import archived_events
from omnirelay.pipeline.decode_types import SCHEMA
from omnirelay.pipeline.schema import EVENT_DDL
from omnirelay.testing.envelopes import Scribe
from tests.spark.journals import append, rows_in
from tests.wire.node_apart import NodeApart

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards: the life of an embedded queue, and 40 plain envelopes of five events."""
    path = tmp_path_factory.mktemp("journal") / "leases.db"
    with omnirelay.connect_sync(f"sqlite:///{path}") as relay:
        relay.enqueue_many([Payload("table", f"größe-{n}", body=b"\x00\xff") for n in range(7)])
        for _ in range(3):
            with relay.lease(wait=1):
                pass
    scribe = Scribe("plain")
    append(path, [scribe.seal(5) for _ in range(40)])
    return path


def events(spark: SparkSession, path: Path | str, **options: object) -> DataFrame:
    reader = spark.read.format("omnirelay").option("url", str(path))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def sequences(frame: DataFrame) -> list[int]:
    return sorted(row.sequence for row in frame.select("sequence").collect())


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    rows = frame.orderBy("shard", "sequence").collect()
    return [row.asDict(recursive=True) for row in rows]


def test_the_arrow_schema_is_the_one_that_spark_expects(spark: SparkSession) -> None:
    expected = spark.createDataFrame([], EVENT_DDL).schema
    assert to_arrow_schema(expected, timezone="UTC").equals(SCHEMA)


def test_a_journal_read_by_spark_is_the_journal(spark: SparkSession, journal: Path) -> None:
    found = events(spark, f"sqlite:///{journal}", rows_per_partition=30)
    assert found.rdd.getNumPartitions() == 8
    assert collected(found) == rows_in(journal)


def test_options_and_conditions_narrow_the_read(spark: SparkSession, journal: Path) -> None:
    part = events(spark, journal, shards="plain", from_sequence=11, to_sequence=30)
    assert sequences(part) == list(range(11, 31))
    # The envelopes of `plain` are written at 1010, 1020, … ms after 1970.
    timed = events(
        spark,
        journal,
        shards="plain",
        from_time="1970-01-01T00:00:01.020Z",
        to_time="1970-01-01T00:00:01.040Z",
    )
    assert sequences(timed) == list(range(6, 16))
    wishes = {"columns": "shard,sequence,event_type,timestamp", "pushdown": "true"}
    asked = events(spark, journal, **wishes, rows_per_partition=5).where(
        "shard = 'plain' and sequence between 1 and 20 and event_type = 'Enqueue' "
        "and timestamp > '1970-01-01T00:00:01.010Z'"
    )
    # Four partitions are planned, from 0 on: of all events, those of `plain` would begin at 4.
    found = asked.selectExpr("sequence", "spark_partition_id() AS place").collect()
    assert sorted(map(tuple, found)) == [(one, (one - 1) // 5) for one in range(6, 21)]


def test_a_frame_that_is_used_twice_is_whole_both_times(spark: SparkSession, journal: Path) -> None:
    """Spark 4.3 would keep the conditions of the first use for the second."""
    found = events(spark, journal, shards="plain", event_types="Enqueue")
    assert found.where("sequence = 3").count() == 1
    assert found.count() == 199
    twins = found.where("sequence < 12").alias("a").join(found.alias("b"), "sequence")
    assert twins.count() == 10


def test_columns_can_be_named_by_a_schema(spark: SparkSession, journal: Path) -> None:
    reader = spark.read.format("omnirelay").schema("node string, sequence bigint")
    found = reader.option("shards", "plain").load(str(journal))
    assert found.where("sequence = 3").collect() == [("node-1", 3)]
    assert found.count() == 200


def test_what_cannot_be_read_is_said_in_our_words(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="there is no option 'shrads'"):
        events(spark, "x.db", shrads="a")
    with pytest.raises(Exception, match="there is no such file"):
        events(spark, tmp_path / "none.db").count()


def test_a_live_journal_is_read_while_its_writer_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "live.db"
    stop = threading.Event()
    with omnirelay.connect_sync(f"sqlite:///{path}") as relay:
        relay.enqueue("table", "first")

        def write() -> None:
            while not stop.is_set():
                relay.enqueue_many([Payload("table", "more")] * 5)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            before = relay.stats().last_sequence
            found = sequences(events(spark, path))
            after = relay.stats().last_sequence
        finally:
            stop.set()
            writer.join()
    assert found == list(range(1, len(found) + 1))
    assert before <= len(found) <= after
    assert before < after  # the writer was never held up


# -- archive ------------------------------------------------------------------------------------


def test_an_archive_and_the_tail_of_its_journal_are_the_journal(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    written = archive_journal(str(journal), tmp_path / "a", shards=("plain",), segment_events=50)
    assert len(written) == 4
    part = archived_events(spark, tmp_path / "a", after={"plain": 120}, upto={"plain": 170})
    assert sequences(part) == list(range(121, 171))
    found = collected(archived_events(spark, tmp_path / "a"))
    expected = [row for row in rows_in(journal) if row["shard"] == "plain"]
    assert found == expected
    more = events(spark, journal, shards="plain", archive=tmp_path / "a", from_sequence=40)
    assert sequences(more) == list(range(40, 201))


def test_a_damaged_segment_is_read_from_the_journal_or_set_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, archive = tmp_path / "j.db", tmp_path / "a"
    scribe = Scribe("s")
    append(path, [scribe.seal(5) for _ in range(4)])
    one, two = archive_journal(str(path), archive, segment_events=10)
    Path(one.path).write_bytes(b"no parquet")
    assert sequences(events(spark, path, archive=archive)) == list(range(1, 21))

    import apsw

    apsw.Connection(str(path)).execute("DELETE FROM journal WHERE first < 11")
    assert sequences(events(spark, path, archive=archive)) == list(range(11, 21))
    (row,) = events(spark, path, archive=archive, view="quarantine").collect()
    assert (row.sequence, row.address) == (1, one.path)
    assert "the journal has it no more" in row.reason
    assert Path(two.path).exists()


# -- a node -------------------------------------------------------------------------------------


@pytest.fixture
def node() -> Iterator[NodeApart]:
    with NodeApart(http="127.0.0.1:0") as apart:
        yield apart


def test_the_events_of_a_live_node_are_rows_too(spark: SparkSession, node: NodeApart) -> None:
    url = node.urls["http"]
    with omnirelay.connect_sync(url) as relay:
        relay.enqueue_many([Payload("table", f"t{n}", body=b"\xff") for n in range(5)])
        with relay.lease(wait=1):
            pass
        last = relay.stats().last_sequence
    found = events(spark, url).orderBy("sequence").collect()
    assert [row.sequence for row in found] == list(range(1, last + 1))
    granted = next(row for row in found if row.event_type == "LeaseGranted")
    assert (granted.sequence_id, granted.attempt, granted.principal) == (1, 1, "anonymous")
    assert granted.lease_id is not None
    assert bytes(next(row for row in found if row.event_type == "Enqueue").body) == b"\xff"
