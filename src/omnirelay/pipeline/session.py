"""The one way to a Spark session: local by default, a cluster or Spark Connect by address."""

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from omnirelay.model import limits
from omnirelay.pipeline.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "omnirelay-pipeline"
Size = Literal["few", "some", "many"]
"""`few`: queries are interpreted, not compiled. `some`: Java compiles them, but does not go on to
improve what it compiled."""
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
    size: Size = "many"
    """Of the work, in rows: a short one wants what is ready at once, not what is fast when warm."""
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
        # By default Spark sorts, instead of hashing, what is put into more than 128 lists.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "10000",
        # A second hash table in front of the first, written out for every query: it gains our
        # aggregates nothing, and Java compiles it each time.
        "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    }


def _of_this_machine(master: str) -> dict[str, str]:
    """Tables of a laptop do not want 200 tasks a shuffle."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        return {}
    cores = os.cpu_count() or 1 if local[1] in (None, "*") else int(local[1])
    return {"spark.sql.shuffle.partitions": str(max(4, 4 * cores))}


FEW_ROWS = {
    # Compiling a query takes longer than interpreting it over so few rows, and so does looking at
    # the outcome of one stage before planning the next.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # Several tables are worked on at a time, so a second task would only be one more to prepare.
    "spark.sql.shuffle.partitions": "1",
    # What is all in one task is joined there. To send the smaller side to it would be another job.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.join.preferSortMergeJoin": "false",
}
MANY_ROWS = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "10m",
    "spark.sql.optimizer.disableHints": "false",
    "spark.sql.join.preferSortMergeJoin": "true",
}
"""The same settings as Spark has them: a session may be told at any time."""
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Half the processor time of a short life goes into compiling what will not run long enough. Such
a Java has room for a fifth of the code unless told: two runs fill that, and then it interprets."""
COLLECTOR = "-XX:+UseParallelGC"
"""Java's own choice pauses less, which nobody waits for here (docs/adr/0018)."""
_ONE_TASK = ("spark.sql.shuffle.partitions", "spark.sql.codegen.factoryMode")
_NAMES_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")


def is_in_one_task(session: "SparkSession") -> bool:
    """A session for few rows: whatever is shuffled ends in one task. If rows begin in one, nothing
    needs to be shuffled at all. Somebody's own may have one task a shuffle and many rows; it would
    hardly go without compiled queries too."""
    return all(session.conf.get(name, None) == FEW_ROWS[name] for name in _ONE_TASK)


def size_of(*, new: int, total: int) -> Size:
    """Of a run over so many new events, in journals of so many."""
    if total <= limits.EVENTS_FEW_MAX:
        return "few"
    return "some" if new <= limits.ROWS_HERE_MAX else "many"


def _collector(master: str) -> str:
    """Not where somebody has named one: Java refuses to start with two. Nor for a cluster's driver,
    which may be large and must not be long silent."""
    said = " ".join(os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))
    is_named = _NAMES_COLLECTOR.search(said) is not None
    return COLLECTOR if _LOCAL.fullmatch(master) and not is_named else ""


def _ours(options: SessionOptions) -> dict[str, str]:
    here = Path(__file__).resolve()
    has_progress = options.has_progress
    if has_progress is None:
        has_progress = sys.stderr.isatty()
    light = "" if options.size == "many" else LIGHT_JAVA
    java = f"-Duser.timezone=UTC -Xshare:auto {_collector(options.master)} {light}"
    quiet = f"-Dlog4j2.configurationFile={here.with_name('log4j2.properties').as_uri()}"
    return {
        **_of_a_query(),
        **_of_this_machine(options.master),
        **(FEW_ROWS if options.size == "few" else {}),
        **({"spark.driver.host": "127.0.0.1"} if _is_here(options.master) else {}),
        # A run of all tables generates about 400 classes. Spark keeps 100, so that the next one, a
        # stream's next batch included, would find none of its own and compile all of them again.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Else the same code at another place of a plan is another class.
        "spark.sql.codegen.useIdInClassName": "false",
        "spark.driver.memory": options.memory,
        "spark.driver.extraJavaOptions": f"{java} {quiet}",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.executorEnv.PYTHONPATH": str(here.parents[2]),
        "spark.ui.enabled": str(options.has_ui).lower(),
        # A plan is written out for the UI at its start and whenever it changes on the way.
        "spark.sql.ui.explainMode": "formatted" if options.has_ui else "simple",
        "spark.ui.showConsoleProgress": str(has_progress).lower(),
    }
