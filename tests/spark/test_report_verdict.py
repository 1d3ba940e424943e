"""What a page says of the audit is what the newest audit said, however many runs came since."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnirelay.model.ports import SystemClock
from omnirelay.pipeline.audit import Audited, Finding, ShardSeen
from omnirelay.pipeline.audit_report import RUNS, keep
from omnirelay.pipeline.datasets import Change, Commit
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.hold import Hold, Holding
from omnirelay.pipeline.report import write_report
from omnirelay.pipeline.run import run_pipeline
from omnirelay.pipeline.run_record import Recorded
from tests.spark.test_run import work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(120)
SHARD = "resourcelease"
AT = datetime(2026, 1, 1, tzinfo=UTC)
GAP = Finding("order.gap", SHARD, 3, None, "Enqueue", "3 follows 1")


@pytest.fixture
def tables(spark: "SparkSession", tmp_path: Path) -> DeltaTables:
    return DeltaTables(spark, str(tmp_path / "lake"))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    work(tmp_path / "leases.db", new=2, done=0)
    return tmp_path / "leases.db"


def run(tables: DeltaTables, journal: Path, hold: Holding | None = None) -> None:
    options = {"url": f"sqlite:///{journal}"}
    with Recorded(tables) as recorded:
        recorded.by(run_pipeline(tables.session, options, tables, datasets=(), hold=hold))


def audited(run_id: str, upto: int, *findings: Finding) -> Audited:
    seen = ShardSeen(SHARD, 1, upto, upto, None, 0)
    return Audited(run_id, AT, AT, [seen], list(findings))


def verdict(tables: DeltaTables, tmp_path: Path) -> str:
    out = tmp_path / "report.html"
    write_report(tables, out, place="here", clock=SystemClock())
    _, _, behind = out.read_text("utf-8").partition('<p class="verdict ')
    return behind.partition("</p>")[0]


def test_only_an_audit_gives_a_verdict_and_only_on_what_it_saw(
    tables: DeltaTables, journal: Path, tmp_path: Path
) -> None:
    run(tables, journal)
    assert verdict(tables, tmp_path).startswith('warn">Not audited')
    keep(tables, audited("damaged", 3, GAP))
    work(journal, new=1, done=0)
    run(tables, journal)
    said = verdict(tables, tmp_path)
    assert said.startswith('bad">Audit: findings, 1 finding;')
    assert f"it looked at <bdi>{SHARD}</bdi> up to 3 of 5." in said


def test_a_clean_verdict_is_green_until_the_tables_go_on(
    tables: DeltaTables, journal: Path, tmp_path: Path
) -> None:
    run(tables, journal)
    keep(tables, audited("clean", 3))
    said = verdict(tables, tmp_path)
    assert said.startswith('good">Audit: clean, nothing found')
    assert "gone on" not in said
    work(journal, new=1, done=0)
    run(tables, journal)
    assert verdict(tables, tmp_path).startswith('warn">Audit: clean, nothing found')


def test_a_run_goes_into_the_table_of_runs_beside_whoever_wrote_there_under_a_lease(
    tables: DeltaTables, journal: Path
) -> None:
    empty = tables.session.createDataFrame([], RUNS.columns)
    tables.commit(RUNS, Change(append=empty), Commit(tables.snapshot(RUNS), {}, fence=7))
    with Hold(tables.root) as hold:
        assert hold.fence < 7
        run(tables, journal, hold)
    keep(tables, audited("clean", 3))
    runs = tables.read("runs")
    assert runs is not None
    assert sorted(row.kind for row in runs.collect()) == ["audit", "run"]
