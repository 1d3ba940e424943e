"""Every table of the pipeline, moved on step by step: each step reads only what is new, and in the
end the tables are those of one run over everything."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnirelay.model import limits
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.hold import Unheld
from omnirelay.pipeline.maintain import maintain
from omnirelay.pipeline.run import run_pipeline
from tests.spark.real_tables import NAMES, Eventful, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnirelay.pipeline.datasets import Positions, Snapshot

pytestmark = pytest.mark.timeout(300)


class Watched(DeltaTables):
    """Notes which files a step reads of the events and of the tables it is made from."""

    def __init__(self, session: "SparkSession", root: str) -> None:
        super().__init__(session, root)
        self.read_by_step: list[set[str]] = []

    def read_events(self, after: "Snapshot", upto: "Positions") -> "DataFrame":
        return self._noted(super().read_events(after, upto))

    def read_recent(self, name: str, after: "Snapshot") -> "DataFrame":
        return self._noted(super().read_recent(name, after))

    def _noted(self, rows: "DataFrame") -> "DataFrame":
        self.read_by_step[-1].update(rows.inputFiles())
        return rows


def test_three_steps_read_only_what_is_new_and_make_every_table_of_one_run(
    spark: "SparkSession", eventful: Eventful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one run was written by the driver, and so is the first step; the others by workers."""
    tables = Watched(spark, str(tmp_path))
    rows = []
    for step in range(4):
        if step == 2:
            # Files that hold rows of all ages: the next step must look for what is new in them.
            maintain(tables, Unheld())
        tables.read_by_step.append(set())
        if step == 1:
            monkeypatch.setattr(limits, "EVENTS_FEW_MAX", 0)
        limit = eventful.sequences // 3 + 1
        report = run_pipeline(spark, {"url": eventful.url}, tables, limit=limit)
        assert not report.failed
        rows.append(report.events)
    first, second, third, fourth = tables.read_by_step
    assert first
    assert second
    assert not first & second, "a file was read for the second time"
    assert third
    assert not fourth
    assert rows[3] == 0
    assert sum(rows) == len(eventful.rows["lease_events"])
    found = rows_of(tmp_path)
    for name in NAMES:
        assert found[name] == eventful.rows[name], name
