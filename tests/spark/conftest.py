"""One Spark session for all of these tests: it takes longer to start than most of them to run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from omnirelay.model import limits
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.run import run_pipeline
from omnirelay.pipeline.session import SessionOptions, open_session
from tests.spark.real_tables import Eventful, rows_of, write_eventful
from tests.spark.stepping import Stepped, joined_as_many_rows, take_two_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_USE_S = 90
"""Whichever test asks for the session first waits for its start, on a busy machine for long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        uses = "spark" in getattr(item, "fixturenames", ())
        if uses and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(FIRST_USE_S))


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    session = open_session(SessionOptions(master="local[2]", size="few"))
    yield session
    session.stop()


@pytest.fixture
def joins_of_many_rows(spark: "SparkSession") -> Iterator[None]:
    with joined_as_many_rows(spark):
        yield


@pytest.fixture
def workers_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are written by Spark's tasks, which else the driver does for so few rows."""
    monkeypatch.setattr(limits, "EVENTS_FEW_MAX", 0)


@pytest.fixture(params=["driver", "workers"])
def writer(request: pytest.FixtureRequest) -> None:
    """For a test that must hold whoever writes."""
    if request.param == "workers":
        request.getfixturevalue("workers_write")


@pytest.fixture(scope="session")
def eventful(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Eventful:
    """The journal in which everything happens, and the tables of one run over all of it."""
    folder = tmp_path_factory.mktemp("eventful")
    sequences = write_eventful(folder / "leases.db")
    site = Eventful(f"sqlite:///{folder}/leases.db", sequences, folder / "whole")
    report = run_pipeline(spark, {"url": site.url}, DeltaTables(spark, str(site.whole)))
    assert (report.failed, report.quarantined) == ((), 1)
    site.rows.update(rows_of(site.whole))
    assert all(site.rows.values()), "a table without rows would prove nothing"
    return site


@pytest.fixture(scope="session")
def stepped(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Stepped:
    return take_two_steps(spark, tmp_path_factory.mktemp("stepped"))
