"""The pipeline reads every store of journals through one port: all of it, in parts, as a stream."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omnirelay.journal.format import Sealed, unseal
from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.address import Extent, open_file
from omnirelay.pipeline.address_store import StoreAddress
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.source_options import parse
from omnirelay.stores.objects_address import open_bucket
from omnirelay.stores.objects_layout import Layout
from omnirelay.stores.objects_roll import roll
from omnirelay.stores.registry import open_address
from omnirelay.testing.envelopes import Scribe
from omnirelay.testing.event_rows import rows_of
from omnirelay.testing.servers_hub import HubHost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARD = "resourcelease"
ENVELOPES = 12
EVENTS = sum(range(1, ENVELOPES + 1))
STORES = ("file", "s3", "gs", "az", "postgres", "valkey", "nats_one", "hubs")
_numbers = count()


def history() -> list[Sealed]:
    scribe = Scribe(SHARD)
    return [scribe.seal(number) for number in range(1, ENVELOPES + 1)]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/journals"
    server = request.getfixturevalue(request.param)
    if isinstance(server, HubHost):
        return server.fresh()
    for name, value in getattr(server, "environment", {}).items():
        monkeypatch.setenv(name, value)
    return str(server.url(f"spark{next(_numbers)}"))


def write(url: str, envelopes: list[Sealed]) -> None:
    async def append() -> None:
        opened = open_address(url, SHARD)
        await opened.journal.open()
        for sealed in envelopes:
            await opened.journal.append(sealed, expected=sealed.first - 1)
        await opened.journal.close()
        await opened.checkpoints.close()

    asyncio.run(append())


def expected(envelopes: list[Sealed]) -> list[dict[str, Any]]:
    found = [unseal(one.body, shard=SHARD, at=one.first) for one in envelopes]
    return [row for envelope in found for row in rows_of(envelope)]


def rows(journal: StoreAddress, after: int = 0, through: int = EVENTS) -> list[dict[str, Any]]:
    part = Part(after=after, through=through)
    return [row for batch in journal.read(SHARD, part) for row in batch.to_pylist()]


def opened(url: str) -> StoreAddress:
    journal = open_file(url)
    assert isinstance(journal, StoreAddress)
    return journal


@pytest.mark.timeout(90)
def test_a_store_gives_the_events_that_were_written_whole_and_in_parts(url: str) -> None:
    envelopes = history()
    write(url, envelopes)
    with closing(opened(url)) as journal:
        assert journal.extent(SHARD) == Extent(1, EVENTS)
        whole = rows(journal)
        assert [row["sequence"] for row in whole] == list(range(1, EVENTS + 1))
        assert [row["envelope_checksum"] for row in whole] == [
            row["envelope_checksum"] for row in expected(envelopes)
        ]
        cuts = [0, 1, 17, 18, 50, EVENTS]
        parted = [rows(journal, *ends) for ends in pairwise(cuts)]
        assert [row for part in parted for row in part] == whole
        assert list(journal.damaged(SHARD, 0, EVENTS)) == []
        middle = envelopes[5]
        assert journal.sequence_before(SHARD, middle.time) == middle.first - 1
        with pytest.raises(InvalidOption, match="no journal of 'other'"):
            journal.extent("other")


def test_envelopes_that_were_rolled_up_are_read_as_before(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/journals"
    write(url, history())
    with closing(opened(url)) as journal:
        before = rows(journal)
    assert asyncio.run(roll(open_bucket(url), SHARD, count=4)) == 4
    with closing(opened(url)) as journal:
        assert rows(journal) == before
        assert rows(journal, 5, 60) == before[5:60]


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[StoreAddress]:
    """The third envelope cannot be read, the sixth and seventh are gone."""
    url, envelopes = f"file://{tmp_path}/journals", history()
    write(url, envelopes)
    bucket, layout = open_bucket(url), Layout(SHARD)

    async def damage() -> None:
        await bucket.put(layout.envelope(envelopes[2].first), b"rubbish")
        await bucket.delete([layout.envelope(envelopes[n].first) for n in (5, 6)])

    asyncio.run(damage())
    with closing(opened(url)) as journal:
        yield journal


def test_what_is_damaged_or_gone_is_said_and_the_rest_is_read(damaged: StoreAddress) -> None:
    lost = {4, 5, 6, *range(16, 29)}
    kept = [number for number in range(1, EVENTS + 1) if number not in lost]
    assert [row["sequence"] for row in rows(damaged)] == kept
    said = [(one.sequence, one.body) for one in damaged.damaged(SHARD, 0, EVENTS)]
    assert said == [(4, b"rubbish"), (16, None)]
    # Also where a part ends or begins amid what is gone.
    assert [row["sequence"] for row in rows(damaged, 0, 20)] == [n for n in kept if n <= 20]
    assert [one.sequence for one in damaged.damaged(SHARD, 10, 20)] == [16]
    assert [row["sequence"] for row in rows(damaged, 20, 40)] == [n for n in kept if 20 < n <= 40]
    assert [one.sequence for one in damaged.damaged(SHARD, 20, 40)] == [21]


@pytest.mark.timeout(120)
def test_spark_reads_a_server_as_a_batch_and_as_a_stream_that_goes_on(
    spark: "SparkSession", postgres: Any, tmp_path: Path
) -> None:
    url = postgres.url(f"spark{next(_numbers)}")
    envelopes = history()
    write(url, envelopes[:8])
    frame = spark.read.format("omnirelay").options(url=url, rows_per_partition="20").load()
    assert sorted(row.sequence for row in frame.select("sequence").collect()) == list(range(1, 37))
    seen: list[int] = []

    def follow() -> None:
        source = spark.readStream.format("omnirelay").options(url=url, consumer="tables").load()
        writer = source.select("sequence").writeStream.foreachBatch(
            lambda rows, _: seen.extend(row.sequence for row in rows.collect())
        )
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query.start().awaitTermination()

    follow()
    write(url, envelopes[8:])
    follow()
    assert seen == list(range(1, EVENTS + 1))


def test_the_servers_of_one_nats_address_are_not_taken_for_several_journals() -> None:
    urls = parse({"url": "nats://a:1,b:2,c:3/S?replicas=3,sqlite:////x.db,file:///y"}).urls
    assert urls == ("nats://a:1,b:2,c:3/S?replicas=3", "/x.db", "file:///y")
