"""The pipeline's own tables, killed at every step of every one of them: what is there in the end is
what one run that nobody interrupted makes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from omnirelay.cli.app import app
from omnirelay.model.ports import set_failpoint
from omnirelay.pipeline.audit_report import RUNS
from omnirelay.pipeline.datasets import Dataset
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.run import run_pipeline
from omnirelay.pipeline.run_record import Recorded
from omnirelay.pipeline.stream import CHECKPOINT
from omnirelay.testing.failpoints import VARIABLE
from omnirelay.testing.nodes import ProcessDied
from tests.spark.real_tables import DAMAGED, NAMES, Eventful, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnirelay.pipeline.datasets import Change, Commit, Committed

pytestmark = pytest.mark.timeout(300)
WRITING = ("after_write", "before_commit", "after_commit")
MAKING = ("after_creation", "after_shards", "after_commit")
FIRST = str(DAMAGED[1] + 5)
"""Up to which sequence of each shard the tables are made before they are moved on."""
Place = tuple[str, str]
"""A table and a point on the way to one of its commits."""


KILLED = """
import os
from omnirelay.cli.app import main
from omnirelay.testing.failpoints import arm_from_env

arm_from_env(os.environ)
main()
"""


@dataclass(frozen=True)
class Dying:
    """A stream in a process of its own, which ends by SIGKILL."""

    target: Path
    words: list[str]
    process: "subprocess.Popen[bytes]"


@pytest.fixture(scope="module", autouse=True)
def dying(eventful: Eventful, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dying]:
    """Begun with the first test of this file, which leaves a core free: until the last one wants
    it, it has started its Java and come to where it dies."""
    folder = tmp_path_factory.mktemp("killed")
    words = ["pipeline", "stream", "--once", "--master", "local[2]", "--from", eventful.url]
    words += ["--to", str(folder / "lake")]
    words += ["--rows-per-batch", str(eventful.sequences // 2 + 1)]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, *words],
            env={**os.environ, VARIABLE: f"pipeline.before_commit=kill@{len(NAMES) // 2}"},
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    yield Dying(folder / "lake", words, process)
    process.kill()
    process.wait()


class DyingTables(DeltaTables):
    """Dies at each of these places, which is then one less."""

    def __init__(self, session: "SparkSession", root: Path, left: set[Place]) -> None:
        super().__init__(session, str(root))
        self._left = left
        self._committing: list[str] = []
        set_failpoint(self._met)

    def commit(self, dataset: Dataset, change: "Change", commit: "Commit") -> "Committed":
        self._committing.append(dataset.name)
        done = super().commit(dataset, change, commit)
        self._committing.pop()
        return done

    def _met(self, name: str) -> None:
        if not self._committing:
            return
        place = (self._committing[-1], name.removeprefix("pipeline."))
        if place in self._left:
            self._left.remove(place)
            raise ProcessDied


@pytest.fixture(autouse=True)
def leave_nothing_armed() -> Iterator[None]:
    yield
    set_failpoint(None)


def survive(tables: Callable[[], DyingTables], options: dict[str, str]) -> int:
    """Run again after each death, one table after the other, until one run comes to its end; how
    often it died."""
    deaths = 0
    while True:
        dying = tables()
        try:
            report = run_pipeline(dying.session, options, dying, lanes=1)
        except ProcessDied:
            deaths += 1
        else:
            assert not report.failed
            return deaths


def test_a_run_that_died_at_every_step_of_every_table_makes_the_tables_of_one_that_did_not(
    spark: "SparkSession", eventful: Eventful, tmp_path: Path
) -> None:
    """First on the way from nothing to a table, then from one state of it to the next."""
    left = {(name, point) for name in NAMES for point in MAKING}
    left |= {("quarantined", point) for point in WRITING}
    places = len(left)
    options = {"url": eventful.url}

    def tables() -> DyingTables:
        return DyingTables(spark, tmp_path, left)

    assert survive(tables, {**options, "to_sequence": FIRST}) == places
    left = {(name, point) for name in NAMES if name != "quarantined" for point in WRITING}
    places = len(left)
    assert survive(tables, options) == places
    assert rows_of(tmp_path) == eventful.rows


def test_a_run_that_died_beside_its_line_in_the_table_of_runs_leaves_one_or_none(
    spark: "SparkSession", eventful: Eventful, tmp_path: Path
) -> None:
    def run(left: set[Place], limit: int | None) -> list[int]:
        tables = DyingTables(spark, tmp_path, left)
        with suppress(ProcessDied), Recorded(tables) as recorded:
            recorded.by(
                run_pipeline(spark, {"url": eventful.url}, tables, limit=limit, datasets=())
            )
        assert not left
        told = DeltaTable(tmp_path / RUNS.layer / RUNS.name).to_pyarrow_table()["events"]
        return sorted(told.to_pylist())

    told = [run({(RUNS.name, point)}, 20) for point in ("after_creation", *WRITING)]
    assert told == [[], [], [], [20]]
    events = len(eventful.rows["lease_events"])
    assert run(set(), None) == [20, events - 4 * 20]
    assert rows_of(tmp_path)["lease_events"] == eventful.rows["lease_events"]


def test_a_stream_killed_on_its_way_goes_on_where_it_was(eventful: Eventful, dying: Dying) -> None:
    """In the middle of its first micro-batch's tables. Killed before Spark notes that a micro-batch
    is done: test_crash_matrix.py."""
    target = dying.target
    code = dying.process.wait()
    assert code == -signal.SIGKILL, (target.parent / "said").read_text()[-2000:]
    left = rows_of(target)
    assert 0 < len(left["lease_events"]) < len(eventful.rows["lease_events"])
    assert len(list((target / CHECKPOINT / "offsets").glob("[0-9]*"))) == 1
    assert not list((target / CHECKPOINT / "commits").glob("[0-9]*")), "Spark noted it as done"
    # The next process shares a Spark that is there, as one from a notebook does.
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    last = CliRunner().invoke(app, dying.words)
    for number, handler in signals.items():
        signal.signal(number, handler)
    assert last.exit_code == 0, last.output
    assert rows_of(target) == eventful.rows
