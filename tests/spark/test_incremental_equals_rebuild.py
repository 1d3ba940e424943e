"""However a history is cut into steps, the tables are those of one step over all of it."""

from random import Random
from typing import TYPE_CHECKING

import pytest

from omnirelay.testing.naive_gold import naive_tables
from tests.spark.duck_tables import TablesInDuckDB
from tests.spark.histories import random_journals
from tests.spark.making_tables import TablesInFiles, assert_same
from tests.spark.test_tables_equal_naive_fold import NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnirelay.journal.format import Envelope
    from omnirelay.testing.naive_tables import Tables

Journals = dict[str, list["Envelope"]]


def cut(journals: Journals, parts: int, seed: int) -> "list[list[Envelope]]":
    """Each shard is cut at places of its own; some parts of some shards are empty."""
    chance = Random(seed)
    steps: list[list[Envelope]] = [[] for _ in range(parts)]
    for envelopes in journals.values():
        places = sorted(chance.randint(0, len(envelopes)) for _ in range(parts - 1))
        for step, (low, high) in zip(
            steps, zip([0, *places], [*places, len(envelopes)], strict=True), strict=True
        ):
            step += envelopes[low:high]
    return steps


@pytest.fixture(scope="module")
def moved_on(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> "tuple[TablesInFiles, Tables]":
    journals = random_journals(range(500, 525), turns=120)
    tables = TablesInFiles(spark, tmp_path_factory.mktemp("tables"))
    for step in cut(journals, 2, seed=1):
        tables.advance(step)
    return tables, naive_tables(journals)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_two_steps_make_the_table_of_one(
    moved_on: "tuple[TablesInFiles, Tables]", name: str
) -> None:
    tables, naive = moved_on
    assert_same(name, tables.rows(name), naive[name])


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
