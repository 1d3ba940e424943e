"""A stretch of every shard, exactly: what a run reads of the journals, and could read again."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omnirelay.pipeline.address import Extent
from omnirelay.pipeline.archive_reading import archived_events, look_through, reach
from omnirelay.pipeline.datasets import Positions
from omnirelay.pipeline.offsets import admitted
from omnirelay.pipeline.segment import archived_shards
from omnirelay.pipeline.source_options import SourceOptions, parse
from omnirelay.pipeline.source_plan import check_kept
from omnirelay.pipeline.source_stream import JournalStream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

NAME = "omnirelay_span"
_AFTER, _UPTO = "after", "upto"


class SpanSource(DataSource):
    """The journals of `format("omnirelay")` between two positions of each shard."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @cached_property
    def _parsed(self) -> SourceOptions:
        given = {key: text for key, text in self.options.items() if key not in (_AFTER, _UPTO)}
        return parse(given)

    def schema(self) -> str:
        return self._parsed.ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        stream = JournalStream(self._parsed, tuple(schema.names))
        return _SpanReader(
            stream, json.loads(self.options[_AFTER]), json.loads(self.options[_UPTO])
        )


class _SpanReader(DataSourceReader):
    def __init__(self, stream: JournalStream, after: dict[str, int], upto: dict[str, int]) -> None:
        self._stream = stream
        self._after = after
        self._upto = upto

    def partitions(self) -> list[InputPartition]:
        return self._stream.partitions(self._after, self._upto) or [InputPartition(None)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return iter(()) if partition.value is None else self._stream.read(partition)


@dataclass(frozen=True)
class Journals:
    """What a pipeline reads: options of `format("omnirelay")`, looked at from the driver."""

    session: "SparkSession"
    options: Mapping[str, str]

    @cached_property
    def _parsed(self) -> SourceOptions:
        return parse(self.options)

    def _stream(self, consumer: str | None = None) -> JournalStream:
        return JournalStream(msgspec.structs.replace(self._parsed, consumer=consumer), ())

    def new(self, after: Positions, rows: int | None = None) -> tuple[Positions, Positions]:
        """From where to where a run reads that has read up to `after`, at most so many rows.

        Raises Corrupt if something in between is not kept any more.
        """
        starts, heads = self._stream().initialOffset(), self._stream().reportLatestOffset()
        for shard, first in starts.items():
            if heads.get(shard, 0) > after.get(shard, first):
                check_kept(shard, after.get(shard, first), Extent(first + 1, heads[shard]))
        begin = {shard: after.get(shard, first) for shard, first in starts.items()}
        end = admitted(begin, heads, rows)
        return begin, {shard: last for shard, last in end.items() if last > begin.get(shard, 0)}

    def read(self, after: Positions, upto: Positions, *, view: str = "events") -> "DataFrame":
        archive = self.options.get("archive")
        if archive is None or view != "events" or not archived_shards(archive):
            return self._read_spans(after, upto, view)
        # What is archived Spark scans by itself; only what lies behind goes through Python.
        found = look_through(archive, upto.keys())
        archived = reach(found, after, upto)
        rows = archived_events(self.session, archive, after=after, upto=archived, found=found)
        start = {**after, **archived}
        rest = {shard: last for shard, last in upto.items() if last > start.get(shard, 0)}
        return rows.unionByName(self._read_spans(start, rest, view)) if rest else rows

    def _read_spans(self, after: Positions, upto: Positions, view: str) -> "DataFrame":
        self.session.dataSource.register(SpanSource)
        spans = {_AFTER: json.dumps(dict(after)), _UPTO: json.dumps(dict(upto)), "view": view}
        return self.session.read.format(NAME).options(**self.options, **spans).load()

    def hold(self, consumer: str, positions: Positions) -> None:
        """Say to the journals how far the named reader is, where they ask: pruning waits, and the
        node shows the lag."""
        self._stream(consumer).commit(dict(positions))
