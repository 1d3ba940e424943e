"""`spark.read.format("omnirelay")` and `spark.readStream.format("omnirelay")`: the events of
journals as rows, or, with `view=quarantine`, what of them cannot be believed."""

from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from omnirelay.pipeline.source_filters import Bounds, bounds_of
from omnirelay.pipeline.source_options import SourceOptions, parse
from omnirelay.pipeline.source_plan import Plan, Slice
from omnirelay.pipeline.source_reading import read_slice
from omnirelay.pipeline.source_stream import JournalStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


class OmniRelaySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "omnirelay"

    @cached_property
    def _parsed(self) -> SourceOptions:
        return parse(self.options)

    def schema(self) -> str:
        return self._parsed.ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = NarrowingReader if self._parsed.pushdown else JournalReader
        return kind(self._parsed, tuple(schema.names))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return JournalStream(self._parsed, tuple(schema.names))


class JournalReader(DataSourceReader):
    """Runs in two places: planning beside the driver, `read` wherever Spark sends the partition."""

    def __init__(self, options: SourceOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        with Plan(self._options) as plan:
            return [InputPartition(part) for part in plan.batch(self._bounds)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        part: Slice | None = partition.value
        if part is None:
            return iter(())  # Spark's way to say that there are no partitions
        return read_slice(part, self._options, self._names, self._bounds.event_types)


class NarrowingReader(JournalReader):
    """Lets Spark hand down the conditions of a query. Only on request: Spark 4.3 keeps the reader
    that it has told its conditions to, and asks the same one for the next query on the same
    DataFrame, or for the other side of a join with itself, which then lacks rows."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        self._bounds = bounds_of(filters)
        return filters
