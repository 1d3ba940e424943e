"""A stream takes the steps of a run, may be stopped or replayed anywhere, and yields its target."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import set_failpoint
from omnirelay.pipeline.datasets import TableFenced, TableMoved
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.hold import Hold, Holding, HoldLost
from omnirelay.pipeline.run import Pipeline, RunReport, open_pipeline, run_pipeline
from omnirelay.pipeline.stream import Stream, StreamOptions, offsets_of
from tests.cli.nodes import running
from tests.spark.small_tables import COUNTS, LIVES, content
from tests.spark.test_run import work
from tests.spark.test_stream_lag import sinks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
TWO = (LIVES, COUNTS)


@pytest.fixture(autouse=True)
def leave_nothing_armed() -> Iterator[None]:
    yield
    set_failpoint(None)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "leases.db"
    work(path, new=5, done=2)
    return path


@pytest.fixture
def tables(spark: "SparkSession", tmp_path: Path) -> DeltaTables:
    return DeltaTables(spark, str(tmp_path / "lake"))


def pipeline(tables: DeltaTables, journal: Path, hold: Holding | None = None) -> Pipeline:
    options = {"url": f"sqlite:///{journal}", "rows_per_batch": "8"}
    return open_pipeline(tables.session, options, tables, hold=hold, datasets=TWO, consumer="spark")


def once(tables: DeltaTables, journal: Path) -> list[RunReport]:
    reports: list[RunReport] = []
    options = StreamOptions(f"{tables.root}/_checkpoint", is_once=True)
    Stream(pipeline(tables, journal), options, reports.append).run()
    return reports


def test_a_stream_makes_the_tables_of_a_run_in_micro_batches_and_again_where_it_was(
    tables: DeltaTables, journal: Path, tmp_path: Path
) -> None:
    assert [report.events for report in once(tables, journal)] == [8, 2]
    assert offsets_of(f"{tables.root}/_checkpoint", 1) == {"resourcelease": 10}
    work(journal, new=2, done=2)
    run_pipeline(tables.session, {"url": str(journal)}, tables, datasets=TWO, limit=3)
    # The run between went ahead of Spark's checkpoint: three of the seven new ones are there.
    assert [report.events for report in once(tables, journal)] == [4]
    whole = DeltaTables(tables.session, str(tmp_path / "whole"))
    run_pipeline(tables.session, {"url": str(journal)}, whole, datasets=TWO)
    for name in ("lease_events", "lives", "counts"):
        assert content(tables.read(name)) == content(whole.read(name))


def test_a_stream_goes_on_until_it_is_stopped_and_a_node_sees_how_far_it_is(
    tables: DeltaTables, tmp_path: Path
) -> None:
    path = tmp_path / "node.db"
    with running(tmp_path, "--journal", f"sqlite:///{path}") as node:
        node("enqueue", "table", "a")
        stream = Stream(
            pipeline(tables, path),
            StreamOptions(f"{tables.root}/_checkpoint", interval_s=0.1),
            lambda report: node_is_read(report),
        )

        def node_is_read(report: RunReport) -> None:
            if report.tables[0].positions["resourcelease"] == 2:
                node("enqueue", "table", "b")
            else:
                stream.stop()

        thread = Thread(target=stream.run)
        thread.start()
        thread.join()
        assert stream.last is not None
        assert [sink["sequenceLag"] for sink in sinks_of(node)] == [0]
    assert len(content(tables.read("lease_events"))) == 3


def test_a_pipeline_that_was_paused_while_another_took_over_commits_nothing(
    tables: DeltaTables, journal: Path, tmp_path: Path
) -> None:
    with running(tmp_path) as node:
        url = node.urls["stream"]
        first = Hold("lake", url=url, lease_s=1.0)
        with first:
            versions: list[int] = []

            def pause(name: str) -> None:
                if name != "pipeline.after_write":
                    return
                set_failpoint(None)
                assert first._relay is not None
                first._relay.relay.heart.stop()
                with Hold("lake", url=url, wait_s=10) as second:
                    taken = DeltaTables(tables.session, tables.root)
                    pipeline(taken, journal, second).run(lambda intake: intake.take())
                    versions.append(taken.snapshot(LIVES).version)

            set_failpoint(pause)
            with pytest.raises(HoldLost):
                pipeline(tables, journal, first).run(lambda intake: intake.take())

            class Blind:
                """Does not look at its lease: the tables do."""

                fence = first.fence

                def check(self) -> None:
                    return None

            work(journal, new=1, done=0)
            with pytest.raises((TableFenced, TableMoved)):
                pipeline(tables, journal, Blind()).run(lambda intake: intake.take())
    assert [tables.snapshot(LIVES).version] == versions
    assert len(content(tables.read("lease_events"))) == 10


def test_a_stream_that_loses_its_lease_ends_and_says_so(tables: DeltaTables, journal: Path) -> None:
    class Lost:
        fence = 1

        def check(self) -> None:
            raise HoldLost("lake", "its time ran out")

    options = StreamOptions(f"{tables.root}/_checkpoint")
    with pytest.raises(HoldLost, match="its time ran out"):
        Stream(pipeline(tables, journal, Lost()), options, lambda _: None).run()
    assert tables.names() == []


def test_an_interval_out_of_bounds_is_refused() -> None:
    for wrong in (-1.0, 1e6, float("nan")):
        with pytest.raises(InvalidOption, match="interval"):
            StreamOptions("folder", interval_s=wrong)
