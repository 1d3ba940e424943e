"""A run takes in what is new and brings every table up to it, once, whatever happened before."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnirelay
from omnirelay import Payload
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt, InvalidOption
from omnirelay.pipeline.bronze import Intake
from omnirelay.pipeline.bronze_source import Journals
from omnirelay.pipeline.datasets import Change, OtherJournal, Step, in_order
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.hold import Unheld
from omnirelay.pipeline.run import RunReport, open_pipeline, run_pipeline
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from omnirelay.testing.envelopes import Scribe
from tests.spark.journals import append
from tests.spark.small_tables import COUNTS, DATASETS, LIVES, SEEN, TENS, content, frame, life

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
NAMES = ("lease_events", *(dataset.name for dataset in DATASETS))


def work(path: Path, *, new: int, done: int) -> None:
    with omnirelay.connect_sync(f"sqlite:///{path}") as relay:
        relay.enqueue_many([Payload("table", f"t-{n}") for n in range(new)])
        for _ in range(done):
            with relay.lease(wait=1):
                pass


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "leases.db"
    work(path, new=5, done=2)
    return path


@pytest.fixture(params=["driver reads", "workers read"])
def rows_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """And writes; and write."""
    if request.param == "workers read":
        monkeypatch.setattr(limits, "ROWS_HERE_MAX", 0)
        monkeypatch.setattr(limits, "EVENTS_FEW_MAX", 0)


@pytest.fixture
def tables(spark: "SparkSession", tmp_path: Path) -> DeltaTables:
    return DeltaTables(spark, str(tmp_path / "lake"))


def run(tables: DeltaTables, journal: Path, **also: Any) -> RunReport:
    also.setdefault("datasets", DATASETS)
    return run_pipeline(tables.session, {"url": f"sqlite:///{journal}"}, tables, **also)


def everything(tables: DeltaTables) -> dict[str, list[tuple[Any, ...]]]:
    return {name: content(tables.read(name)) for name in NAMES}


def outcomes(report: RunReport) -> dict[str, str]:
    return {table.table: table.outcome for table in report.tables}


def test_a_step_whose_events_went_on_meanwhile_counts_nothing_twice_afterwards(
    tables: DeltaTables, journal: Path
) -> None:
    run(tables, journal)
    reached = []
    for _ in range(2):
        work(journal, new=3, done=3)
        run(tables, journal, datasets=())
        reached.append(tables.positions("lease_events"))
    options = {"url": f"sqlite:///{journal}"}
    pipeline = open_pipeline(tables.session, options, tables, datasets=DATASETS)
    pipeline._step(COUNTS, tables.snapshot(COUNTS), reached[0])
    assert tables.positions("counts") == reached[0]
    run(tables, journal)
    once = DeltaTables(tables.session, f"{tables.root}-once")
    run(once, journal)
    assert everything(tables) == everything(once)


@pytest.mark.usefixtures("rows_here")
def test_a_file_of_a_task_that_was_tried_again_is_not_taken_up(
    tables: DeltaTables, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Journals.write

    def twice(self: Journals, *words: Any) -> list[str]:
        left, *_ = write(self, *words)
        assert (Path(words[-1]) / left).exists()
        return write(self, *words)

    monkeypatch.setattr(Journals, "write", twice)
    assert run(tables, journal, datasets=()).events == 10
    assert len(content(tables.read("lease_events"))) == 10


def test_another_journal_under_the_same_name_is_refused(
    tables: DeltaTables, journal: Path, tmp_path: Path
) -> None:
    run(tables, journal, datasets=())
    for name, new, why in (("longer", 9, "in another envelope"), ("shorter", 1, "it ends at 2")):
        work(tmp_path / name, new=new, done=0)
        with pytest.raises(OtherJournal, match=why):
            run(tables, tmp_path / name, datasets=())
    work(journal, new=1, done=0)
    assert run(tables, journal, datasets=()).events == 2


@pytest.mark.usefixtures("rows_here")
def test_increments_give_the_tables_of_one_full_run_and_nothing_new_writes_nothing(
    tables: DeltaTables, journal: Path, tmp_path: Path
) -> None:
    first = run(tables, journal)
    assert set(outcomes(first).values()) == {"advanced"}
    assert first.events == 10  # an epoch, 5 enqueued, 2 granted and completed
    work(journal, new=3, done=4)
    second = run(tables, journal, consumer="spark")
    assert second.events == 12
    assert second.tables[1].positions == {"resourcelease": 22}
    versions = [tables.snapshot(dataset).version for dataset in DATASETS]
    third = run(tables, journal)
    assert set(outcomes(third).values()) == {"unchanged"}
    assert [tables.snapshot(dataset).version for dataset in DATASETS] == versions
    assert len(content(tables.read_open("lives"))) == 2
    whole = DeltaTables(tables.session, str(tmp_path / "whole"))
    run(whole, journal)
    assert everything(tables) == everything(whole)
    held = SqliteCheckpoints(f"{journal}-positions")
    assert [content_of(held, "spark")] == [22]


def content_of(store: SqliteCheckpoints, name: str) -> int:
    import asyncio

    async def read() -> int:
        found = await store.read(name, "resourcelease")
        await store.close()
        assert found is not None
        return found.position

    return asyncio.run(read())


def test_a_run_may_be_bounded_and_the_next_goes_on(tables: DeltaTables, journal: Path) -> None:
    assert [run(tables, journal, limit=4, datasets=()).events for _ in range(4)] == [4, 4, 2, 0]
    sequences = sorted(row[1] for row in content(tables.read("lease_events")))
    assert sequences == list(range(1, 11))


def test_a_table_that_fails_is_named_those_that_need_it_wait_and_the_others_go_on(
    tables: DeltaTables, journal: Path
) -> None:
    def trip(step: Step) -> Change:
        return Change(rows=step.session.sql("SELECT nowhere FROM {new}", new=step.new))

    broken = in_order((SEEN, replace(LIVES, advance=trip), TENS, COUNTS))
    report = run(tables, journal, datasets=broken)
    assert outcomes(report) == {
        "lease_events": "advanced",
        "seen": "advanced",
        "lives": "failed",
        "counts": "advanced",
        "tens": "waiting",
    }
    said = {table.table: table.why for table in report.failed}
    assert "nowhere" in str(said["lives"])
    assert said["tens"] == "lives has not come as far"
    healed = run(tables, journal)
    assert outcomes(healed)["lives"] == outcomes(healed)["tens"] == "advanced"
    assert outcomes(healed)["seen"] == "unchanged"
    assert not healed.failed


@pytest.mark.usefixtures("rows_here")
def test_damaged_envelopes_are_set_aside_and_their_neighbours_kept(
    tables: DeltaTables, tmp_path: Path
) -> None:
    import apsw

    path = tmp_path / "damaged.db"
    scribe = Scribe("plain")
    append(path, [scribe.seal(3) for _ in range(4)])
    db = apsw.Connection(str(path))
    db.execute("UPDATE journal SET body = replace(CAST(body AS TEXT), ':', ';') WHERE first = 4")
    db.close()
    report = run(tables, path, datasets=())
    assert (report.events, report.quarantined) == (9, 1)
    found = content(tables.read("quarantined"))
    assert [row[:2] for row in found] == [("plain", 4)]
    append(path, [scribe.seal(1)])
    assert run(tables, path, datasets=()).quarantined == 0
    assert len(content(tables.read("quarantined"))) == 1


def test_input_that_repeats_or_overlaps_what_is_there_changes_nothing(
    spark: "SparkSession", tables: DeltaTables, journal: Path
) -> None:
    rows = life("a", items=4)
    intake = Intake(tables, Journals(spark, {"url": str(journal)}), Unheld())
    assert intake.take_batch(frame(spark, rows[:4]), {"a": 0}, {"a": 4}).rows == 4
    assert intake.take_batch(frame(spark, rows[:4]), {"a": 0}, {"a": 4}).rows == 0
    overlapping = frame(spark, [*rows[2:6], *rows[3:6]])
    assert intake.take_batch(overlapping, {"a": 2}, {"a": 6}).rows == 2
    found = [row.sequence for row in tables.read("lease_events").orderBy("sequence").collect()]  # type: ignore[union-attr]
    assert found == [1, 2, 3, 4, 5, 6]


def test_a_micro_batch_that_begins_behind_a_gap_is_read_from_the_journal(
    spark: "SparkSession", tables: DeltaTables, journal: Path
) -> None:
    intake = Intake(tables, Journals(spark, {"url": str(journal)}), Unheld())
    nothing = frame(spark, [])
    assert intake.take_batch(nothing, {"resourcelease": 5}, {"resourcelease": 8}).rows == 8
    assert intake.take_batch(nothing, None, {"resourcelease": 10}).rows == 2


def test_events_that_were_pruned_before_they_were_read_are_not_passed_over_in_silence(
    tables: DeltaTables, journal: Path
) -> None:
    import apsw

    run(tables, journal, datasets=(), limit=4)
    db = apsw.Connection(str(journal))
    db.execute("DELETE FROM journal WHERE last <= 8")
    db.close()
    with pytest.raises(Corrupt, match="pruned"):
        run(tables, journal, datasets=())


def test_tables_whose_inputs_nobody_makes_or_whose_names_meet_are_refused() -> None:
    odd = [replace(SEEN, inputs=("nobody",)), replace(COUNTS, name="seen")]
    with pytest.raises(InvalidOption, match="seen of \\['nobody'\\]"):
        in_order(odd[:1])
    with pytest.raises(InvalidOption, match="two tables are called seen"):
        in_order(odd)
    wrongs: list[dict[str, Any]] = [{"layer": "tin"}, {"kind": "carry"}, {"version": 3}]
    for wrong in wrongs:
        with pytest.raises(InvalidOption):
            replace(SEEN, **wrong)
