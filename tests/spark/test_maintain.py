"""Upkeep changes how many files a table has, never what is in it, and lets go of what is old."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import set_failpoint
from omnirelay.pipeline.audit import ShardSeen, cut_off
from omnirelay.pipeline.audit_evidence import evidence_of_tables
from omnirelay.pipeline.audit_report import FINDINGS, RUNS, add_rows
from omnirelay.pipeline.datasets import LEASE_EVENTS, Change, Commit, TableFenced
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.hold import HoldLost, Unheld
from omnirelay.pipeline.maintain import Upkeep, maintain
from omnirelay.pipeline.schema import EVENT
from tests.spark.small_tables import BEGIN, LIVES, SEEN, content, event, frame, life

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


class Late:
    """So long after the first events."""

    def __init__(self, **span: float) -> None:
        self._ms = int((BEGIN + timedelta(**span)).timestamp() * 1000)

    def monotonic_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return self._ms


@pytest.fixture
def tables(spark: "SparkSession", tmp_path: Path) -> DeltaTables:
    tables = DeltaTables(spark, str(tmp_path))
    rows = life("a", items=4)
    for part in (rows[:2], rows[2:4], rows[4:]):
        base = tables.snapshot(LEASE_EVENTS)
        commit = Commit(base, {"a": part[-1]["sequence"]}, fence=1)
        tables.commit(LEASE_EVENTS, Change(append=frame(spark, part).coalesce(1)), commit)
    for sequence_id in (1, 2):
        closed = spark.createDataFrame([("a", sequence_id, 1, 2, "closed")], LIVES.columns)
        still = spark.createDataFrame([("a", 9, 1, None, "open")], LIVES.columns)
        commit = Commit(tables.snapshot(LIVES), {"a": sequence_id})
        tables.commit(LIVES, Change(append=closed, replace=still), commit)
    return tables


def test_many_files_become_one_with_the_same_rows_and_rubbish_goes(tables: DeltaTables) -> None:
    before = {name: content(tables.read(name)) for name in ("lease_events", "lives")}
    positions = tables.positions("lease_events")
    rubbish = Path(tables.address(LIVES)) / "c000000000099-00000000" / "_temporary" / "0"
    rubbish.mkdir(parents=True)
    (rubbish / "part-0.parquet").write_bytes(b"half")
    hold = Unheld()
    hold.fence = 2
    kept = {one.table: one for one in maintain(tables, hold, Upkeep(), datasets=(LIVES,))}
    assert (kept["lease_events"].files_before, kept["lease_events"].files_after) == (3, 1)
    assert (kept["lives"].files_before, kept["lives"].files_after) == (3, 2)
    assert rubbish.exists()  # it is not old enough to be nobody's
    assert {name: content(tables.read(name)) for name in before} == before
    assert tables.positions("lease_events") == positions
    again = maintain(
        tables, hold, Upkeep(orphans_hours=0), datasets=(LIVES,), clock=Late(days=999_9)
    )
    assert sum(one.swept for one in again) >= 5
    assert not rubbish.exists()
    assert {name: content(tables.read(name)) for name in before} == before
    with pytest.raises(TableFenced):
        maintain(tables, Unheld(), Upkeep(keep_days=1), datasets=(), clock=Late(days=3))


def test_events_go_by_age_once_every_table_has_read_them(tables: DeltaTables) -> None:
    hold = Unheld()
    hold.fence = 1
    upkeep = Upkeep(keep_days=1)
    waits = maintain(tables, hold, upkeep, datasets=(SEEN,), clock=Late(days=1, seconds=3))
    assert waits[0].retired == 0
    assert len(content(tables.read("lease_events"))) == 6
    fresh = maintain(tables, hold, upkeep, datasets=(), clock=Late(hours=23))
    assert fresh[0].retired == 0
    # Compacted by now: one file, and it goes when its newest event is old enough.
    gone = maintain(tables, hold, upkeep, datasets=(), clock=Late(days=1, seconds=30))
    assert gone[0].retired == 1
    assert content(tables.read("lease_events")) == []
    assert tables.positions("lease_events") == {"a": 6}


def add_events(tables: DeltaTables, rows: list[dict[str, Any]]) -> None:
    """Any: see `event`."""
    ends = {row["shard"]: row["sequence"] for row in rows}
    commit = Commit(tables.snapshot(LEASE_EVENTS), ends, fence=1)
    new = frame(tables.session, rows).coalesce(1)
    tables.commit(LEASE_EVENTS, Change(append=new), commit)


def late(shard: str, sequence: int, **span: float) -> dict[str, Any]:
    return {**event(shard, sequence, "Enqueue", 9), "timestamp": BEGIN + timedelta(**span)}


def sequences(tables: DeltaTables) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in content(tables.read("lease_events")):
        by_name = dict(zip(EVENT, row, strict=True))
        found.setdefault(by_name["shard"], []).append(by_name["sequence"])
    return {shard: sorted(some) for shard, some in found.items()}


def retired(tables: DeltaTables, **span: float) -> int:
    hold = Unheld()
    hold.fence = 1
    kept = maintain(tables, hold, Upkeep(keep_days=1), datasets=(), clock=Late(**span))
    return kept[0].retired


def lost_tails(tables: DeltaTables) -> list[tuple[str, int]]:
    ends = {shard: some[-1] for shard, some in sequences(tables).items()}
    seen = [ShardSeen(shard, 1, end, 1, None, 0) for shard, end in ends.items()]
    found = cut_off(seen, evidence_of_tables(tables).acknowledged)
    return [(one.shard, one.sequence) for one in found]


def test_an_audit_does_not_miss_what_retention_let_go_and_still_misses_what_was_lost(
    tables: DeltaTables,
) -> None:
    add_events(tables, [late("b", 1, days=2)])
    assert retired(tables, days=2) == 3
    assert sequences(tables) == {"b": [1]}  # the other queue has been quiet since
    assert lost_tails(tables) == []
    add_events(tables, [late("a", 7, days=2), late("b", 2, days=2)])
    assert lost_tails(tables) == []
    table = tables.open(LEASE_EVENTS)
    assert table is not None
    table.delete("sequence = 7 OR shard = 'b'")
    assert lost_tails(tables) == [("a", 1), ("b", 1)]


def test_an_audit_does_not_miss_what_a_run_commits_while_it_begins(
    tables: DeltaTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = tables.read

    def read_amid_a_run(name: str) -> "DataFrame | None":
        rows = read(name)
        if name == LEASE_EVENTS.name:
            add_events(tables, [late("a", 7, seconds=7)])
        return rows

    monkeypatch.setattr(tables, "read", read_amid_a_run)
    evidence = evidence_of_tables(tables)
    assert evidence.events.count() == evidence.acknowledged["a"] == 6


def test_retention_leaves_no_hole_where_an_older_event_has_to_stay(tables: DeltaTables) -> None:
    add_events(tables, [late("c", 1, seconds=1), late("d", 1, days=2)])
    add_events(tables, [late("c", 2, seconds=2)])
    add_events(tables, [late("c", 3, days=2)])
    assert retired(tables, days=2) == 3
    assert sequences(tables) == {"c": [1, 2, 3], "d": [1]}
    assert retired(tables, days=4) == 1  # they are together in one file by now
    assert sequences(tables) == {}
    assert lost_tails(tables) == []


class Lost:
    """A lease that was taken over; its fence is as high as any."""

    fence = 99

    def check(self) -> None:
        raise HoldLost("lake", "it was refused")


def test_upkeep_whose_lease_is_lost_commits_nothing(tables: DeltaTables) -> None:
    versions = {one: tables.snapshot(one).version for one in (LEASE_EVENTS, LIVES)}
    with pytest.raises(HoldLost):
        maintain(tables, Lost(), datasets=())
    with pytest.raises(HoldLost):
        maintain(tables, Lost(), Upkeep(keep_days=1), datasets=(), clock=Late(days=3))
    assert {one: tables.snapshot(one).version for one in versions} == versions


def ran(number: int) -> tuple[object, ...]:
    return (f"run-{number}", BEGIN, BEGIN, "run", {"a": number}, number, 0, "ok")


def run_ids(tables: DeltaTables) -> list[str]:
    return [row[0] for row in content(tables.read("runs"))]


def test_lines_of_runs_and_audits_are_put_together_and_outlive_the_events(
    tables: DeltaTables,
) -> None:
    for number in range(3):
        add_rows(tables, RUNS, [ran(number)])
        add_rows(tables, FINDINGS, [(f"run-{number}", "tail", "error", "a", 1, None, None, "m")])
    to_come = Path(tables.address(RUNS)) / "c000000000099s-00000000" / "part-0.parquet"
    to_come.parent.mkdir()
    to_come.write_bytes(b"of an audit that has not committed yet")
    hold = Unheld()
    hold.fence = 3
    upkeep = Upkeep(orphans_hours=0, keep_days=1)
    kept = {one.table: one for one in maintain(tables, hold, upkeep, datasets=())}
    for name in ("runs", "findings"):
        assert (kept[name].files_before, kept[name].files_after, kept[name].retired) == (3, 1, 0)
    assert to_come.exists()
    assert run_ids(tables) == ["run-0", "run-1", "run-2"]
    add_rows(tables, RUNS, [ran(3)])
    assert run_ids(tables) == ["run-0", "run-1", "run-2", "run-3"]


def test_an_audit_that_ends_amid_upkeep_is_kept_and_neither_fails(tables: DeltaTables) -> None:
    for number in range(2):
        add_rows(tables, RUNS, [ran(number)])

    def end_an_audit(name: str) -> None:
        if name == "pipeline.after_compaction":
            set_failpoint(None)
            add_rows(tables, RUNS, [ran(2)])

    hold = Unheld()
    hold.fence = 1
    maintain(tables, hold, datasets=())  # so that of the runs alone there is something to do
    add_rows(tables, RUNS, [ran(3)])
    set_failpoint(end_an_audit)
    try:
        maintain(tables, hold, datasets=())
    finally:
        set_failpoint(None)
    assert run_ids(tables) == ["run-0", "run-1", "run-2", "run-3"]


def test_upkeep_that_makes_no_sense_is_refused() -> None:
    for wrong in ({"orphans_hours": -1}, {"keep_days": 0}, {"file_bytes": 0}):
        with pytest.raises(InvalidOption):
            replace(Upkeep(), **wrong)
