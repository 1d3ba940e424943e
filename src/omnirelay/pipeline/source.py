"""`spark.read.format("omnirelay")`: the events of a journal as rows."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omnirelay.journal.format import unseal, first_of
from omnirelay.pipeline.rows import rows_of
from omnirelay.pipeline.schema import EVENT_DDL
from omnirelay.stores.sqlite_look import look


class OmniRelaySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "omnirelay"

    def schema(self) -> str:
        return EVENT_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options, schema)


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._path = options["path"]
        self._shard = options.get("shards", "resourcelease")
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema, timezone="UTC")
        reader = look(self._path, self._shard).reader
        after = 0
        while bodies := asyncio.run(reader.read(after, 256)):
            rows = []
            for body in bodies:
                envelope = unseal(body, shard=self._shard, at=first_of(body))
                rows.extend(rows_of(envelope))
                after = envelope.last
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
