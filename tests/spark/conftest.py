"""One Spark session for all of these tests: it takes longer to start than most of them to run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from omnirelay.pipeline.session import SessionOptions, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    session = open_session(
        SessionOptions(master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
    )
    yield session
    session.stop()
