"""The source as a stream: offsets that are exact, batches that are bounded, positions that hold."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.model.errors import Corrupt
from omnirelay.pipeline.archive import archive_journal
from omnirelay.pipeline.offsets import forget, held
from omnirelay.pipeline.source_options import parse
from omnirelay.pipeline.source_stream import JournalStream
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from omnirelay.testing.envelopes import Scribe
from tests.spark.journals import append

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition


@pytest.fixture
def scribe() -> Scribe:
    return Scribe("s")


@pytest.fixture
def journal(tmp_path: Path, scribe: Scribe) -> Path:
    append(tmp_path / "j.db", [scribe.seal(5) for _ in range(4)])
    return tmp_path / "j.db"


def stream(path: Path, **options: str) -> JournalStream:
    return JournalStream(parse({"url": str(path), **options}), ("sequence",))


def read(opened: JournalStream, start: dict[str, int], end: dict[str, int]) -> list[int]:
    parts: list[InputPartition] = list(opened.partitions(start, end))
    batches = [batch for part in parts for batch in opened.read(part)]
    return [row["sequence"] for batch in batches for row in batch.to_pylist()]


def prune(path: Path, before: int) -> None:
    db = apsw.Connection(str(path))
    db.execute("DELETE FROM journal WHERE first < ?", (before,))
    db.close()


def test_a_stream_begins_with_the_oldest_event_that_is_kept(journal: Path) -> None:
    assert stream(journal).initialOffset() == {"s": 0}
    prune(journal, 6)
    assert stream(journal).initialOffset() == {"s": 5}
    assert stream(journal, from_sequence="9").initialOffset() == {"s": 8}


def test_a_batch_is_as_large_as_admitted_and_its_rows_are_exact(journal: Path) -> None:
    opened = stream(journal, rows_per_batch="7", rows_per_partition="3")
    limit = opened.getDefaultReadLimit()
    assert limit == ReadMaxRows(7)
    offsets = [opened.initialOffset()]
    while (end := opened.latestOffset(offsets[-1], limit)) != offsets[-1]:
        offsets.append(end)
    assert offsets == [{"s": 0}, {"s": 7}, {"s": 14}, {"s": 20}]
    assert read(opened, offsets[1], offsets[2]) == list(range(8, 15))
    assert opened.latestOffset({"s": 3}, ReadAllAvailable()) == {"s": 20}
    assert opened.partitions({"s": 7}, {"s": 7}) == []


def test_the_same_offsets_give_the_same_rows_when_more_has_come(
    journal: Path, scribe: Scribe
) -> None:
    before = read(stream(journal), {"s": 3}, {"s": 17})
    append(journal, [scribe.seal(5)])
    assert read(stream(journal), {"s": 3}, {"s": 17}) == before == list(range(4, 18))


def test_a_shard_that_comes_later_is_read_from_its_beginning(journal: Path) -> None:
    opened = stream(journal)
    start = opened.initialOffset()
    other = Scribe("t")
    append(journal, [other.seal(4)])
    end = opened.latestOffset(start, ReadAllAvailable())
    assert end == {"s": 20, "t": 4}
    assert len(read(opened, start, end)) == 24


def test_available_now_ends_where_the_journal_ended_then(journal: Path, scribe: Scribe) -> None:
    opened = stream(journal)
    opened.prepareForTriggerAvailableNow()
    append(journal, [scribe.seal(5)])
    assert opened.latestOffset({"s": 0}, ReadAllAvailable()) == {"s": 20}
    assert opened.reportLatestOffset() == {"s": 25}


def test_what_was_pruned_under_a_stream_is_an_error_unless_it_is_archived(
    journal: Path, tmp_path: Path
) -> None:
    archive_journal(str(journal), tmp_path / "a", segment_events=10)
    prune(journal, 16)
    with pytest.raises(Corrupt, match="pruned"):
        stream(journal).partitions({"s": 2}, {"s": 20})
    opened = stream(journal, archive=str(tmp_path / "a"))
    assert opened.initialOffset() == {"s": 0}
    assert read(opened, {"s": 2}, {"s": 20}) == list(range(3, 21))


def test_a_named_consumer_holds_its_place_from_the_start_and_resumes_there(journal: Path) -> None:
    store = SqliteCheckpoints(f"{journal}-positions")
    opened = stream(journal, consumer="lake")
    assert opened.initialOffset() == {"s": 0}
    assert asyncio.run(store.slowest("s")) == 0
    opened.commit({"s": 12})
    assert held(store, "lake", ["s"]) == {"s": 12}
    assert stream(journal, consumer="lake").initialOffset() == {"s": 12}
    opened.commit({"s": 9})  # an old one, told again
    assert held(store, "lake", ["s"]) == {"s": 12}
    forget(store, "lake", ["s"])
    assert asyncio.run(store.slowest("s")) is None


def test_readers_hold_their_places_apart(journal: Path) -> None:
    stream(journal, consumer="one").commit({"s": 5})
    stream(journal, consumer="two").commit({"s": 8})
    store = SqliteCheckpoints(f"{journal}-positions")
    asyncio.run(store.write(Checkpoint("sink", "s", 11)))
    assert asyncio.run(store.slowest("s")) == 5


@pytest.mark.timeout(180)
def test_a_query_reads_every_event_once_over_a_restart(
    spark: SparkSession, journal: Path, scribe: Scribe, tmp_path: Path
) -> None:
    seen: list[int] = []
    sizes: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        rows = [row.sequence for row in batch.collect()]
        seen.extend(rows)
        sizes.append(len(rows))

    def run() -> None:
        reader = spark.readStream.format("omnirelay").option("columns", "sequence")
        rows = reader.option("rows_per_batch", "12").option("consumer", "lake").load(str(journal))
        query = (
            rows.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run()
    append(journal, [scribe.seal(5)])
    run()
    assert sorted(seen) == list(range(1, 26))
    assert sizes == [12, 8, 5]
    # Spark says that a batch is done when it begins the next one.
    position = held(SqliteCheckpoints(f"{journal}-positions"), "lake", ["s"])
    assert position["s"] in (20, 25)
