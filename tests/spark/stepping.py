"""Random histories in one step and in two, beside the naive fold over as much of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from omnirelay.pipeline.session import FEW_ROWS, MANY_ROWS
from omnirelay.testing.naive_gold import naive_tables
from tests.spark.histories import random_journals
from tests.spark.making_tables import NAMES, Row, TablesInFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnirelay.journal.format import Envelope
    from omnirelay.testing.naive_tables import Tables

_JOINS = (
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.optimizer.disableHints",
    "spark.sql.join.preferSortMergeJoin",
)
Journals = dict[str, list["Envelope"]]


@dataclass(frozen=True)
class Stepped:
    first: dict[str, list[Row]]
    """Every table after one step, of the first parts of all histories."""
    naive_first: "Tables"
    second: dict[str, list[Row]]
    naive_second: "Tables"


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


@contextmanager
def joined_as_many_rows(spark: "SparkSession") -> Iterator[None]:
    """Small sides are sent to large ones. The shared session is for few rows and does not."""
    for name in _JOINS:
        spark.conf.set(name, MANY_ROWS[name])
    try:
        yield
    finally:
        for name in _JOINS:
            spark.conf.set(name, FEW_ROWS[name])


def take_two_steps(spark: "SparkSession", folder: Path) -> Stepped:
    """Fifty histories, each a shard of its own; shuffled and sent about as those of many rows,
    which the tables of other tests are not."""
    journals = random_journals(range(50), turns=120)
    first, second = cut(journals, 2, seed=1)
    begun: Journals = {}
    for envelope in first:
        begun.setdefault(envelope.shard, []).append(envelope)
    tables = TablesInFiles(spark, folder)
    with joined_as_many_rows(spark):
        tables.advance(first)
        after_first = {name: tables.rows(name) for name in NAMES}
        tables.advance(second)
    after_second = {name: tables.rows(name) for name in NAMES}
    return Stepped(after_first, naive_tables(begun), after_second, naive_tables(journals))
