"""Journals of any size with the traffic of a busy mesh, the same again for the same seed.

Shards are made apart from each other: in processes of this machine, or as tasks of a Spark session
whose executors reach the target.
"""

import multiprocessing
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.planting import KINDS
from omnirelay.pipeline.synth_parts import Made, Task, take_over, write_mark, write_part
from omnirelay.pipeline.synth_traffic import SMALLEST_EVENTS, Share
from omnirelay.stores.registry import sqlite_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Run = Callable[[Sequence[Task]], Iterable[Made]]
_SPARE_EVENTS = 50_000
"""Below this a process costs more than it saves."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    events: int
    to: str
    """`sqlite:///file`, a file that ends in `.jsonl`, or the folder of an archive."""
    shards: int = 4
    seed: int = 0
    plants: tuple[str, ...] = ()
    """Kinds of damage, each in a shard of its own, the last shards first."""

    @property
    def form(self) -> str:
        if self.to.startswith("sqlite:"):
            return "sqlite"
        return "lines" if self.to.endswith(".jsonl") else "archive"

    @property
    def path(self) -> str:
        return sqlite_path(self.to) if self.form == "sqlite" else self.to


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    to: str
    events: int
    shards: list[Made]


def synthesize(plan: Plan, run: Run | None = None) -> Outcome:
    """Raises InvalidOption if the plan cannot work or something is at the target already."""
    check(plan)
    tasks = _tasks(plan)
    run = run or in_processes(processes_for(plan))
    made = sorted(run(tasks), key=lambda one: one.shard)
    _finish(plan, tasks, made)
    return Outcome(plan.to, sum(one.events for one in made), made)


def check(plan: Plan) -> None:
    if plan.shards < 1:
        raise InvalidOption(f"shards is {plan.shards}, must be 1 or more")
    if plan.events < plan.shards * SMALLEST_EVENTS:
        least = plan.shards * SMALLEST_EVENTS
        raise InvalidOption(
            f"events is {plan.events}: {plan.shards} shards need {least} at the least"
        )
    unknown = [kind for kind in plan.plants if kind not in KINDS]
    if unknown:
        raise InvalidOption(f"plant is {unknown[0]!r}, must be one of {', '.join(sorted(KINDS))}")
    if len(plan.plants) > plan.shards:
        raise InvalidOption(
            f"{len(plan.plants)} kinds of damage need as many shards, there are {plan.shards}"
        )
    unfit = [kind for kind in plan.plants if plan.form not in KINDS[kind].forms]
    if unfit:
        forms = ", ".join(KINDS[unfit[0]].forms)
        raise InvalidOption(f"{unfit[0]} cannot be planted here ({plan.form}), only in: {forms}")
    _check_target(plan)


def _check_target(plan: Plan) -> None:
    path = Path(plan.path)
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise InvalidOption(f"{path} exists already: name a new one, nothing is written over")
    if plan.form == "archive" and "://" in plan.to:
        raise InvalidOption(f"{plan.to!r}: use sqlite:///file, a .jsonl file or a folder")
    if plan.form != "archive" and path.is_dir():
        raise InvalidOption(f"{path} is a folder: name a file in it")
    if not path.absolute().parent.is_dir():
        raise InvalidOption(f"the folder {path.absolute().parent} does not exist: create it first")


def shares(plan: Plan) -> list[Share]:
    return [Share(number, plan.seed, plan.events, plan.shards) for number in range(plan.shards)]


def _tasks(plan: Plan) -> list[Task]:
    first = plan.shards - len(plan.plants)
    kinds = [None] * first + list(plan.plants)
    return [
        Task(share, plan.form, _part(plan, share), kind)
        for share, kind in zip(shares(plan), kinds, strict=True)
    ]


def _part(plan: Plan, share: Share) -> str:
    return plan.path if plan.form == "archive" else f"{plan.path}.{share.number}.part"


def _finish(plan: Plan, tasks: Sequence[Task], made: Sequence[Made]) -> None:
    if plan.form == "archive":
        return
    if plan.form == "lines":
        with Path(plan.path).open("wb") as whole:
            for task in tasks:
                with Path(task.path).open("rb") as part:
                    shutil.copyfileobj(part, whole)
    else:
        for task, one in zip(tasks, made, strict=True):
            take_over(plan.path, task.path)
            write_mark(plan.path, one)
    for task in tasks:
        for name in (task.path, f"{task.path}-wal", f"{task.path}-shm"):
            Path(name).unlink(missing_ok=True)


# -- where the work is done -------------------------------------------------------------------


def processes_for(plan: Plan) -> int:
    return max(1, min(multiprocessing.cpu_count(), plan.shards, plan.events // _SPARE_EVENTS))


def in_processes(count: int) -> Run:
    def run(tasks: Sequence[Task]) -> Iterable[Made]:
        if count == 1:
            return [write_part(task) for task in tasks]
        # A process that is born with this one's threads may inherit a lock that nobody will open.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(count, mp_context=context) as pool:
            return list(pool.map(write_part, tasks))

    return run


def on_spark(session: "SparkSession") -> Run:
    def run(tasks: Sequence[Task]) -> Iterable[Made]:
        rows = [(msgspec.json.encode(task),) for task in tasks]
        spread = session.createDataFrame(rows, "task binary").repartition(len(rows))
        done = spread.mapInArrow(_write_parts, "made binary").collect()
        return [msgspec.json.decode(row.made, type=Made) for row in done]

    return run


def _write_parts(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    for batch in batches:
        tasks = [msgspec.json.decode(row, type=Task) for row in batch.column(0).to_pylist()]
        made = [msgspec.json.encode(write_part(task)) for task in tasks]
        yield pa.RecordBatch.from_pydict({"made": pa.array(made, pa.binary())})
