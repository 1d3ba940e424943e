"""The one way to a Spark session: local by default, a cluster or Spark Connect by address."""

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from omnirelay.pipeline.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "omnirelay-pipeline"
_LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    master: str = "local[*]"
    """`local[N]`, `spark://host:port`, or `sc://host:port` for Spark Connect."""
    memory: str = "2g"
    has_ui: bool = False
    has_progress: bool | None = None
    """None: where somebody sees it, on a terminal."""
    config: dict[str, str] = field(default_factory=dict)
    """Whatever else Spark knows; it wins over ours."""


def open_session(options: SessionOptions | None = None) -> "SparkSession":
    """The session that is there, or a new one. The caller stops what it opened."""
    options = options or SessionOptions()
    if options.master.startswith("sc://"):
        return _prepared(_connected(options))
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return _prepared(active)
    os.environ["JAVA_HOME"] = java_home()
    if _is_here(options.master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(options.master).appName(APP)
    for name, value in {**_ours(options), **options.config}.items():
        builder = builder.config(name, value)
    return _prepared(builder.getOrCreate())


def _connected(options: SessionOptions) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(options.master).appName(APP)
    for name, value in {**_of_a_query(), **options.config}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _prepared(session: "SparkSession") -> "SparkSession":
    from omnirelay.pipeline.source import OmniRelaySource

    session.dataSource.register(OmniRelaySource)
    # A session that was not made here may not have it, and Spark refuses a source that would look
    # at conditions without it.
    session.conf.set(_PUSHDOWN, "true")
    return session


def _is_here(master: str) -> bool:
    """Driver and executors on this machine; elsewhere executors must find the driver by a name."""
    if master.startswith("local"):
        return True
    return urlsplit(master).hostname in ("localhost", "127.0.0.1", "::1")


def _of_a_query() -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        _PUSHDOWN: "true",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.sql.adaptive.enabled": "true",
        # What it would infer from our long cases takes longer to plan than it saves.
        "spark.sql.constraintPropagation.enabled": "false",
    }


def _of_this_machine(master: str) -> dict[str, str]:
    """Tables of a laptop do not want 200 tasks a shuffle."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        return {}
    cores = os.cpu_count() or 1 if local[1] in (None, "*") else int(local[1])
    return {"spark.sql.shuffle.partitions": str(max(4, 4 * cores))}


def _ours(options: SessionOptions) -> dict[str, str]:
    here = Path(__file__).resolve()
    has_progress = options.has_progress
    if has_progress is None:
        has_progress = sys.stderr.isatty()
    quiet = f"-Dlog4j2.configurationFile={here.with_name('log4j2.properties').as_uri()}"
    return {
        **_of_a_query(),
        **_of_this_machine(options.master),
        **({"spark.driver.host": "127.0.0.1"} if _is_here(options.master) else {}),
        "spark.driver.memory": options.memory,
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Xshare:auto {quiet}",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.executorEnv.PYTHONPATH": str(here.parents[2]),
        "spark.ui.enabled": str(options.has_ui).lower(),
        "spark.ui.showConsoleProgress": str(has_progress).lower(),
    }
