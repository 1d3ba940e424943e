"""The way to a session. Most of it without one: starting a JVM takes longer than all of these."""

import os
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from omnirelay.model import limits
from omnirelay.pipeline import session
from omnirelay.pipeline.session import SessionOptions, open_session

QUIET = """
from omnirelay.pipeline.session import SessionOptions, open_session
spark = open_session(SessionOptions(master="local[1]", memory="512m", size="few"))
assert spark.range(3).count() == 3
spark.stop()
"""


def test_a_session_that_is_there_is_the_session(spark: SparkSession) -> None:
    assert open_session(SessionOptions(master="local[7]")) is spark
    assert spark.sparkContext.master == "local[2]"


def test_times_are_utc_and_conditions_are_handed_down(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_a_java_for_few_rows_has_room_for_all_that_it_compiles(spark: SparkSession) -> None:
    assert spark._jvm is not None
    pools = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    rooms = [pool.getUsage().getMax() for pool in pools if pool.getName().startswith("Code")]
    assert sum(rooms) >= 240 << 20


def test_a_local_session_stays_on_this_machine() -> None:
    assert session._ours(SessionOptions())["spark.driver.host"] == "127.0.0.1"
    assert session._ours(SessionOptions(master="spark://127.0.0.1:7077"))["spark.driver.host"]
    assert "spark.driver.host" not in session._ours(SessionOptions(master="spark://far:7077"))


def test_the_ui_is_there_on_request() -> None:
    assert session._ours(SessionOptions())["spark.ui.enabled"] == "false"
    assert session._ours(SessionOptions(has_ui=True))["spark.ui.enabled"] == "true"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_where_somebody_sees_it(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    shown = session._ours(SessionOptions())["spark.ui.showConsoleProgress"]
    assert shown == str(is_terminal).lower()
    forced = SessionOptions(has_progress=not is_terminal)
    assert session._ours(forced)["spark.ui.showConsoleProgress"] == str(not is_terminal).lower()


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_a_collector_is_named_where_nobody_named_one_and_the_driver_works_alone(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def said(master: str) -> bool:
        java = session._ours(SessionOptions(master=master))["spark.driver.extraJavaOptions"]
        return session.COLLECTOR in java

    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    assert (said("local[2]"), said("local"), said("spark://far:7077")) == (True, True, False)
    monkeypatch.setenv(name, "-Xss2m -XX:+UseSerialGC")
    assert not said("local[2]")
    monkeypatch.setenv(name, "-Xss2m -XX:+UseStringDeduplication")
    assert said("local[2]")


@pytest.mark.parametrize(
    ("size", "is_light", "is_interpreted"),
    [("few", True, True), ("some", True, False), ("many", False, False)],
)
def test_java_and_queries_suit_the_size_of_the_work(
    size: session.Size, is_light: bool, is_interpreted: bool
) -> None:
    ours = session._ours(SessionOptions(size=size))
    assert (session.LIGHT_JAVA in ours["spark.driver.extraJavaOptions"]) == is_light
    assert (ours.items() >= session.FEW_ROWS.items()) == is_interpreted


def test_a_run_is_sized_by_what_is_new_and_by_all_there_is() -> None:
    few, here = limits.EVENTS_FEW_MAX, limits.ROWS_HERE_MAX
    assert session.size_of(new=few, total=few) == "few"
    assert session.size_of(new=1, total=few + 1) == "some"
    assert session.size_of(new=here, total=10 * here) == "some"
    assert session.size_of(new=here + 1, total=10 * here) == "many"


@pytest.mark.timeout(120)
def test_a_session_says_nothing_on_stderr() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", QUIET],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
