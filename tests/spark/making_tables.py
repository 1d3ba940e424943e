"""The datasets moved on in memory: what the lakehouse does, without one."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from omnirelay.journal.format import Envelope
from omnirelay.pipeline.datasets import EVENTS, Dataset, Step, all_datasets
from omnirelay.pipeline.rows import rows_of
from omnirelay.pipeline.schema import EVENT_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]  # Any: one row of mixed columns


def events_frame(spark: "SparkSession", envelopes: Iterable[Envelope]) -> "DataFrame":
    return spark.createDataFrame(
        [row for envelope in envelopes for row in rows_of(envelope)], EVENT_DDL
    )


class TablesInMemory:
    def __init__(self, spark: "SparkSession", names: Iterable[str] | None = None) -> None:
        self.spark = spark
        wanted = None if names is None else set(names)
        self.datasets = [one for one in all_datasets() if wanted is None or one.name in wanted]
        self.tables: dict[str, DataFrame] = {}

    def advance(self, new: "DataFrame") -> None:
        before = self.tables.get(EVENTS)
        self.tables[EVENTS] = new if before is None else before.unionByName(new)
        for dataset in self.datasets:
            self._step(dataset, new)

    def _step(self, dataset: Dataset, new: "DataFrame") -> None:
        table = self.tables.get(dataset.name)
        old = None
        if table is not None and dataset.kind != "append":
            old = table.where("state = 'open'") if dataset.kind == "carry" else table
        change = dataset.advance(Step(self.spark, new, old, self.tables.get))
        if dataset.kind == "carry":
            assert change.rows is not None
            kept, rows = (None if table is None else table.where("state = 'closed'")), change.rows
        elif dataset.kind == "append":
            assert change.append is not None
            kept, rows = table, change.append
        else:
            assert change.replace is not None
            kept, rows = None, change.replace
        # Written and read back, so that the plan of a step does not hold those of all before it.
        found = rows if kept is None else kept.unionByName(rows)
        columns = dataset.columns
        self.tables[dataset.name] = self.spark.createDataFrame(found.collect(), columns)

    def rows(self, name: str) -> list[Row]:
        return plain(self.tables[name])


def plain(frame: "DataFrame") -> list[Row]:
    """Rows with their times as milliseconds."""
    columns = [
        f"unix_millis({name}) AS {name}" if kind == "timestamp" else name
        for name, kind in frame.dtypes
    ]
    return [row.asDict() for row in frame.selectExpr(*columns).collect()]


def compared(rows: Iterable[Mapping[str, Any]], key: tuple[str, ...]) -> list[Row]:
    """In an order that does not depend on who made them."""
    place: Callable[[Row], list[str]] = lambda row: [str(row[name]) for name in key]  # noqa: E731
    return sorted(({name: row[name] for name in sorted(row)} for row in rows), key=place)
