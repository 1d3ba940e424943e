"""Shards whose rows lie in Parquet files of their own: read by the task that folds them, as Arrow.

Nothing crosses from the JVM to Python and nothing is shuffled or sorted, which is most of what a
replay costs otherwise. A file holds one shard, and no two of them the same stretch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from omnirelay.model import limits
from omnirelay.pipeline.delta_files import plain_address
from omnirelay.pipeline.replay_fold import (
    OUTCOME,
    Folding,
    Wanted,
    by_shard,
    fold_whole,
    without_collector,
)
from omnirelay.pipeline.replay_pieces import Bounds, FilePiece, groups_of, pieces_of, read_files
from omnirelay.pipeline.replay_rows import Unfit
from omnirelay.pipeline.replay_short import Astray, fold_piece

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

Files = Mapping[str, list[str]]
"""Of each shard, in the order of their sequences."""


@dataclass(frozen=True)
class Foldable:
    """Events as a replay takes them."""

    session: "SparkSession"
    rows: "Callable[[], DataFrame]"
    """All of them, in no order. Not asked for where there are files, unless something is wrong:
    Spark takes seconds to look at an archive."""
    files: Files | None = None
    """Where they are known to hold the same events."""


def of_archive(archive: str) -> Files | None:
    """None if it is in a bucket. Raises Unavailable if there is none. Of a damaged segment nothing
    is read: the fold finds the hole, and names it."""
    from omnirelay.pipeline.archive_reading import look_through
    from omnirelay.pipeline.shelf import is_bucket

    if is_bucket(archive):
        return None
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
    root = plain_address(table.table_uri)
    if any(len(shard) >= _CUT_CHARS for shard in known) or "://" in root:
        return None  # a long name is cut in the log; what is far away Spark reads better
    files: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: row["min.sequence"]):
        files.setdefault(row["min.shard"], []).append(f"{root}/{row['path']}")
    return files


_CUT_CHARS = 32


def folded_files(
    session: "SparkSession", files: Files, bounds: Bounds, wanted: Wanted, *, include_dead: bool
) -> "DataFrame":
    """One task a shard, the largest first; rows as `fold_shards` gives them."""
    chosen = [shard for shard in files if bounds.shard in (None, shard)]
    work = [(shard, files[shard]) for shard in sorted(chosen, key=lambda one: -len(files[one]))]

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in chain.from_iterable(batch.column("id").to_pylist() for batch in batches):
            shard, paths = work[number]
            yield from fold_files(shard, paths, bounds, wanted, include_dead=include_dead)

    # Numbers in partitions of one: a table of the work would have to be shuffled, and by its hash
    # two shards might be one task's while a core is idle.
    return session.range(0, len(work), 1, max(1, len(work))).mapInArrow(fold, OUTCOME)


def fold_files(
    shard: str, paths: list[str], bounds: Bounds, wanted: Wanted, *, include_dead: bool = True
) -> Iterator[pa.RecordBatch]:
    """What `fold_shards` gives for the rows of these files, which are all of one shard."""
    with without_collector():
        folding = _fold_short(shard, paths, bounds, remembers=wanted == "state")
        if folding is not None:
            yield from folding.outcome(wanted, include_dead=include_dead)
            return
        # From the beginning, so that damage is named as if there were no other way.
        for found, rows in by_shard(read_files(paths, bounds)):
            yield from fold_whole(found, rows).outcome(wanted, include_dead=include_dead)


def _fold_short(shard: str, paths: list[str], bounds: Bounds, *, remembers: bool) -> Folding | None:
    """None: not all was found to be as it should."""
    folding = Folding(shard)
    try:
        for piece in pieces_of(groups_of(paths), bounds):
            _fold_piece(folding, piece, remembers=remembers)
            if folding.damage is not None:
                return None
    except Astray:
        return None
    return folding if folding.state.sequence else None


def _fold_piece(folding: Folding, piece: FilePiece, *, remembers: bool) -> None:
    try:
        _check(piece, folding.shard)
        fold_piece(folding.state, piece, remembers=remembers)
    except Unfit:
        for batch in piece.whole():
            folding.add(batch)


def _check(piece: FilePiece, shard: str) -> None:
    if piece.count > limits.REPLAY_GROUP_ROWS_MAX:
        raise Unfit(f"a row group of {piece.count} rows")
    found = pc.unique(piece.read(["shard"])["shard"]).to_pylist()
    if any(name != shard for name in found):
        raise Astray(f"rows of {found}")
