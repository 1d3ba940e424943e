"""The Parquet files of one commit: written by Spark in parallel into a folder of their own, then
described from their footers, so that every reader of the table can leave out what it does not need.
"""

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from omnirelay.model import limits
from omnirelay.model.ports import RandomIds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITING = {
    # INT96, Spark's default, carries no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A task of a carry table writes two files at a time, its open and its closed rows, instead of
    # sorting all of them by `state` first.
    "spark.sql.maxConcurrentOutputFileWriters": "2",
}
"""What a session must be told before it writes."""
_FOLDER = re.compile(r"c(\d{12})(s?)-[0-9a-f]{8}/")
_SPLIT_VALUE = re.compile(r"/\w+=(\w+)/")


@dataclass(frozen=True)
class Written:
    adds: tuple[AddAction, ...]
    rows: int
    broken: tuple[int, ...] | None = None
    """How many rows do not meet each of the table's expectations; None: nobody looked."""


def commit_folder(version: int, *, is_step: bool) -> str:
    """Never the folder of an attempt that was killed: what that left must not be taken up."""
    return f"c{version:012d}{'s' if is_step else ''}-{RandomIds().lease_id()[:8]}"


@dataclass(frozen=True)
class DataFile:
    path: str
    """Below the table's folder."""
    size: int
    rows: int | None
    state: str | None
    latest: Any = None
    """The greatest time in it by which its rows grow old, if the table has one."""

    @property
    def written_at(self) -> int | None:
        """The version it came with; None if another program wrote it."""
        found = _FOLDER.match(self.path)
        return int(found[1]) if found else None

    @property
    def is_of_step(self) -> bool:
        """Whether all its rows came with a step; others may hold rows that were there before."""
        found = _FOLDER.match(self.path)
        return bool(found and found[2])


class Unread(NamedTuple):
    files: list[DataFile]
    has_only_new: bool
    """Nobody needs to look for rows that were there before."""


def unread(files: list[DataFile], version: int | None) -> Unread:
    """What came after a version that was read to its end; all, if none was. A file that compaction
    made is read once more."""
    last = -1 if version is None else version
    found = [file for file in files if file.written_at is None or file.written_at > last]
    return Unread(found, version is not None and all(file.is_of_step for file in found))


def file_system(root: str) -> tuple[pafs.FileSystem, str]:
    """Of a folder or of any address that pyarrow knows, such as s3://bucket/path."""
    if "://" in root:
        # Any: pyarrow has no types.
        system, path = pafs.FileSystem.from_uri(root)
        return system, path
    return pafs.LocalFileSystem(), root


def plain_address(uri: str) -> str:
    """delta-rs names a local folder as a URL, with `%20` for a blank; Spark and pyarrow take it as
    it is."""
    local = uri.removeprefix("file://")
    return (uri if local == uri else unquote(local)).rstrip("/")


def write_files(rows: "DataFrame", *, table: str, folder: str, split_by: str | None) -> Written:
    """Raises whatever Spark raises; then there is only rubbish in the folder."""
    writer = rows.write.mode("append").option(
        "mapreduce.fileoutputcommitter.marksuccessfuljobs", "false"
    )
    if split_by is not None:
        writer = writer.partitionBy(split_by)
    writer.parquet(f"{table}/{folder}")
    system, path = file_system(table)
    found = system.get_file_info(
        pafs.FileSelector(f"{path}/{folder}", recursive=True, allow_not_found=True)
    )
    files = [info for info in found if info.is_file and info.base_name.endswith(".parquet")]
    files = [info for info in files if not info.base_name.startswith((".", "_"))]
    return _described(system, files, folder, split_by)


def files_of(
    names: list[str],
    *,
    table: str,
    folder: str,
    split_by: str | None = None,
    broken: tuple[int, ...] | None = None,
) -> Written:
    """Of files that others wrote into the folder, those that are named."""
    system, path = file_system(table)
    infos = system.get_file_info([f"{path}/{folder}/{name}" for name in names]) if names else []
    return replace(_described(system, infos, folder, split_by), broken=broken)


def write_part(batches: "Iterable[pa.RecordBatch]", into: str) -> str | None:
    """One Parquet file in the folder, its name; None without rows."""
    system, folder = file_system(into)
    name, held, rows = f"part-{RandomIds().lease_id()}.parquet", [], 0
    writer: pq.ParquetWriter | None = None
    for batch in batches:
        if writer is None:
            system.create_dir(folder, recursive=True)
            writer = pq.ParquetWriter(f"{folder}/{name}", batch.schema, filesystem=system)
        held.append(batch)
        rows += batch.num_rows
        if rows >= limits.ROW_GROUP_ROWS:
            writer.write_table(pa.Table.from_batches(held))
            held, rows = [], 0
    if writer is None:
        return None
    if held:
        writer.write_table(pa.Table.from_batches(held))
    writer.close()
    return name


