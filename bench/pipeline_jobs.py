"""One measurement of the pipeline in a process of its own: `python -m bench.pipeline_jobs JOB`.

A job prints one line of JSON: how long it took once Spark was up, and the most memory that it and
its children held. Data is made beforehand, by `prepare`.
"""

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnirelay.pipeline.session import Size

SHARDS = 20
SAMPLE_S = 0.2


class Bench:
    """`folder` holds the data: journal.db, archive/ and lines/."""

    def __init__(self, folder: Path, cores: int, memory: str) -> None:
        self.folder = folder
        self.cores = cores
        self.memory = memory
        self.spark: Any = None  # Any: pyspark's session, started only by the jobs that need it

    def start_spark(self, *, size: "Size" = "many") -> Any:
        from omnirelay.pipeline.session import SessionOptions, open_session

        config = {"spark.sql.shuffle.partitions": str(4 * self.cores)}
        self.spark = open_session(
            SessionOptions(
                master=f"local[{self.cores}]", memory=self.memory, size=size, config=config
            )
        )
        self.spark.range(100_000).selectExpr("sum(id)").collect()
        return self.spark

    def journal(self) -> str:
        return f"sqlite:///{self.folder / 'journal.db'}"


PROCESSOR: dict[str, float] = {}
"""Processor seconds of the timed work: of Java, and of this process and its other children."""


NOTES: dict[str, float] = {}
"""Whatever else a job has to say of its figure."""


def timed(work: Callable[[], object]) -> float:
    began, before = time.perf_counter(), _processor()
    work()
    PROCESSOR.update({name: spent - before[name] for name, spent in _processor().items()})
    return time.perf_counter() - began


# -- data ---------------------------------------------------------------------------------------


def prepare(bench: Bench, events: int) -> float:
    """The same history three times: as a journal, as segments, as lines."""
    from omnirelay.pipeline.archive import archive_journal
    from omnirelay.pipeline.synth import Plan, synthesize

    def make() -> None:
        plan = Plan(events=events, shards=SHARDS, seed=1, to=bench.journal())
        synthesize(plan)
        archive_journal(bench.journal(), bench.folder / "archive", has_tail=True)
        spark = bench.start_spark()
        rows = spark.read.format("omnirelay").load(bench.journal())
        rows.write.json(str(bench.folder / "lines"))

    return timed(make)


# -- the event table ----------------------------------------------------------------------------


def _event_table(bench: Bench, options: dict[str, str]) -> float:
    from omnirelay.pipeline.delta import DeltaTables
    from omnirelay.pipeline.run import run_pipeline

    spark = bench.start_spark()
    with tempfile.TemporaryDirectory(dir=bench.folder) as target:
        tables = DeltaTables(spark, target)
        return timed(lambda: run_pipeline(spark, options, tables, datasets=()))


def events_from_journal(bench: Bench) -> float:
    return _event_table(bench, {"url": bench.journal()})


def events_from_archive(bench: Bench) -> float:
    archive = str(bench.folder / "archive")
    return _event_table(bench, {"url": bench.journal(), "archive": archive})


def spark_parquet(bench: Bench) -> float:
    """Spark by itself: the same rows read from the segments and written again."""
    spark = bench.start_spark()
    with tempfile.TemporaryDirectory(dir=bench.folder) as target:
        source = spark.read.options(recursiveFileLookup="true", pathGlobFilter="*.parquet").parquet(
            str(bench.folder / "archive")
        )
        return timed(lambda: source.write.parquet(f"{target}/copy"))


def spark_json(bench: Bench) -> float:
    """Spark by itself: the same events as JSON lines, read with their schema, and written."""
    from omnirelay.pipeline.schema import EVENT_DDL

    spark = bench.start_spark()
    with tempfile.TemporaryDirectory(dir=bench.folder) as target:
        source = spark.read.schema(EVENT_DDL).json(str(bench.folder / "lines"))
        return timed(lambda: source.write.parquet(f"{target}/copy"))


# -- tables and proofs --------------------------------------------------------------------------


def tables_and_audit(bench: Bench) -> float:
    """Silver, gold and the audit over an event table that is there."""
    from omnirelay.pipeline.audit import audit
    from omnirelay.pipeline.audit_evidence import evidence_of_tables
    from omnirelay.pipeline.delta import DeltaTables
    from omnirelay.pipeline.run import run_pipeline

    spark = bench.start_spark()
    options = {"url": bench.journal(), "archive": str(bench.folder / "archive")}
    with tempfile.TemporaryDirectory(dir=bench.folder) as target:
        tables = DeltaTables(spark, target)
        run_pipeline(spark, options, tables, datasets=())

        def work() -> None:
            report = run_pipeline(spark, options, tables)
            assert not report.failed, report
            audited = audit(spark, evidence_of_tables(tables))
            assert not audited.findings, audited.findings[:3]

        return timed(work)


