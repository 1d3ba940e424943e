"""A run leaves a line in the table of runs, beside the audits'."""

from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType

from omnirelay.model.items import to_time
from omnirelay.model.ports import Clock, RandomIds, SystemClock
from omnirelay.pipeline.audit_report import RUNS, add_rows
from omnirelay.pipeline.datasets import Tables
from omnirelay.pipeline.run import RunReport


@dataclass
class Recorded:
    """`with Recorded(tables) as recorded: report = recorded.by(run_pipeline(...))`.

    A run that found nothing new leaves no line. `findings` are the rows written that do not meet
    an expectation, and the envelopes set aside.
    """

    tables: Tables
    clock: Clock = field(default_factory=SystemClock)
    _begun_ms: int = 0
    _report: RunReport | None = None

    def __enter__(self) -> "Recorded":
        self._begun_ms = self.clock.wall_ms()
        return self

    def by(self, report: RunReport) -> RunReport:
        self._report = report
        return report

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        report = self._report
        if report is None or all(table.outcome == "unchanged" for table in report.tables):
            return
        row = _row(report, to_time(self._begun_ms), to_time(self.clock.wall_ms()))
        add_rows(self.tables, RUNS, [row])


def _row(report: RunReport, begun: datetime, ended: datetime) -> tuple[object, ...]:
    broken = sum(sum(table.warned.values()) for table in report.tables)
    return (
        RandomIds().lease_id(),
        begun,
        ended,
        "run",
        report.tables[0].positions,
        report.events,
        broken + report.quarantined,
        "failed" if report.failed else "ok",
    )
