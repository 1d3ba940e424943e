"""Spark as its users run it: a standalone cluster and a Connect server, on loopback, by processes
of ours that are ended by pid."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from omnirelay.cli.free_ports import LOOPBACK, free_port
from omnirelay.pipeline.java import java_home
from omnirelay.pipeline.session import FEW_ROWS, LIGHT_JAVA

START_S = 90.0


def light(folder: Path) -> dict[str, str]:
    """The environment of a Spark that starts fast and will see few rows, in whatever process."""
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    lines = (f"{name} {value}\n" for name, value in FEW_ROWS.items())
    (conf / "spark-defaults.conf").write_text("".join(lines))
    return {"JAVA_TOOL_OPTIONS": LIGHT_JAVA, "SPARK_CONF_DIR": str(conf)}


@dataclass(frozen=True)
class Cluster:
    url: str
    """`spark://host:port`."""
    workers: tuple[int, ...]
    """Their pids."""

    def executors(self) -> list[int]:
        """Pids of the executors that the workers have started and that live."""
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _parent(entry) in self.workers
        ]


@contextmanager
def cluster(folder: Path, *, workers: int = 2) -> Iterator[Cluster]:
    """A master and workers of one core each, ready for work."""
    port, page = free_port(), free_port()
    url = f"spark://{LOOPBACK}:{port}"
    master = [
        "org.apache.spark.deploy.master.Master",
        *("--host", LOOPBACK, "--port", str(port), "--webui-port", str(page)),
    ]
    worker = [
        "org.apache.spark.deploy.worker.Worker",
        *("--host", LOOPBACK, "--cores", "1", "--memory", "1g", "--webui-port", "0"),
        *("--work-dir", str(folder / "work"), url),
    ]
    with ExitStack() as stack:
        stack.enter_context(_running("spark-class", master, folder / "master.log"))
        _until(lambda: _alive(page) is not None, "the Spark master", folder)
        pids = [
            stack.enter_context(_running("spark-class", worker, folder / f"worker{number}.log"))
            for number in range(workers)
        ]
        _until(lambda: _alive(page) == workers, f"{workers} Spark workers", folder)
        yield Cluster(url, tuple(pids))


@contextmanager
def connect_server(folder: Path, *, cores: int = 2) -> Iterator[str]:
    """A Spark Connect server; yields its `sc://host:port`."""
    port = free_port()
    command = [
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", f"local[{cores}]"),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", f"spark.connect.grpc.binding.address={LOOPBACK}"),
        *("--conf", f"spark.driver.host={LOOPBACK}", "--conf", "spark.ui.enabled=false"),
    ]
    with _running("spark-submit", command, folder / "connect.log"):
        _until(lambda: _is_open(port), "the Spark Connect server", folder)
        yield f"sc://{LOOPBACK}:{port}"


@contextmanager
def _running(script: str, arguments: list[str], log: Path) -> Iterator[int]:
    from pyspark.find_spark_home import _find_spark_home

    home = _find_spark_home()
    environment = {
        **os.environ,
        **light(log.parent),
        "JAVA_HOME": java_home(),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_HOME": home,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [f"{home}/bin/{script}", *arguments],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process.pid
        finally:
            # The whole group: executors are children of their worker.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _alive(page: int) -> int | None:
    """How many workers the master knows of; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{page}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):
        return None


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _until(is_true: Callable[[], bool], what: str, folder: Path) -> None:
    until = time.monotonic() + START_S
    while not is_true():
        if time.monotonic() > until:
            logs = "\n".join(log.read_text()[-2000:] for log in sorted(folder.glob("*.log")))
            raise RuntimeError(f"{what} did not come up in {START_S:g} s:\n{logs}")
        time.sleep(0.2)


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