def duckdb_tables_and_audit(bench: Bench) -> float:
    """The very same statements in DuckDB, over the same segments, each result kept as Parquet."""
    import duckdb

    from omnirelay.pipeline.checks import CHECKS, in_duckdb, views
    from omnirelay.pipeline.sql import DUCKDB, DUCKDB_MACROS
    from omnirelay.testing.table_texts import full_texts

    with tempfile.TemporaryDirectory(dir=bench.folder) as target:
        db = duckdb.connect(f"{target}/duck.db")
        db.execute(f"SET threads = {bench.cores}")
        db.execute("SET TimeZone = 'UTC'")
        db.execute("SET memory_limit = '6GB'")
        for macro in DUCKDB_MACROS:
            db.execute(macro)
        segments = bench.folder / "archive" / "**" / "*.parquet"
        db.execute(f"CREATE VIEW lease_events AS SELECT * FROM read_parquet('{segments}')")

        def work() -> None:
            for name, text in full_texts(DUCKDB).items():
                db.execute(f"CREATE TABLE {name} AS {text}")
                db.execute(f"COPY {name} TO '{target}/{name}.parquet' (FORMAT parquet)")
            for name, text in views(duckdb=True).items():
                db.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {text}")
            for check in CHECKS:
                assert not db.execute(in_duckdb(check.sql)).fetchall(), check.name

        return timed(work)


def increment(bench: Bench) -> float:
    """The next hundredth of the history after a run over what comes before it, in its process: the
    share of that run. Two more are noted beside it; Spark has their code, so they cost less."""
    from omnirelay.pipeline.delta import DeltaTables
    from omnirelay.pipeline.run import run_pipeline

    spark = bench.start_spark()
    options = {"url": bench.journal()}
    total = spark.read.format("omnirelay").load(bench.journal()).count()
    hundredth = total // 100
    with tempfile.TemporaryDirectory(dir=bench.folder) as target:
        tables = DeltaTables(spark, target)

        def run(limit: int | None) -> float:
            return timed(lambda: run_pipeline(spark, options, tables, limit=limit))

        full = run(total - 3 * hundredth)
        steps = [run(hundredth), run(hundredth), run(None)]
        NOTES.update(full=full, **{f"step{n}": took for n, took in enumerate(steps, start=1)})
        return steps[0] / full


# -- replay -------------------------------------------------------------------------------------


def replay(bench: Bench) -> float:
    """As `omnirelay pipeline replay --archive` does it."""
    from omnirelay.pipeline.replay import Moment, write_files
    from omnirelay.pipeline.replay_events import Place

    spark, place = bench.start_spark(size="few"), Place(archive=str(bench.folder / "archive"))
    with tempfile.TemporaryDirectory(dir=bench.folder) as target:

        def work() -> None:
            write_files(place.foldable(spark), Moment(), Path(target) / "states")

        return timed(work)


def core_fold(bench: Bench) -> float:
    """The core by itself, in one process: envelopes read, checked and folded."""
    import asyncio
    from contextlib import closing

    from omnirelay.journal.format import Chain
    from omnirelay.lease.state import QueueState
    from omnirelay.mesh.recovery import replay as fold
    from omnirelay.pipeline.address import open_file
    from omnirelay.stores.sqlite_look import look

    async def one(shard: str) -> None:
        reader = look(str(bench.folder / "journal.db"), shard).reader
        chain, state = Chain(shard), QueueState()
        while bodies := await reader.read(chain.last, 64):
            for envelope in chain.accept_all(bodies):
                fold(state, envelope)
        await reader.close()

    with closing(open_file(bench.journal())) as journal:
        shards = journal.shards()
    return timed(lambda: [asyncio.run(one(shard)) for shard in shards])


JOBS: dict[str, Callable[[Bench], float]] = {
    function.__name__: function
    for function in (
        events_from_journal,
        events_from_archive,
        spark_parquet,
        spark_json,
        tables_and_audit,
        duckdb_tables_and_audit,
        increment,
        replay,
        core_fold,
    )
}


class Peak(threading.Thread):
    """The most that this process and its children held, looked at every so often."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = 0

    def run(self) -> None:
        while True:
            self.bytes = max(self.bytes, sum(map(_resident, _family(os.getpid()))))
            time.sleep(SAMPLE_S)


def _family(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def _processor() -> dict[str, float]:
    """Those that ended are in their parents' figures."""
    spent = {"java": 0.0, "python": 0.0}
    for pid in _family(os.getpid()):
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        except OSError:
            continue
        ticks = sum(int(field) for field in rest.split()[11:15])
        spent["java" if "(java" in name else "python"] += ticks / os.sysconf("SC_CLK_TCK")
    return spent


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.pipeline_jobs", description=__doc__)
    parser.add_argument("job", choices=["prepare", *JOBS])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="3g")
    arguments = parser.parse_args()
    # One core is one core for the compiler and the collector too.
    here = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, here[: arguments.cores])
    bench = Bench(arguments.folder.absolute(), arguments.cores, arguments.memory)
    peak = Peak()
    peak.start()
    if arguments.job == "prepare":
        shutil.rmtree(arguments.folder, ignore_errors=True)
        arguments.folder.mkdir(parents=True)
        figure = prepare(bench, arguments.events)
    else:
        figure = JOBS[arguments.job](bench)
    said = {"job": arguments.job, "figure": figure, "peakBytes": peak.bytes}
    print(json.dumps(said | {"processorSeconds": PROCESSOR, "notes": NOTES}))


if __name__ == "__main__":
    main()
