"""What the SQL makes of a history is what a plain fold over its records makes of it."""

from typing import TYPE_CHECKING

import pytest

from omnirelay.pipeline.datasets import Dataset, all_datasets
from omnirelay.pipeline.sql import names_of
from omnirelay.testing.naive_gold import naive_tables
from tests.spark.duck_tables import TablesInDuckDB
from tests.spark.histories import random_journals
from tests.spark.making_tables import TablesInFiles, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnirelay.testing.naive_tables import Tables

NAMES = sorted(dataset.name for dataset in all_datasets() if dataset.name != "lineage_names")
"""All but what only another table is made from."""


@pytest.fixture(scope="module")
def made(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> "tuple[TablesInFiles, Tables]":
    """Fifty histories, each a shard of its own, in one pass."""
    journals = random_journals(range(50), turns=120)
    tables = TablesInFiles(spark, tmp_path_factory.mktemp("tables"))
    tables.advance(one for shard in journals.values() for one in shard)
    return tables, naive_tables(journals)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_a_table_equals_the_naive_fold_row_by_row(
    made: "tuple[TablesInFiles, Tables]", name: str
) -> None:
    tables, naive = made
    assert_same(name, tables.rows(name), naive[name])


@pytest.mark.timeout(120)
def test_duckdb_makes_the_same_of_the_same_texts() -> None:
    journals = random_journals(range(1_000, 1_150), turns=120)
    tables = TablesInDuckDB()
    tables.advance(one for shard in journals.values() for one in shard)
    naive = naive_tables(journals)
    for name in NAMES:
        assert_same(name, tables.rows(name), naive[name])


@pytest.mark.parametrize("dataset", all_datasets(), ids=lambda dataset: dataset.name)
def test_a_table_is_told_apart_by_columns_it_has(dataset: Dataset) -> None:
    assert set(dataset.key) <= set(names_of(dataset.columns))
