"""The same tables and answers from a laptop's Spark, a cluster that loses an executor, and Spark
Connect."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.run import run_pipeline
from omnirelay.pipeline.synth import Plan, synthesize
from omnirelay.testing.spark_servers import Cluster, cluster, connect_server, light
from tests.spark.real_tables import Rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)
EVENTS = 400
COMMANDS = """
import json, sys
from omnirelay.cli.app import main
from omnirelay.model import limits
from omnirelay.pipeline.session import SessionOptions, open_session

limits.ROWS_HERE_MAX = limits.EVENTS_FEW_MAX = 0
session = open_session(SessionOptions(master=sys.argv[1]))
for words in json.loads(sys.argv[2]):
    sys.argv = ["omnirelay", "pipeline", *words]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""
"""Several commands on one session, over so many new events that executors read and write them."""


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('journal')}/leases.db"
    synthesize(Plan(events=EVENTS, shards=2, seed=11, to=url))
    return url


@pytest.fixture(scope="module")
def expected(spark: "SparkSession", journal: str, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    target = tmp_path_factory.mktemp("local")
    report = run_pipeline(spark, {"url": journal}, DeltaTables(spark, str(target)))
    assert not report.failed
    return rows_of(target)


def asked_at(master: str, journal: str, folder: Path) -> dict[str, Any]:
    """Everything that a user asks of a Spark elsewhere. Any: what the commands print as JSON."""
    target = str(folder / "tables")
    commands = {
        "run": ["--from", journal, "--to", target, "--limit", str(EVENTS // 2)],
        "stream": ["--from", journal, "--to", target, "--once"],
        "audit": ["--tables", target],
        "replay": ["--tables", target, "--compare", journal],
        "report": ["--tables", target, "--out", str(folder / "report.html")],
    }
    words = [[name, *given, "--master", master, "--json"] for name, given in commands.items()]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, master, json.dumps(words)],
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
        env={**os.environ, **light(folder)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(zip(commands, said, strict=True))


def check_said(said: dict[str, Any], folder: Path, expected: Rows) -> None:
    assert said["run"]["events"] == EVENTS // 2
    assert said["stream"]["events"] == EVENTS - EVENTS // 2
    assert rows_of(folder / "tables") == expected
    assert (said["audit"]["ok"], said["audit"]["events"]) == (True, EVENTS)
    # The core's own fold of the journal is held against what Spark has rebuilt, field by field.
    assert said["replay"]["differences"] == []
    assert "<svg" in (folder / "report.html").read_text()
    empty = [name for name, rows in said["report"]["pictures"].items() if not rows]
    assert empty == ["findings", "unaudited"]


def test_spark_connect_makes_the_same_tables_and_answers(
    journal: str, expected: Rows, tmp_path: Path
) -> None:
    with connect_server(tmp_path) as url:
        said = asked_at(url, journal, tmp_path)
    check_said(said, tmp_path, expected)


def test_a_cluster_that_loses_an_executor_makes_the_same_tables_and_answers(
    journal: str, expected: Rows, tmp_path: Path
) -> None:
    with cluster(tmp_path, workers=2) as nodes:
        killed: list[int] = []
        ended = threading.Event()
        killer = threading.Thread(target=kill_one, args=(nodes, killed, ended.is_set))
        killer.start()
        try:
            said = asked_at(nodes.url, journal, tmp_path)
        finally:
            ended.set()
            killer.join()
    assert killed, "no executor was seen"
    check_said(said, tmp_path, expected)


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
    """Of all its threads: each of them has those that it started itself."""
    found: list[str] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it is gone by now
            found += thread.read_text().split()
    return found
