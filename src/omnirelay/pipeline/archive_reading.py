"""Reading an archive: by the source, a segment a task, or by Spark's own Parquet reader where that
finds the files."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnirelay.model.errors import Corrupt, Unavailable
from omnirelay.pipeline.address import Extent
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.decode_types import TYPES
from omnirelay.pipeline.offsets import Positions, Span
from omnirelay.pipeline.schema import EVENT, EVENT_DDL, VERSION
from omnirelay.pipeline.segment import Segment
from omnirelay.pipeline.shelf import (
    archived_shards,
    checksum,
    content_of,
    damage_of,
    is_bucket,
    open_shelf,
    segments_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS = 16_384
_TIMESTAMP = list(EVENT).index("timestamp")
"""Which column of a segment: all before it are plain, and their order is that of every version."""


class Found(msgspec.Struct, frozen=True):
    """The segments of an archive, told apart by their checksums."""

    sound: tuple[Segment, ...]
    damaged: tuple[tuple[Segment, str], ...]
    """With the reason."""


def pieces(span: Span, segments: Sequence[Segment]) -> list[tuple[Span, Segment | None]]:
    """The span, cut so that what segments hold is read from them, the rest (None) elsewhere."""
    found: list[tuple[Span, Segment | None]] = []
    after = span.after
    for segment in segments:
        first, last = segment.manifest.first, segment.manifest.last
        if last <= after or first > span.through or after >= span.through:
            continue
        if first - 1 > after:
            found.append((Span(span.shard, after, first - 1), None))
        start, after = max(after, first - 1), min(last, span.through)
        found.append((Span(span.shard, start, after), segment))
    if after < span.through:
        found.append((Span(span.shard, after, span.through), None))
    return found


def extended(kept: Extent, segments: Sequence[Segment]) -> Extent:
    """What journal and archive hold together, without a gap up to the end."""
    first = kept.first
    for segment in reversed(segments):
        if segment.manifest.first < first <= segment.manifest.last + 1:
            first = segment.manifest.first
    return Extent(first, kept.last)


def archived_before(segments: Sequence[Segment], time_ms: int) -> int:
    """The last sequence from before that time, 0 if there is none. A segment that cannot be read
    counts as younger, so that of spans of time which follow on one another one has it."""
    found = (_last_before(segment, time_ms) for segment in reversed(segments))
    return next((last for last in found if last is not None), 0)


def _last_before(segment: Segment, time_ms: int) -> int | None:
    """None if nothing in the segment is so old; most say so in their manifest or footer."""
    if segment.manifest.time >= time_ms:
        return None
    time = pa.scalar(time_ms * 1000, pa.timestamp("us", "UTC"))
    try:
        if not is_bucket(segment.path) and _is_younger(pq.read_metadata(segment.path), time):
            return None
        batches = list(read_segment(segment, Part(names=("sequence", "timestamp"))))
    except (OSError, pa.ArrowInvalid, Corrupt):
        return None
    if not batches:
        return None
    rows = pa.Table.from_batches(batches)
    late = rows.filter(pc.greater_equal(rows["timestamp"], time))
    if late.num_rows == rows.num_rows:
        return None
    return pc.min(late["sequence"]).as_py() - 1 if late.num_rows else segment.manifest.last


def _is_younger(footer: pq.FileMetaData, time: pa.Scalar) -> bool:
    """A shard's clock never goes back, so the first rows are the oldest."""
    if not footer.num_rows:
        return True
    known = footer.row_group(0).column(_TIMESTAMP).statistics
    return known is not None and known.has_min_max and bool(known.min >= time.as_py())


def read_segment(segment: Segment, part: Part) -> Iterator[pa.RecordBatch]:
    """Raises Corrupt, before the first row, if the file is not the one that was written."""
    manifest = segment.manifest
    data = _checked(segment)
    extra = {"sequence"} | (set() if part.event_types is None else {"event_type"})
    is_whole = part.after < manifest.first and part.through >= manifest.last
    is_filtered = not is_whole or part.event_types is not None
    file = pq.ParquetFile(pa.BufferReader(data))
    wanted = [*part.names, *sorted(extra - set(part.names))] if is_filtered else list(part.names)
    stored = [name for name in wanted if name in file.schema_arrow.names]
    for batch in file.iter_batches(batch_size=_ROWS, columns=stored):
        rows = batch.filter(_mask(batch, part)) if is_filtered else batch
        if rows.num_rows:
            yield _shaped(rows, part.names)


def _checked(segment: Segment) -> bytes:
    """Read once: what was checked is what is used."""
    manifest, name = segment.manifest, segment.path.rpartition("/")[2]
    if manifest.v > VERSION:
        why = f"segment {name} has schema version {manifest.v}, this program knows {VERSION}"
        raise Corrupt(manifest.shard, manifest.first, f"{why}: upgrade")
    try:
        data = content_of(segment)
    except OSError as error:
        why = f"segment {name} cannot be read: {error.strerror}"
        raise Corrupt(manifest.shard, manifest.first, why) from None
    actual = checksum(data)
    if actual != manifest.checksum:
        why = f"segment {name} has checksum {actual}, its manifest says {manifest.checksum}"
        raise Corrupt(manifest.shard, manifest.first, why)
    return data


