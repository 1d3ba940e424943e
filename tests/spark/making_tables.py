"""The datasets moved on from one Parquet file to the next: a lakehouse without commits."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from omnirelay.journal.format import Envelope
from omnirelay.pipeline.datasets import EVENTS, Dataset, Step, all_datasets
from omnirelay.pipeline.schema import EVENT_DDL
from omnirelay.testing.event_rows import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

NAMES = sorted(dataset.name for dataset in all_datasets() if dataset.name != "lineage_names")
"""All but what only another table is made from."""
Row = dict[str, Any]  # Any: one row of mixed columns


def events_frame(spark: "SparkSession", envelopes: Iterable[Envelope]) -> "DataFrame":
    return spark.createDataFrame(
        [row for envelope in envelopes for row in rows_of(envelope)], EVENT_DDL
    )


class TablesInFiles:
    def __init__(self, spark: "SparkSession", folder: "Path") -> None:
        self.spark = spark
        self.folder = folder
        self.steps = 0
        self.tables: dict[str, DataFrame] = {}
        self.types: frozenset[str] | None = None

    def advance(self, envelopes: Iterable[Envelope]) -> None:
        from pyspark.sql import functions as f

        self.steps += 1
        before = self.tables.get(EVENTS)
        new = self._written(f"new-{self.steps}", events_frame(self.spark, envelopes), EVENT_DDL)
        ends = new.groupBy("shard").agg(f.min("sequence") - 1, f.max("sequence")).collect()
        moves = {row[0]: (row[1], row[2]) for row in ends}
        # A step that was told which types there are must make the same of them as one that was not.
        told = new.select("event_type").distinct().collect() if self.steps % 2 == 0 else None
        self.types = None if told is None else frozenset(row[0] for row in told)
        self.tables[EVENTS] = new if before is None else before.unionByName(new)
        for dataset in all_datasets():
            self._step(dataset, new, moves)

    def _step(self, dataset: Dataset, new: "DataFrame", moves: dict[str, tuple[int, int]]) -> None:
        table = self.tables.get(dataset.name)
        old = None
        if table is not None and dataset.kind != "append":
            old = table.where("state = 'open'") if dataset.kind == "carry" else table
        assert dataset.advance is not None
        change = dataset.advance(
            Step(
                session=self.spark,
                new=new,
                old=old,
                read=self.tables.get,
                recent=self.tables.__getitem__,
                moves=moves,
                is_first=table is None,
                types=self.types,
            )
        )
        if dataset.kind == "carry":
            assert change.rows is not None
            kept, rows = (None if table is None else table.where("state = 'closed'")), change.rows
        elif dataset.kind == "append":
            assert change.append is not None
            kept, rows = table, change.append
        else:
            assert change.replace is not None
            kept, rows = None, change.replace
        assert ", ".join(" ".join(one) for one in rows.dtypes) == dataset.columns
        found = rows if kept is None else kept.unionByName(rows)
        name = f"{dataset.name}-{self.steps}"
        self.tables[dataset.name] = self._written(name, found, dataset.columns)

    def _written(self, name: str, rows: "DataFrame", columns: str) -> "DataFrame":
        path = str(self.folder / f"{name}.parquet")
        pq.write_table(rows.toArrow(), path)
        return self.spark.read.schema(columns).parquet(path)

    def rows(self, name: str) -> list[Row]:
        return plain(self.tables[name])


def plain(frame: "DataFrame") -> list[Row]:
    """Rows with their times as milliseconds."""
    columns = [
        f"unix_millis({name}) AS {name}" if kind == "timestamp" else name
        for name, kind in frame.dtypes
    ]
    return [row.asDict() for row in frame.selectExpr(*columns).collect()]


def assert_same(name: str, ours: Iterable[Row], theirs: Iterable[Row]) -> None:
    """Row by row and column by column, in whatever order they come."""
    key = next(dataset.key for dataset in all_datasets() if dataset.name == name)
    found, expected = _sorted(ours, key), _sorted(theirs, key)
    assert expected, f"{name}: a table without rows would prove nothing"
    for one, other in zip(found, expected, strict=False):
        assert one == other, name
    assert len(found) == len(expected), name


def _sorted(rows: Iterable[Row], key: tuple[str, ...]) -> list[Row]:
    return sorted(rows, key=lambda row: [str(row[name]) for name in key])
