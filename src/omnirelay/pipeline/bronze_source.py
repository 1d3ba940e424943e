"""A stretch of every shard, exactly: what a run reads of the journals, and could read again.

Rows for the event table need not pass through Java: the worker that decodes a part of a journal
writes it as Parquet itself, which takes half the processor time, and tells the driver where. Few
rows the driver reads itself: it would take longer to start workers.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omnirelay.model import limits
from omnirelay.pipeline.address import Extent
from omnirelay.pipeline.archive_reading import archived_events, look_through, reach
from omnirelay.pipeline.datasets import OtherJournal, Positions
from omnirelay.pipeline.delta_files import write_part
from omnirelay.pipeline.delta_rows import moving
from omnirelay.pipeline.offsets import admitted
from omnirelay.pipeline.schema import EVENT
from omnirelay.pipeline.shelf import archived_shards, is_bucket
from omnirelay.pipeline.source_options import SourceOptions, parse
from omnirelay.pipeline.source_plan import Plan, check_kept
from omnirelay.pipeline.source_stream import JournalStream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_AFTER, _UPTO, _INTO = "after", "upto", "into"
_LINK_DIGITS = 15
"""Of a checksum in hex: as many as a log's whole numbers take."""


class SpanSource(DataSource):
    """The journals of `format("omnirelay")` between two positions of each shard."""

    @classmethod
    def name(cls) -> str:
        return "omnirelay_span"

    @cached_property
    def _parsed(self) -> SourceOptions:
        ours = (_AFTER, _UPTO, _INTO)
        return parse({key: text for key, text in self.options.items() if key not in ours})

    @property
    def _ends(self) -> tuple[dict[str, int], dict[str, int]]:
        return json.loads(self.options[_AFTER]), json.loads(self.options[_UPTO])

    def schema(self) -> str:
        return self._parsed.ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        return _SpanReader(JournalStream(self._parsed, tuple(schema.names)), *self._ends)


class FileSource(SpanSource):
    """The same, written as Parquet files `into` a folder; rows are their names."""

    @classmethod
    def name(cls) -> str:
        return "omnirelay_files"

    def schema(self) -> str:
        return "file string"

    def reader(self, schema: StructType) -> DataSourceReader:
        stream = JournalStream(self._parsed, tuple(EVENT))
        return _FileReader(stream, *self._ends, into=self.options[_INTO])


class _SpanReader(DataSourceReader):
    def __init__(self, stream: JournalStream, after: dict[str, int], upto: dict[str, int]) -> None:
        self._stream = stream
        self._after = after
        self._upto = upto

    def partitions(self) -> list[InputPartition]:
        return self._stream.partitions(self._after, self._upto) or [InputPartition(None)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return iter(()) if partition.value is None else self._stream.read(partition)


class _FileReader(_SpanReader):
    """A task that is tried again writes another file; only one that ended is heard of."""

    def __init__(
        self, stream: JournalStream, after: dict[str, int], upto: dict[str, int], *, into: str
    ) -> None:
        super().__init__(stream, after, upto)
        self._into = into

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        name = write_part(super().read(partition), self._into)
        if name is not None:
            yield pa.RecordBatch.from_pydict({"file": [name]})


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
        starts, heads = self._stream().initialOffset(), self.heads()
        for shard, first in starts.items():
            if heads.get(shard, 0) > after.get(shard, first):
                check_kept(shard, after.get(shard, first), Extent(first + 1, heads[shard]))
        begin = {shard: after.get(shard, first) for shard, first in starts.items()}
        end = admitted(begin, heads, rows)
        return begin, {shard: last for shard, last in end.items() if last > begin.get(shard, 0)}

    def heads(self) -> Positions:
        """How far the journals are now."""
        return self._stream().reportLatestOffset()

    def read(self, after: Positions, upto: Positions, *, view: str = "events") -> "DataFrame":
        archive = self.options.get("archive")
        if archive is None or view != "events" or not self.is_archived():
            return self._read_spans(after, upto, view)
        # What is archived Spark scans by itself; only what lies behind goes through Python.
        found = look_through(archive, upto.keys())
        archived = reach(found, after, upto)
        rows = archived_events(self.session, archive, after=after, upto=archived, found=found)
        start = {**after, **archived}
        rest = {shard: last for shard, last in upto.items() if last > start.get(shard, 0)}
        return rows.unionByName(self._read_spans(start, rest, view)) if rest else rows

    def _read_spans(self, after: Positions, upto: Positions, view: str) -> "DataFrame":
        return self._load(SpanSource, after, upto, view=view)

    def write(self, after: Positions, upto: Positions, into: str) -> list[str]:
        """The events of (after, upto] as Parquet files of that folder; their names."""
        if sum(high - low for low, high in moving(after, upto).values()) <= limits.ROWS_HERE_MAX:
            stream = JournalStream(self._parsed, tuple(EVENT))
            parts = map(stream.read, stream.partitions(dict(after), dict(upto)))
            name = write_part(chain.from_iterable(parts), into)
            return [] if name is None else [name]
        rows = self._load(FileSource, after, upto, into=into).collect()
        return [row["file"] for row in rows]

    def is_archived(self) -> bool:
        """Segments in a folder are Parquet already, which Spark reads by itself."""
        archive = self.options.get("archive")
        if archive is None or is_bucket(archive):
            return False
        return bool(archived_shards(archive))

    def _load(
        self, kind: type[SpanSource], after: Positions, upto: Positions, **also: str
    ) -> "DataFrame":
        self.session.dataSource.register(kind)
        also |= {_AFTER: json.dumps(dict(after)), _UPTO: json.dumps(dict(upto))}
        return self.session.read.format(kind.name()).options(**self.options, **also).load()

    def links(self, at: Positions) -> dict[str, int]:
        """Which envelopes hold these sequences, as numbers that a table's log can keep; of those
        shards alone where it can be told. Raises OtherJournal if a journal is shorter."""
        found: dict[str, int] = {}
        with Plan(self._parsed) as plan:
            for shard, journal in plan.homes().items():
                if not at.get(shard):
                    continue
                kept = plan.extent(journal, shard)
                if kept.last < at[shard]:
                    raise OtherJournal(
                        shard, at[shard], f"it ends at {kept.last}, the table at {at[shard]}"
                    )
                link = journal.link(shard, at[shard]) if kept.first <= at[shard] else None
                if link is not None:
                    found[shard] = int(link[:_LINK_DIGITS], 16)
        return found

    def hold(self, consumer: str, positions: Positions) -> None:
        """Say to the journals how far the named reader is, where they ask: pruning waits, and the
        node shows the lag."""
        self._stream(consumer).commit(dict(positions))


def work_ahead(
    options: Mapping[str, str], after: Positions, rows: int | None = None
) -> tuple[int, int]:
    """How many events a run over these journals reads that has read up to `after`, and how many
    there are; to be asked before there is a session."""
    heads = JournalStream(parse(options), ()).reportLatestOffset()
    new = sum(high - low for low, high in moving(after, heads).values())
    return new if rows is None else min(new, rows), sum(heads.values())
