"""Rows between two positions of every shard, and all rows of a change."""

from typing import TYPE_CHECKING

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.datasets import Change, Dataset, Positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def moving(after: Positions, upto: Positions) -> dict[str, tuple[int, int]]:
    """The shards that have something new: from which sequence (not included) to which."""
    return {
        shard: (after.get(shard, 0), last)
        for shard, last in sorted(upto.items())
        if last > after.get(shard, 0)
    }


def open_or_after(rows: "DataFrame", after: Positions) -> "DataFrame":
    """Rows of a carry table that are open or ended after the positions; shards that are not named
    are new. With very many shards all rows, and whoever asked looks for itself."""
    if not after or len(after) > limits.BOUNDS_IN_WORDS_MAX:
        return rows
    ended = [
        f"(shard = {quoted(shard)} AND ended_sequence > {last})" for shard, last in after.items()
    ]
    listed = ", ".join(map(quoted, after))
    return rows.where(f"state = 'open' OR {' OR '.join(ended)} OR shard NOT IN ({listed})")


def between(rows: "DataFrame", after: Positions, upto: Positions) -> "DataFrame":
    bounds = moving(after, upto)
    if len(bounds) <= limits.BOUNDS_IN_WORDS_MAX:
        return rows.where(in_words(bounds))
    from pyspark.sql import functions as f

    listed = rows.sparkSession.createDataFrame(
        [(shard, low, high) for shard, (low, high) in bounds.items()],
        "shard string, after_sequence bigint, upto_sequence bigint",
    )
    joined = rows.join(f.broadcast(listed), "shard").where(
        "sequence > after_sequence AND sequence <= upto_sequence"
    )
    return joined.select(*rows.columns)


def in_words(bounds: dict[str, tuple[int, int]]) -> str:
    """A predicate, which Spark pushes down into the files."""
    parts = [
        f"(shard = {quoted(shard)} AND sequence > {low} AND sequence <= {high})"
        for shard, (low, high) in bounds.items()
    ]
    return " OR ".join(parts) or "false"


def quoted(text: str) -> str:
    """A Spark SQL literal of any text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def all_rows(dataset: Dataset, change: Change) -> "DataFrame | None":
    if dataset.kind == "append" and (change.replace is not None or change.rows is not None):
        raise InvalidOption(f"{dataset.name}: an append table replaces nothing")
    if dataset.kind != "carry" and change.rows is not None:
        raise InvalidOption(f"{dataset.name}: `rows` is for carry tables")
    frames = [frame for frame in (change.append, change.replace, change.rows) if frame is not None]
    if not frames:
        return None
    return together(frames)


def together(frames: "list[DataFrame]") -> "DataFrame":
    first, *others = frames
    for other in others:
        first = first.unionByName(other)
    return first
