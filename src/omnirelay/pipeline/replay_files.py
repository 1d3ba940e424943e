"""Shards whose rows lie in Parquet files of their own: read by the task that folds them, as Arrow.

Nothing crosses from the JVM to Python and nothing is shuffled or sorted, which is most of what a
replay costs otherwise. A file holds one shard, and no two of them the same stretch.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnirelay.pipeline.replay_fold import FOLDED, Wanted, fold_shards

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

Files = Mapping[str, list[str]]
"""Of each shard, in the order of their sequences."""
WORK = "shard string, files string"
_ROWS = 16_384
_names = [name.strip() for name in FOLDED.split(",")]


def of_archive(archive: str) -> Files:
    """Raises Unavailable if there is none. Of a damaged segment nothing is read: the fold finds the
    hole, and names it."""
    from omnirelay.pipeline.archive_reading import look_through

    files: dict[str, list[str]] = {}
    for segment in sorted(look_through(archive).sound, key=lambda one: one.manifest.first):
        files.setdefault(segment.manifest.shard, []).append(segment.path)
    return files


def of_table(table: "DeltaTable") -> Files | None:
    """None if the table's log does not say that its files keep the shards apart."""
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    if any(row.get("min.shard") is None or row["min.shard"] != row["max.shard"] for row in rows):
        return None
    known = {shard for row in rows if (shard := row["min.shard"])}
    root = table.table_uri.removeprefix("file://").rstrip("/")
    if any(len(shard) >= _CUT_CHARS for shard in known) or "://" in root:
        return None  # a long name is cut in the log; what is far away Spark reads better
    files: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: row["min.sequence"]):
        files.setdefault(row["min.shard"], []).append(f"{root}/{row['path']}")
    return files


_CUT_CHARS = 32


def folded_files(
    session: "SparkSession", files: Files, bounds: "Bounds", wanted: Wanted, *, include_dead: bool
) -> "DataFrame":
    """One task a shard, the largest first; rows as `fold_shards` gives them."""
    from omnirelay.pipeline.replay_fold import OUTCOME

    chosen = [shard for shard in files if bounds.shard in (None, shard)]
    work = [(shard, msgspec.json.encode(files[shard]).decode()) for shard in chosen]
    listed = session.createDataFrame(work, WORK).repartition(max(1, len(work)), "shard")

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                paths = msgspec.json.decode(row["files"], type=list[str])
                rows = read_files(paths, bounds)
                yield from fold_shards(rows, wanted, include_dead=include_dead)

    return listed.mapInArrow(fold, OUTCOME)


class Bounds(msgspec.Struct, frozen=True):
    """Up to where, and of which shard; None: all there is."""

    shard: str | None = None
    sequence: int | None = None
    time: datetime | None = None


def read_files(paths: Iterable[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
    for path in paths:
        file = pq.ParquetFile(path)
        known = set(file.schema_arrow.names)
        for batch in file.iter_batches(_ROWS, columns=[one for one in _names if one in known]):
            yield from _within(batch, bounds)


def _within(batch: pa.RecordBatch, bounds: Bounds) -> Iterator[pa.RecordBatch]:
    masks = []
    if bounds.sequence is not None:
        masks.append(pc.less_equal(batch["sequence"], bounds.sequence))
    if bounds.time is not None:
        stamp = pa.scalar(bounds.time, batch.schema.field("timestamp").type)
        masks.append(pc.less_equal(batch["timestamp"], stamp))
    for mask in masks:
        batch = batch.filter(mask)
    if batch.num_rows:
        yield batch
