"""The pipeline beside Spark, DuckDB and the core at the same work on the same data.

Each figure comes from a process of its own, so that no run profits from what another warmed up. It
takes hours on a busy machine, so every measurement is noted down the moment it is there: begun
again with the same number of events, the bench goes on where it was.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.report import Row, keep

EVENTS = int(os.environ.get("BENCH_PIPELINE_EVENTS", "10000000"))
FOLDER = Path(os.environ.get("BENCH_PIPELINE_FOLDER", ".bench-pipeline"))
"""Data (about 2 kB an event) and what was measured. Removed when everything is measured, unless it
was named."""
LIMIT_S = 4 * 3600
MEMORY_LIMIT_BYTES = 6e9

Measured = tuple[float, float]
"""The figure, and the most bytes that were held."""


def rows(rounds: int) -> list[Row]:
    """One round whatever was asked for."""
    folder = FOLDER / str(EVENTS)
    small, large = folder / "small", folder / "large"
    _prepared(small, EVENTS // 10)
    _prepared(large, EVENTS)
    found: list[Row] = []
    kinds = (_replay_rows(large), _table_rows(small, large), _event_rows(large), _new_rows(large))
    for some in kinds:
        for row in some:
            keep([row])
            found.append(row)
    if "BENCH_PIPELINE_FOLDER" not in os.environ:
        shutil.rmtree(FOLDER)
    return found


def _event_rows(large: Path) -> Iterator[Row]:
    """Events a second, so that more is better."""

    def rate(job: str) -> float:
        return EVENTS / _run(job, large)[0]

    yield Row(
        "pipeline",
        "events_per_s_from_archive",
        rate("events_from_archive"),
        rate("spark_parquet"),
        "Spark, Parquet to Parquet",
        0.6,
    )
    yield Row(
        "pipeline",
        "events_per_s_from_journal",
        rate("events_from_journal"),
        rate("spark_json"),
        "Spark, JSON lines to Parquet",
        0.8,
    )


def _table_rows(small: Path, large: Path) -> Iterator[Row]:
    seconds, peak = _run("tables_and_audit", large)
    duck, _ = _run("duckdb_tables_and_audit", large)
    yield Row("pipeline", "tables_and_audit_s", seconds, duck, "DuckDB", 1 / 3, True)
    yield Row("pipeline", "tables_and_audit_bytes", peak, MEMORY_LIMIT_BYTES, "allowed", 1.0, True)
    few, _ = _run("tables_and_audit", small)
    yield Row("pipeline", "tenfold_events_s", seconds, few, "a tenth of them", 1 / 11, True)
    alone, _ = _run("tables_and_audit", small, cores=1)
    yield Row("pipeline", "two_cores_s", few, alone, "one core", 1.6, True)


def _new_rows(large: Path) -> Iterator[Row]:
    share, _ = _run("increment", large)
    yield Row("pipeline", "increment_of_1_percent", share, 1.0, "the full run", 10.0, True)


def _replay_rows(large: Path) -> Iterator[Row]:
    ours, _ = _run("replay", large)
    core, _ = _run("core_fold", large)
    yield Row("pipeline", "replay_s", ours, core, "the core's fold, one process", 3.0, True)


def _prepared(folder: Path, events: int) -> None:
    done = folder.with_suffix(".prepared")
    if not done.exists():
        _measured("prepare", folder, events=events)
        done.touch()


def _run(job: str, folder: Path, *, cores: int = 2) -> Measured:
    """Once for all runs of the bench over this data."""
    notes = folder.parent / "measured.json"
    known = json.loads(notes.read_text()) if notes.exists() else {}
    name = f"{job} {folder.name} {cores}"
    if name not in known:
        known[name] = _measured(job, folder, cores=cores)
        fresh = notes.with_suffix(".tmp")
        fresh.write_text(json.dumps(known, indent=1))
        fresh.replace(notes)
    figure, peak = known[name]
    return figure, peak


def _measured(job: str, folder: Path, *, events: int = 0, cores: int = 2) -> Measured:
    at = time.strftime("%H:%M:%S", time.gmtime())
    print(f"{at} {job:28} {folder.name:6} {cores} cores", end="", flush=True)
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
    spent = sum(said["processorSeconds"].values())
    print(
        f"  {said['figure']:9.2f}  {spent:7.1f} processor seconds  "
        f"{said['peakBytes'] / 1e9:.1f} GB",
        *(f"{name} {value:.1f}" for name, value in said["notes"].items()),
        flush=True,
    )
    return float(said["figure"]), float(said["peakBytes"])
