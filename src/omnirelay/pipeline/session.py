"""The one way to a Spark session: local by default, a cluster or Spark Connect by address."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from omnirelay.pipeline.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "omnirelay-pipeline"


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    master: str = "local[*]"
    """`local[N]`, `spark://host:port`, or `sc://host:port` for Spark Connect."""
    memory: str = "2g"
    has_ui: bool = False
    has_progress: bool = False
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
    return session


def _of_a_query() -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        # Pictures and tables of a laptop do not want 200 tasks a shuffle; a cluster merges them.
        "spark.sql.adaptive.enabled": "true",
    }


def _ours(options: SessionOptions) -> dict[str, str]:
    here = str(Path(__file__).resolve().parents[2])
    return {
        **_of_a_query(),
        "spark.driver.memory": options.memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -Xshare:auto",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.executorEnv.PYTHONPATH": here,
        "spark.log.level": "ERROR",
        "spark.ui.enabled": str(options.has_ui).lower(),
        "spark.ui.showConsoleProgress": str(options.has_progress).lower(),
    }
