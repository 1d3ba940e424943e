"""The same tables from a laptop's Spark, a cluster that loses an executor, and Spark Connect."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from omnirelay.pipeline.datasets import all_datasets
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.run import run_pipeline
from omnirelay.pipeline.synth import Plan, synthesize
from omnirelay.testing.spark_servers import Cluster, cluster, connect_server, light

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)
EVENTS = 400
READ_BY_EXECUTORS = """
from omnirelay.cli.app import main
from omnirelay.model import limits

limits.ROWS_HERE_MAX = 0
main()
"""
Tables = dict[str, list[str]]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('journal')}/leases.db"
    synthesize(Plan(events=EVENTS, shards=2, seed=11, to=url))
    return url


@pytest.fixture(scope="module")
def expected(
    spark: "SparkSession", journal: str, tmp_path_factory: pytest.TempPathFactory
) -> Tables:
    target = tmp_path_factory.mktemp("local")
    report = run_pipeline(spark, {"url": journal}, DeltaTables(spark, str(target)))
    assert not report.failed
    return rows_of(target)


def rows_of(target: Path) -> Tables:
    """Every table, each row as text, in order: read without Spark, as somebody else would."""
    found: Tables = {}
    for dataset in all_datasets():
        table = DeltaTable(str(target / dataset.layer / dataset.name)).to_pyarrow_table()
        named = table.select(sorted(table.column_names)).to_pylist()
        found[dataset.name] = sorted(json.dumps(row, default=str) for row in named)
    return found


def run_at(master: str, journal: str, target: Path) -> dict[str, Any]:
    """As a user does, with so many new events that executors read them. Any: what the command
    prints as JSON."""
    command = [sys.executable, "-c", READ_BY_EXECUTORS, "pipeline", "run", "--json"]
    places = ["--from", journal, "--to", str(target), "--master", master]
    done = subprocess.run(
        [*command, *places],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **light(target.parent)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_spark_connect_makes_the_same_tables(
    journal: str, expected: Tables, tmp_path: Path
) -> None:
    with connect_server(tmp_path) as url:
        said = run_at(url, journal, tmp_path / "tables")
    assert said["events"] == EVENTS
    assert rows_of(tmp_path / "tables") == expected


def test_a_cluster_that_loses_an_executor_makes_the_same_tables(
    journal: str, expected: Tables, tmp_path: Path
) -> None:
    with cluster(tmp_path, workers=2) as nodes:
        killed: list[int] = []
        ended = threading.Event()
        killer = threading.Thread(target=kill_one, args=(nodes, killed, ended.is_set))
        killer.start()
        try:
            said = run_at(nodes.url, journal, tmp_path / "tables")
        finally:
            ended.set()
            killer.join()
    assert killed, "no executor was seen"
    assert said["events"] == EVENTS
    assert rows_of(tmp_path / "tables") == expected


def kill_one(nodes: Cluster, killed: list[int], is_over: Callable[[], bool]) -> None:
    """The first executor that is at work: it has children of its own by then, Python's."""
    while not is_over() and not killed:
        for pid in nodes.executors():
            if _children(pid):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return
        threading.Event().wait(0.2)


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
