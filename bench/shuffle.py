"""How many bytes Spark moves between tasks: `python -m bench.shuffle EVENTS [EVENTS …]`.

A line of JSON for each size: bytes written for shuffles (compressed, as they would go over a
network) and tasks, of a first run over all tables, of a run over 1 % more, and of the audit. The
figures of docs/pipeline-scale.md come from here; a busy machine does not change them.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omnirelay.pipeline.audit import audit
from omnirelay.pipeline.audit_evidence import evidence_of_tables
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.run import RunReport, run_pipeline
from omnirelay.pipeline.session import SessionOptions, open_session
from omnirelay.pipeline.synth import Plan, synthesize

SHARDS = 20


class Meter:
    """What the one executor of a local session has done so far, as Spark itself counts it."""

    def __init__(self, session: Any) -> None:
        """Any: pyspark knows no types for what Java has."""
        self._store = session._jsc.sc().statusStore()

    def of(self, work: Callable[[], object]) -> dict[str, int]:
        before = self._now()
        work()
        return {name: count - before[name] for name, count in self._now().items()}

    def _now(self) -> dict[str, int]:
        done = self._store.executorSummary("driver")
        return {"bytes": done.totalShuffleWrite(), "tasks": done.totalTasks()}


def measured(events: int, folder: Path) -> dict[str, Any]:
    """Any: figures of each job."""
    url = f"sqlite:///{folder}/journal.db"
    synthesize(Plan(events=events, shards=SHARDS, seed=1, to=url))
    session = open_session(SessionOptions(master="local[2]"))
    tables, meter = DeltaTables(session, str(folder / "tables")), Meter(session)

    def run(limit: int | None = None) -> RunReport:
        report = run_pipeline(session, {"url": url}, tables, limit=limit)
        assert not report.failed, report.failed
        return report

    first = meter.of(lambda: run(events - events // 100))
    more = meter.of(run)
    proof = meter.of(lambda: audit(session, evidence_of_tables(tables)))
    session.stop()
    return {"events": events, "tables": first, "one_percent_more": more, "audit": proof}


def main() -> None:
    for word in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(int(word), Path(folder))), flush=True)


if __name__ == "__main__":
    main()
