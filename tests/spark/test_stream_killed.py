"""Driver, executor and node die in the same moment: nothing is lost and nothing is there twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnirelay
from omnirelay import Payload
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.hold import Hold
from omnirelay.pipeline.run import open_pipeline
from omnirelay.pipeline.stream import CHECKPOINT, Stream, StreamOptions
from omnirelay.testing.spark_servers import light
from tests.cli.nodes import running
from tests.spark.test_crash_matrix import DATASETS, content_of, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local-cluster[1,1,1024]"
"""Its executor is a process of its own."""


def members(group: int) -> list[str]:
    """The commands of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == group:
                found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


def goes_on(spark: "SparkSession", journal: Path, target: Path, hold: Hold) -> None:
    """As the workload did, up to where the journal is now."""
    pipeline = open_pipeline(
        spark,
        {"url": f"sqlite:///{journal}"},
        DeltaTables(spark, str(target)),
        hold=hold,
        datasets=DATASETS,
    )
    options = StreamOptions(f"{target}/{CHECKPOINT}", is_once=True)
    Stream(pipeline, options, lambda _: None).run()


@pytest.mark.timeout(300)
def test_driver_executor_and_node_killed_at_once_lose_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    journal, target = tmp_path / "leases.db", tmp_path / "lake"
    command = [sys.executable, "-m", "tests.spark.crash_workload", str(journal), str(target)]
    with (
        running(tmp_path, "--journal", f"sqlite:///{journal}") as node,
        omnirelay.connect_sync(node.urls["stream"]) as relay,
    ):
        relay.enqueue_many([Payload("table", f"t-{n}") for n in range(20)])
        stream = subprocess.Popen(
            [*command, MASTER],
            env={**os.environ, **light(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert stream.stdout is not None
            assert int(stream.stdout.readline()) == 12, "one micro-batch is in, more are to come"
            relay.enqueue_many([Payload("table", f"u-{n}") for n in range(20)])
            with relay.lease(wait=5):
                pass
            assert any("CoarseGrainedExecutorBackend" in one for one in members(stream.pid))
        finally:
            node.process.kill()
            os.killpg(stream.pid, signal.SIGKILL)
            stream.communicate()
    # The node comes back and goes on; so does the pipeline, which nobody told where it was.
    with running(tmp_path, "--journal", f"sqlite:///{journal}") as again:
        assert again("enqueue", "table", "after").code == 0
        with Hold(str(target)) as hold:
            goes_on(spark, journal, target, hold)
    run(spark, journal, tmp_path / "whole")
    whole = content_of(tmp_path / "whole")
    assert len(whole["lease_events"]) >= 44
    assert content_of(target) == whole
