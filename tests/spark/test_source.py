"""`format("omnirelay")`: what Spark sees of a journal."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

import omnirelay
from omnirelay import Payload
from omnirelay.pipeline.decode_types import SCHEMA
from omnirelay.pipeline.schema import EVENT_DDL
from omnirelay.testing.envelopes import Scribe
from tests.spark.journals import append, rows_in

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards: one of an embedded queue with some of its life, one of 40 plain envelopes."""
    path = tmp_path_factory.mktemp("journal") / "leases.db"
    with omnirelay.connect_sync(f"sqlite:///{path}") as relay:
        relay.enqueue_many([Payload("table", f"größe-{n}", body=b"\x00\xff") for n in range(7)])
        for _ in range(3):
            with relay.lease(wait=1):
                pass
    scribe = Scribe("plain")
    append(path, [scribe.seal(5) for _ in range(40)])
    return path


def events(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    reader = spark.read.format("omnirelay").option("url", f"sqlite:///{path}")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def test_the_arrow_schema_is_the_one_that_spark_expects(spark: SparkSession) -> None:
    expected = spark.createDataFrame([], EVENT_DDL).schema
    assert to_arrow_schema(expected, timezone="UTC").equals(SCHEMA)


def test_a_journal_read_by_spark_is_the_journal(spark: SparkSession, journal: Path) -> None:
    found = events(spark, journal).orderBy("shard", "sequence").collect()
    assert [row.asDict(recursive=True) for row in found] == rows_in(journal)
