"""The pipeline beside Spark, DuckDB and the core at the same work on the same data.

Each figure comes from a process of its own, so that no run profits from what another warmed up.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import Row

EVENTS = int(os.environ.get("BENCH_PIPELINE_EVENTS", "10000000"))
LIMIT_S = 3600
MEMORY_LIMIT_BYTES = 6e9


def rows(rounds: int) -> list[Row]:
    """One round whatever was asked for: it takes most of an hour."""
    with tempfile.TemporaryDirectory(prefix="omnirelay-bench-") as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        _run("prepare", small, events=EVENTS // 10)
        _run("prepare", large, events=EVENTS)
        return [*_event_rows(large), *_table_rows(small, large), *_replay_rows(large)]


def _event_rows(large: Path) -> list[Row]:
    """Events a second, so that more is better."""
    figures = {
        job: EVENTS / _run(job, large)[0]
        for job in ("events_from_archive", "spark_parquet", "events_from_journal", "spark_json")
    }
    return [
        Row(
            "pipeline",
            "events_per_s_from_archive",
            figures["events_from_archive"],
            figures["spark_parquet"],
            "Spark, Parquet to Parquet",
            0.6,
        ),
        Row(
            "pipeline",
            "events_per_s_from_journal",
            figures["events_from_journal"],
            figures["spark_json"],
            "Spark, JSON lines to Parquet",
            0.8,
        ),
    ]


def _table_rows(small: Path, large: Path) -> list[Row]:
    seconds, peak = _run("tables_and_audit", large)
    duck, _ = _run("duckdb_tables_and_audit", large)
    few, _ = _run("tables_and_audit", small)
    alone, _ = _run("tables_and_audit", small, cores=1)
    share, _ = _run("increment", small)
    return [
        Row("pipeline", "tables_and_audit_s", seconds, duck, "DuckDB", 1 / 3, True),
        Row("pipeline", "tables_and_audit_bytes", peak, MEMORY_LIMIT_BYTES, "allowed", 1.0, True),
        Row("pipeline", "tenfold_events_s", seconds, few, "a tenth of them", 1 / 11, True),
        Row("pipeline", "two_cores_s", few, alone, "one core", 1.6, True),
        Row("pipeline", "increment_of_1_percent", share, 1.0, "the full run", 10.0, True),
    ]


def _replay_rows(large: Path) -> list[Row]:
    ours, _ = _run("replay", large)
    core, _ = _run("core_fold", large)
    return [Row("pipeline", "replay_s", ours, core, "the core's fold, one process", 1 / 3, True)]


def _run(job: str, folder: Path, *, events: int = 0, cores: int = 2) -> tuple[float, float]:
    command = [sys.executable, "-m", "bench.pipeline_jobs", job, "--folder", str(folder)]
    done = subprocess.run(
        [*command, "--events", str(events), "--cores", str(cores)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{job} failed:\n{done.stderr[-3000:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    print(f"{job:28} {folder.name:6} {cores} cores  {said['figure']:9.2f}", flush=True)
    return float(said["figure"]), float(said["peakBytes"])
