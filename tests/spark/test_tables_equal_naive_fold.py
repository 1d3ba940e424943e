"""What the SQL makes of a history is what a plain fold over its records makes of it."""

from typing import TYPE_CHECKING

import pytest

from omnirelay.pipeline.datasets import all_datasets
from omnirelay.testing.naive_gold import naive_tables
from tests.spark.histories import random_journals
from tests.spark.making_tables import TablesInMemory, compared, events_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnirelay.testing.naive_tables import Tables

_KEYS = {dataset.name: dataset.key for dataset in all_datasets()}
_COMPARED = sorted(_KEYS.keys() - {"lineage_names"})
"""All but what only another table is made from."""


@pytest.fixture(scope="module")
def made(spark: "SparkSession") -> "tuple[TablesInMemory, Tables]":
    """Sixty histories, each a shard of its own, in one pass."""
    journals = random_journals(range(60), turns=120)
    tables = TablesInMemory(spark)
    tables.advance(events_frame(spark, (one for shard in journals.values() for one in shard)))
    return tables, naive_tables(journals)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", _COMPARED)
def test_a_table_equals_the_naive_fold_row_by_row(
    made: "tuple[TablesInMemory, Tables]", name: str
) -> None:
    tables, naive = made
    key = _KEYS[name]
    ours, theirs = compared(tables.rows(name), key), compared(naive[name], key)
    assert ours, "a table without rows would prove nothing"
    assert len({tuple(row[one] for one in key) for row in ours if row[key[-1]]}) <= len(ours)
    for one, other in zip(ours, theirs, strict=True):
        assert one == other