def _described(
    system: pafs.FileSystem, files: list[pafs.FileInfo], folder: str, split_by: str | None
) -> Written:
    with ThreadPoolExecutor(limits.FOOTER_READERS_MAX) as pool:
        footers = list(pool.map(lambda info: pq.read_metadata(info.path, filesystem=system), files))
    adds = tuple(
        _add(info, f"{folder}/{info.path.rpartition(f'/{folder}/')[2]}", footer, split_by)
        for info, footer in zip(files, footers, strict=True)
        if footer.num_rows  # Spark writes one empty file for no rows at all
    )
    return Written(adds, sum(footer.num_rows for footer in footers))


def _add(
    info: pafs.FileInfo, path: str, footer: pq.FileMetaData, split_by: str | None
) -> AddAction:
    values: dict[str, str | None] = {}
    if split_by is not None:
        found = _SPLIT_VALUE.search(path)
        assert found is not None, path
        values[split_by] = found[1]
    return AddAction(
        path=path,
        size=info.size,
        partition_values=values,
        modification_time=info.mtime_ns // 1_000_000,
        data_change=True,
        stats=json.dumps(_statistics(footer)),
    )


def _statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """As Delta writes them. Any: values of whatever type a column has."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, index in _plain_columns(footer):
        chunks = [
            footer.row_group(g).column(index).statistics for g in range(footer.num_row_groups)
        ]
        if any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        known = [chunk for chunk in chunks if chunk.has_min_max]
        # A row group of nulls alone has no least value; one with values and no statistics would
        # make ours a lie.
        if len(known) != sum(chunk.num_values > 0 for chunk in chunks) or not known:
            continue
        low, high = min(c.min for c in known), max(c.max for c in known)
        if isinstance(low, str | int | float | datetime) and not isinstance(low, bool):
            least[name], most[name] = _down(low), _up(high)
    return {
        "numRecords": footer.num_rows,
        "minValues": least,
        "maxValues": most,
        "nullCount": nulls,
    }


def _plain_columns(footer: pq.FileMetaData) -> Iterator[tuple[str, int]]:
    for index in range(footer.num_columns):
        column = footer.schema.column(index)
        if "." not in column.path:
            yield column.path, index


# A text may have been cut and a time is written in whole milliseconds: what stands in the log must
# still be no more than the least and no less than the greatest.
def _down(value: Any) -> Any:
    if isinstance(value, datetime):
        return _stamp(value.replace(microsecond=value.microsecond // 1000 * 1000))
    return value[: limits.STATISTIC_CHARS_MAX] if isinstance(value, str) else value


def _up(value: Any) -> Any:
    if isinstance(value, datetime):
        cut = value.replace(microsecond=value.microsecond // 1000 * 1000)
        return _stamp(cut if cut == value else cut + timedelta(milliseconds=1))
    if isinstance(value, str) and len(value) > limits.STATISTIC_CHARS_MAX:
        return value[: limits.STATISTIC_CHARS_MAX] + "\U0010ffff"
    return value


def _stamp(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def values_in(table: str, paths: Iterable[str], column: str) -> frozenset[str]:
    """Of a column of texts of which there are few, in files below the table's folder."""
    system, root = file_system(table)
    found: set[str] = set()
    for path in paths:
        rows = pq.read_table(f"{root}/{path}", columns=[column], filesystem=system)
        found.update(rows[column].unique().to_pylist())
    return frozenset(found)


def ends_in(table: str, path: str) -> dict[str, tuple[int, int]]:
    """Of a file of events below the table's folder: shard to its first and last sequence there."""
    system, root = file_system(table)
    rows = pq.read_table(f"{root}/{path}", columns=["shard", "sequence"], filesystem=system)
    ends = rows.group_by("shard").aggregate([("sequence", "min"), ("sequence", "max")])
    return {row["shard"]: (row["sequence_min"], row["sequence_max"]) for row in ends.to_pylist()}


def subfolders(root: str, folder: str) -> list[str]:
    system, path = file_system(root)
    found = system.get_file_info(pafs.FileSelector(f"{path}/{folder}", allow_not_found=True))
    return sorted(info.base_name for info in found if info.type == pafs.FileType.Directory)
