"""One run: events from the journals, then each table from where it is to where its inputs are."""

import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from omnirelay.model.errors import OmniRelayError
from omnirelay.model.ports import failpoint, stopwatch
from omnirelay.pipeline.bronze import Intake, Taken
from omnirelay.pipeline.bronze_source import Journals
from omnirelay.pipeline.datasets import (
    EVENTS,
    LEASE_EVENTS,
    NOT_READ,
    Commit,
    Committed,
    Dataset,
    Positions,
    Snapshot,
    Step,
    TableFenced,
    TableMoved,
    Tables,
    all_datasets,
)
from omnirelay.pipeline.delta_rows import moving
from omnirelay.pipeline.hold import Holding, HoldLost, Unheld

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONSUMER = "pipeline"
"""What a pipeline calls itself where a journal keeps its readers' positions."""
FAILURES = (OmniRelayError, PySparkException, Py4JError, DeltaError, pa.ArrowException, OSError)
"""What may stop one table without stopping the others."""
OVER = (HoldLost, TableFenced)
"""What ends the run: another pipeline works here now."""

LANES = 3
"""How many tables are worked on at a time."""

_RAISED = re.compile(r"[A-Za-z_][\w.]*: \S")

Outcome = Literal["advanced", "unchanged", "waiting", "failed"]


@dataclass(frozen=True)
class TableReport:
    table: str
    layer: str
    outcome: Outcome
    rows: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    warned: dict[str, int] = field(default_factory=dict)
    """Expectation to rows written that do not meet it."""
    why: str | None = None
    """Of `waiting`: for which table. Of `failed`: the error."""


@dataclass(frozen=True)
class RunReport:
    events: int
    """New in the event table."""
    quarantined: int
    """Damaged envelopes, and stretches that are missing."""
    tables: tuple[TableReport, ...]
    seconds: float

    @property
    def failed(self) -> tuple[TableReport, ...]:
        return tuple(table for table in self.tables if table.outcome in ("failed", "waiting"))


Note = Callable[[TableReport], None]


def _quiet(_: TableReport) -> None:
    return None