def _mask(batch: pa.RecordBatch, part: Part) -> pa.Array:
    sequence = batch["sequence"]
    mask = pc.and_(pc.greater(sequence, part.after), pc.less_equal(sequence, part.through))
    if part.event_types is None:
        return mask
    kinds = pa.array(sorted(part.event_types), pa.string())
    return pc.and_(mask, pc.is_in(batch["event_type"], value_set=kinds))


def _shaped(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Today's columns; one that the segment is too old for is null."""
    known = batch.schema.names
    columns = [
        batch[name] if name in known else pa.nulls(batch.num_rows, TYPES[name]) for name in names
    ]
    return pa.RecordBatch.from_arrays(
        columns, schema=pa.schema([(name, TYPES[name]) for name in names])
    )


def look_through(archive: str | Path, shards: Collection[str] | None = None) -> Found:
    """Every segment checked against its checksum, several at a time. Raises Unavailable if there is
    no archive."""
    segments = _listed(archive, shards)
    with ThreadPoolExecutor(max_workers=4) as pool:
        reasons = list(pool.map(damage_of, segments))
    judged = list(zip(segments, reasons, strict=True))
    return Found(
        tuple(segment for segment, reason in judged if reason is None),
        tuple((segment, reason) for segment, reason in judged if reason is not None),
    )


def _listed(archive: str | Path, shards: Collection[str] | None = None) -> list[Segment]:
    """Unchecked. Raises Unavailable if there is no archive."""
    shelf = open_shelf(archive)
    names = archived_shards(shelf)
    if not names:
        raise Unavailable(f"{shelf.shown} holds no segments of an archive")
    wanted = [name for name in names if shards is None or name in shards]
    return [segment for name in wanted for segment in segments_of(shelf, name)]


def reach(found: Found, after: Mapping[str, int], upto: Mapping[str, int]) -> Positions:
    """How far sound segments go on from `after` without a gap, at most to `upto`; only the shards
    that get further. What is behind it is read by `format("omnirelay")`."""
    positions = {shard: after.get(shard, 0) for shard in upto}
    for segment in found.sound:  # in order within a shard
        manifest = segment.manifest
        at = positions.get(manifest.shard)
        if at is not None and manifest.first <= at + 1 <= manifest.last:
            positions[manifest.shard] = min(manifest.last, upto[manifest.shard])
    return {shard: at for shard, at in positions.items() if at > after.get(shard, 0)}


def archived_events(
    spark: "SparkSession",
    archive: str | Path,
    *,
    after: Mapping[str, int] | None = None,
    upto: Mapping[str, int] | None = None,
    found: Found | None = None,
) -> "DataFrame":
    """The events of the sound segments, scanned by Spark itself where it finds the files: of each
    shard those behind `after` and, if `upto` is given, of the shards it names, up to there. What is
    damaged is left out: `look_through` names it, `format("omnirelay")` with `archive` reads it from
    the journal where that still has it."""
    after = after or {}
    is_near = not is_bucket(str(archive))
    if found is not None:
        segments: Sequence[Segment] = found.sound
    else:  # what is far is checked by who fetches it, not twice
        segments = look_through(archive).sound if is_near else _listed(archive)
    parts = [(one, span) for one in segments if (span := _wanted(one, after, upto)).rows]
    if not parts:
        return spark.createDataFrame([], EVENT_DDL)
    if not is_near:
        return _fetched(spark, parts)
    events = spark.read.schema(EVENT_DDL).parquet(*(one.path for one, _ in parts))
    # Whole segments need no condition, and most are whole.
    for shard in {
        span.shard for one, span in parts if span.rows <= one.manifest.last - one.manifest.first
    }:
        first = min(span.after for _, span in parts if span.shard == shard)
        last = max(span.through for _, span in parts if span.shard == shard)
        inside = (events.sequence > first) & (events.sequence <= last)
        events = events.where((events.shard != shard) | inside)
    return events


def _fetched(spark: "SparkSession", parts: Sequence[tuple[Segment, Span]]) -> "DataFrame":
    """A segment a task. Spark itself would need more of Java than it comes with, and to be told
    the keys."""

    def fetch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in chain.from_iterable(batch.column("id").to_pylist() for batch in batches):
            segment, span = parts[number]
            with suppress(Corrupt):
                yield from read_segment(segment, Part(after=span.after, through=span.through))

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(fetch, EVENT_DDL)


def _wanted(segment: Segment, after: Mapping[str, int], upto: Mapping[str, int] | None) -> Span:
    manifest = segment.manifest
    last = manifest.last if upto is None else min(manifest.last, upto.get(manifest.shard, 0))
    return Span(manifest.shard, max(manifest.first - 1, after.get(manifest.shard, 0)), last)
