"""The journals as a stream. Offsets are `{shard: sequence}`, so a batch can be read again exactly
as it was; the journal never changes behind what is committed."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from omnirelay.pipeline.offsets import Positions, Span, admitted, hold
from omnirelay.pipeline.source_options import SourceOptions
from omnirelay.pipeline.source_plan import Plan, Slice, check_kept
from omnirelay.pipeline.source_reading import read_slice

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names
        self._target: Positions | None = None
        """Where everything ended when the run began, if it is to end there."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - these names are Spark's
        return ReadMaxRows(self._options.rows_per_batch)

    def initialOffset(self) -> Positions:  # noqa: N802
        with Plan(self._options) as plan:
            start = {
                shard: plan.start(journal, shard, plan.extent(journal, shard))
                for shard, journal in plan.homes().items()
            }
            self._hold(plan, start)
        return start

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._head()

    def reportLatestOffset(self) -> Positions:  # noqa: N802
        return self._head()

    def latestOffset(self, start: Positions, limit: ReadLimit) -> Positions:  # noqa: N802
        head = self._target if self._target is not None else self._head()
        rows = None if isinstance(limit, ReadAllAvailable) else self._options.rows_per_batch
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        return admitted(self._known(start, head), head, rows)

    def _known(self, start: Positions, head: Positions) -> Positions:
        """With the shards that have come since the query began."""
        fresh = [shard for shard in head if shard not in start]
        if not fresh:
            return start
        with Plan(self._options) as plan:
            homes = plan.homes()
            return start | {
                shard: plan.start(homes[shard], shard, plan.extent(homes[shard], shard))
                for shard in fresh
            }

    def _head(self) -> Positions:
        with Plan(self._options) as plan:
            return {
                shard: plan.end(journal, shard, plan.extent(journal, shard))
                for shard, journal in plan.homes().items()
            }

    def partitions(self, start: Positions, end: Positions) -> list[InputPartition]:
        slices: list[Slice] = []
        with Plan(self._options) as plan:
            homes = plan.homes()
            for shard, through in end.items():
                kept = plan.extent(homes[shard], shard)
                after = start.get(shard, kept.first - 1)
                if through > after:
                    check_kept(shard, after, kept)
                    slices += plan.slices(homes[shard], Span(shard, after, through))
        return [InputPartition(part) for part in slices]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_slice(partition.value, self._options, self._names)

    def commit(self, end: Positions) -> None:
        with Plan(self._options) as plan:
            self._hold(plan, end)

    def _hold(self, plan: Plan, positions: Positions) -> None:
        if self._options.consumer is None:
            return
        homes = plan.homes()
        for shard, position in positions.items():
            if shard in homes:
                hold(homes[shard].positions(), self._options.consumer, {shard: position})