@dataclass(frozen=True)
class Pipeline:
    """The same steps for a batch run and for a stream's micro-batch."""

    session: "SparkSession"
    tables: Tables
    intake: Intake
    hold: Holding
    datasets: tuple[Dataset, ...]
    consumer: str | None = None
    note: Note = _quiet
    lanes: int = LANES

    def run(self, take: Callable[[Intake], Taken]) -> RunReport:
        """Raises what stops the event table, and OVER; anything else is in the report."""
        begun = stopwatch()
        self.hold.check()
        self._migrate(LEASE_EVENTS)
        taken = take(self.intake)
        first = TableReport(
            EVENTS,
            LEASE_EVENTS.layer,
            "advanced" if taken.rows else "unchanged",
            rows=taken.rows,
            positions=self.tables.snapshot(LEASE_EVENTS).positions,
            seconds=stopwatch() - begun,
        )
        self.note(first)
        reports = (first, *self._all_reported())
        self._tell(first)
        return RunReport(taken.rows, taken.quarantined, reports, stopwatch() - begun)

    def _all_reported(self) -> tuple[TableReport, ...]:
        """Each table as soon as those it is made from are there, `lanes` at a time: while Spark
        plans one, or waits for the last task of another, a third keeps the cores busy."""
        made: dict[str, Future[TableReport]] = {}

        def make(dataset: Dataset) -> TableReport:
            # Whoever waits here stands behind whom it waits for, so somebody always can go on.
            wait([made[name] for name in dataset.inputs if name in made])
            failed = next(
                (one for one in list(made.values()) if one.done() and one.exception()), None
            )
            return self._reported(dataset) if failed is None else failed.result()

        with ThreadPoolExecutor(self.lanes, thread_name_prefix="table") as pool:
            for dataset in self.datasets:
                made[dataset.name] = pool.submit(make, dataset)
            for done in as_completed(list(made.values())):
                if done.exception() is None:
                    self.note(done.result())
        return tuple(one.result() for one in made.values())

    def _tell(self, events: TableReport) -> None:
        """The journal may forget what is in the event table: all else is made from that."""
        failpoint("pipeline.before_position")
        if self.consumer is not None and events.positions:
            self.intake.journals.hold(self.consumer, events.positions)
        failpoint("pipeline.after_position")

    def _migrate(self, dataset: Dataset) -> None:
        self.tables.migrate(dataset, self.hold.fence)

    def _reported(self, dataset: Dataset) -> TableReport:
        begun = stopwatch()
        try:
            report = self._advanced(dataset)
        except OVER:
            raise
        except FAILURES as error:
            report = TableReport(dataset.name, dataset.layer, "failed", why=in_one_line(error))
        return replace(report, seconds=stopwatch() - begun)

    def _advanced(self, dataset: Dataset) -> TableReport:
        self._migrate(dataset)
        base = self.tables.snapshot(dataset)
        target, waits_for = self._target(dataset)
        if waits_for is not None:
            return _of(dataset, "waiting", base.positions, why=waits_for)
        if not moving(base.positions, target):
            return _of(dataset, "unchanged", base.positions)
        try:
            done = self._step(dataset, base, target)
        except TableMoved:
            # A pipeline whose lease is over got its last commit in before ours: go on from there.
            done = self._step(dataset, self.tables.snapshot(dataset), target)
        at = self.tables.snapshot(dataset).positions
        return _of(dataset, "advanced", at, rows=done.rows, warned=done.warned)

    def _target(self, dataset: Dataset) -> tuple[Positions, str | None]:
        """Where the inputs are, all of them. If one has stayed behind, a row of another may tell
        of events that the first does not know yet; then this table waits."""
        events = self.tables.snapshot(LEASE_EVENTS).positions
        named = {dataset.name: dataset for dataset in self.datasets}
        made = [named[name] for name in dataset.inputs if name != EVENTS]
        behind = [one for one in made if self.tables.snapshot(one).positions != events]
        return events, f"{behind[0].name} has not come as far" if behind else None

    def _step(self, dataset: Dataset, base: Snapshot, target: Positions) -> Committed:
        inputs = self._inputs(dataset, target)
        step = Step(
            session=self.session,
            new=self.tables.read_events(base, target),
            old=self._old(dataset) if base.positions else None,
            read=self.tables.read,
            recent=lambda name: self.tables.read_recent(name, base),
            moves=moving(base.positions, target),
            is_first=not base.positions,
            types=self.tables.types_of_events(base),
        )
        assert dataset.advance is not None, f"{dataset.name} is not made by steps"
        change = dataset.advance(step)
        self.hold.check()
        moves = {shard: high for shard, (_, high) in step.moves.items()}
        commit = Commit(base, moves, fence=self.hold.fence, inputs=inputs)
        return self.tables.commit(dataset, change, commit)

    def _inputs(self, dataset: Dataset, target: Positions) -> dict[str, int]:
        """The versions that were read to their end. NOT_READ for one that has gone on since the
        target, because another pipeline works here now: an older note must not stand, or what came
        between would count as new once more."""
        named = {one.name: one for one in self.datasets} | {EVENTS: LEASE_EVENTS}
        found = {name: self.tables.snapshot(named[name]) for name in (EVENTS, *dataset.inputs)}
        return {
            name: one.version if one.positions == target else NOT_READ
            for name, one in found.items()
        }

    def _old(self, dataset: Dataset) -> "DataFrame | None":
        if dataset.kind == "append":
            return None
        if dataset.kind == "carry":
            return self.tables.read_open(dataset.name)
        return self.tables.read(dataset.name)


def _of(
    dataset: Dataset,
    outcome: Outcome,
    positions: Positions,
    *,
    rows: int = 0,
    warned: dict[str, int] | None = None,
    why: str | None = None,
) -> TableReport:
    at = dict(positions)
    return TableReport(dataset.name, dataset.layer, outcome, rows, at, 0.0, warned or {}, why)


def in_one_line(error: BaseException) -> str:
    """What Spark says goes on for pages; its first line is what happened, or, if it only passes on
    what happened in Python, the last line of that."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if "Traceback (most recent call last)" not in lines[0]:
        return lines[0]
    said = [line for line in lines[1:] if _RAISED.match(line)]
    return said[-1] if said else lines[0]


def run_pipeline(
    session: "SparkSession",
    options: dict[str, str],
    tables: Tables,
    *,
    hold: Holding | None = None,
    datasets: Iterable[Dataset] | None = None,
    consumer: str | None = None,
    limit: int | None = None,
    note: Note = _quiet,
    lanes: int = LANES,
) -> RunReport:
    """Read what is new of the journals that `options` (of `format("omnirelay")`) name and bring
    every table up to it. Nothing new: nothing is written."""
    pipeline = open_pipeline(
        session,
        options,
        tables,
        hold=hold,
        datasets=datasets,
        consumer=consumer,
        note=note,
        lanes=lanes,
    )
    return pipeline.run(lambda intake: intake.take(limit))


def open_pipeline(
    session: "SparkSession",
    options: dict[str, str],
    tables: Tables,
    *,
    hold: Holding | None = None,
    datasets: Iterable[Dataset] | None = None,
    consumer: str | None = None,
    note: Note = _quiet,
    lanes: int = LANES,
) -> Pipeline:
    held = hold or Unheld()
    return Pipeline(
        session=session,
        tables=tables,
        intake=Intake(tables, Journals(session, options), held),
        hold=held,
        datasets=all_datasets() if datasets is None else tuple(datasets),
        consumer=consumer,
        note=note,
        lanes=lanes,
    )
