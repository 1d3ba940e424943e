"""However a history is cut into steps, the tables are those of one step over all of it."""

import pytest

from omnirelay.testing.naive_gold import naive_tables
from tests.spark.duck_tables import TablesInDuckDB
from tests.spark.histories import random_journals
from tests.spark.making_tables import NAMES, assert_same
from tests.spark.stepping import Stepped, cut


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_two_steps_make_the_table_of_one(stepped: Stepped, name: str) -> None:
    """And so they make that of the fold over the whole."""
    assert_same(name, stepped.second[name], stepped.naive_second[name])


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("parts", "histories"), [(2, 40), (5, 30), (16, 6)])
def test_any_number_of_steps_makes_the_tables_of_one(parts: int, histories: int) -> None:
    journals = random_journals(range(1_000 * parts, 1_000 * parts + histories), turns=120)
    tables = TablesInDuckDB()
    for step in cut(journals, parts, seed=parts):
        tables.advance(step)
    naive = naive_tables(journals)
    for name in NAMES:
        assert_same(name, tables.rows(name), naive[name])
