"""One Spark session for all of these tests: it takes longer to start than most of them to run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from omnirelay.pipeline.session import SessionOptions, open_session

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
