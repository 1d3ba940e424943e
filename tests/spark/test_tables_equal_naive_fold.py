"""What the SQL makes of a history is what a plain fold over its records makes of it."""

import pytest

from omnirelay.pipeline.datasets import Dataset, all_datasets
from omnirelay.pipeline.sql import names_of
from omnirelay.testing.naive_gold import naive_tables
from tests.spark.duck_tables import TablesInDuckDB
from tests.spark.histories import random_journals
from tests.spark.making_tables import NAMES, assert_same
from tests.spark.stepping import Stepped


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_a_table_equals_the_naive_fold_row_by_row(stepped: Stepped, name: str) -> None:
    assert_same(name, stepped.first[name], stepped.naive_first[name])


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
