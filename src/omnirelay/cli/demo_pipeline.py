"""The last act of the demo: its journal through the pipeline, into tables, a verdict and a page."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from omnirelay.cli.demo_board import Board
from omnirelay.cli.demo_proof import Proof
from omnirelay.cli.demo_screen import Screen
from omnirelay.cli.saying import counted

PLACE: Final = Path(".omnirelay/demo")
"""Where tables and page are left, so that there is something to look at afterwards."""
CORES: Final = "local[2]"


class Painted(msgspec.Struct, frozen=True, rename="camel"):
    tables: str
    report: str
    rows: dict[str, int]
    verdict: str


def has_spark() -> bool:
    return find_spec("pyspark") is not None


def paint(journal: Path, place: Path, screen: Screen, board: Board) -> tuple[Painted, Proof]:
    """Tables in `place`/tables, instead of what an earlier demo left there, and a page beside."""
    from omnirelay.cli.pipeline_places import spark_on
    from omnirelay.model.ports import SystemClock
    from omnirelay.pipeline.audit import audit
    from omnirelay.pipeline.audit_evidence import evidence_of_tables
    from omnirelay.pipeline.audit_report import keep
    from omnirelay.pipeline.delta import DeltaTables
    from omnirelay.pipeline.hold import Hold
    from omnirelay.pipeline.report import write_report
    from omnirelay.pipeline.run import run_pipeline

    screen.stage("5: what Spark makes of it: tables, an audit, a page", board)
    folder = place.absolute() / "tables"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with Hold(str(folder)) as hold, spark_on(CORES, size="few") as session:
        tables = DeltaTables(session, str(folder))
        made = run_pipeline(
            session,
            {"url": f"sqlite:///{quote(str(journal))}"},
            tables,
            hold=hold,
            note=lambda table: screen.note(f"{table.table}: {counted(table.rows, 'row')}"),
        )
        found = audit(session, evidence_of_tables(tables))
        keep(tables, found)
        page = write_report(
            tables, place.absolute() / "report.html", place=str(folder), clock=SystemClock()
        )
    painted = Painted(
        tables=str(folder),
        report=page.file,
        rows={table.table: table.rows for table in made.tables},
        verdict=found.verdict,
    )
    is_whole = not made.failed and not found.findings
    detail = f"{counted(found.events, 'event')} in {len(painted.rows)} tables, {found.verdict}"
    return painted, Proof("an audit on Spark agrees", is_whole, detail)
