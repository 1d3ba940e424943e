"""A stream that follows a live node outlives it."""

import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

import omnirelay
from omnirelay import Payload
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.run import Pipeline, RunReport, open_pipeline, run_pipeline
from omnirelay.pipeline.stream import CHECKPOINT, Stream, StreamOptions
from tests.cli.nodes import Running, running
from tests.spark.small_tables import COUNTS, content
from tests.spark.test_stream_lag import metric, sinks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
ONE = (COUNTS,)
LATE_S = 120


@pytest.fixture
def tables(spark: "SparkSession", tmp_path: Path) -> DeltaTables:
    return DeltaTables(spark, str(tmp_path / "lake"))


def fill(node: Running, name: str, count: int) -> int:
    with omnirelay.connect_sync(node.urls["http"]) as relay:
        relay.enqueue_many([Payload("table", f"{name}-{n}") for n in range(count)])
        return relay.stats().last_sequence


def pipeline(tables: DeltaTables, url: str) -> Pipeline:
    return open_pipeline(tables.session, {"url": url}, tables, datasets=ONE, consumer="pipeline")


@pytest.fixture(scope="module", autouse=True)
def misspelt(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[None]]:
    """A stream from where nobody is. It asks for seconds, while the first test waits."""
    tables = DeltaTables(spark, str(tmp_path_factory.mktemp("misspelt")))
    options = StreamOptions(f"{tables.root}/{CHECKPOINT}")
    stream = Stream(pipeline(tables, "http://127.0.0.1:9"), options, lambda _: None)
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(stream.run)
        stream.stop()


def test_a_node_that_is_killed_and_comes_back_is_waited_for_and_every_event_is_there_once(
    tables: DeltaTables, tmp_path: Path
) -> None:
    journal = ("--journal", f"sqlite:///{tmp_path}/leases.db")
    said: Queue[str] = Queue()
    positions: Queue[int] = Queue()

    def note(report: RunReport) -> None:
        positions.put(report.tables[0].positions["resourcelease"])

    with running(tmp_path, *journal) as node:
        url = node.urls["http"]
        first = fill(node, "a", 5)
        stream = Stream(
            pipeline(tables, url),
            StreamOptions(f"{tables.root}/{CHECKPOINT}", interval_s=0.1),
            note,
            said.put,
        )
        following = Thread(target=stream.run)
        following.start()
        assert positions.get(timeout=LATE_S) == first
        fill(node, "b", 5)
        node.stop(signal.SIGKILL)
    try:
        assert "127.0.0.1" in said.get(timeout=LATE_S)
        with running(tmp_path, *journal, "--http", f"127.0.0.1:{urlsplit(url).port}") as again:
            last = fill(again, "c", 5)
            while positions.get(timeout=LATE_S) < last:
                pass
            stream.stop()
            following.join(LATE_S)
            assert "again" in said.get(timeout=LATE_S)
            shown = [(one["name"], one["sequence"]) for one in sinks_of(again)]
            assert shown == [("pipeline", last)]
            assert metric(again, "omnirelay_resourcelease_replication_sequence_lag") == [0]
            made = run_pipeline(tables.session, {"url": url}, tables, datasets=ONE)
            assert made.events == 0
    finally:
        stream.stop()
        following.join(LATE_S)
    events = tables.read("lease_events")
    assert events is not None
    found = content(events.select("sequence"))
    assert sorted(found) == [(sequence,) for sequence in range(1, last + 1)]
    names = content(events.where("event_type = 'Enqueue'").select("resource_id"))
    assert names == [(f"{letter}-{n}",) for letter in "abc" for n in range(5)]


def test_an_address_that_never_answered_ends_the_stream_at_once(misspelt: Future[None]) -> None:
    with pytest.raises(Exception, match="cannot be reached"):
        misspelt.result(LATE_S)
