"""Stretches of one shard's rows, from which a fold reads first what matters, then what it needs."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate, chain, pairwise
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnirelay.pipeline.replay_rows import Flags, Numbers

FOLDED = (
    "shard, sequence, event_type, timestamp, epoch, node, sequence_id, attempt, lease_id, fence,"
    " expires_at, lease_ms, available_at, priority, max_attempts, peer_id, principal,"
    " lease_request_id, resource_type, resource_id, partition_key, payload_encoding, body,"
    " attributes, request_id, error_message, error_code, disposition, items, fence_floor,"
    " extra_attempts, origin, rules, pending, active"
)
"""The columns a state can depend on. Proofs, and an envelope's seal, are not among them."""
_names = tuple(name.strip() for name in FOLDED.split(","))
_MADE_OF = tuple(name for name in _names if name not in ("shard", "pending", "active"))
"""Columns that a record is made of."""
_WORDS = [
    *("shard", "event_type", "node", "peer_id", "principal", "disposition", "origin", "rules"),
    *("resource_type", "resource_id", "partition_key", "payload_encoding"),
    *("error_message", "error_code"),
]
"""Texts of which there are few: they stay numbers until it is known which rows are wanted."""
PIECE_ROWS = 500_000
"""What lives on from one piece to the next is folded row by row, so few and long ones are quicker;
a row costs some 200 bytes while it is looked at."""
_BATCH_ROWS = 16_384


class Piece(Protocol):
    def read(self, names: Sequence[str], listed: Sequence[str] = ()) -> pa.Table:
        """These columns as far as they are there; of what stands in `items` those in `listed`."""

    def rows(self, first: int, is_kept: Flags) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
        """The rows for which `is_kept` says so, as columns that a record is made of, and how many
        rows after the one with the sequence `first` each of them is."""

    def whole(self) -> Iterator[pa.RecordBatch]:
        """All rows, with all columns a fold looks at."""


class HeldPiece:
    """Rows that are in memory."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches

    def read(self, names: Sequence[str], listed: Sequence[str] = ()) -> pa.Table:
        table = pa.Table.from_batches(self._batches)
        wanted = {*names, "items"} if listed else set(names)
        return table.select([name for name in table.column_names if name in wanted])

    def rows(self, first: int, is_kept: Flags) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
        return _chosen(self._batches, first, is_kept)

    def whole(self) -> Iterator[pa.RecordBatch]:
        return iter(self._batches)


def _chosen(
    batches: Iterable[pa.RecordBatch], first: int, is_kept: Flags
) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
    """Gathered into batches that are worth making records of."""
    held: list[tuple[Numbers, pa.RecordBatch]] = []
    for batch in batches:
        place = batch.column("sequence").to_numpy(zero_copy_only=False) - first
        is_chosen = (place >= 0) & (place < len(is_kept))
        is_chosen[is_chosen] = is_kept[place[is_chosen]]
        if is_chosen.any():
            held.append((place[is_chosen], _in_words(batch.filter(pa.array(is_chosen)))))
        if sum(len(one) for one, _ in held) >= _BATCH_ROWS:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(held: list[tuple[Numbers, pa.RecordBatch]]) -> tuple[Numbers, pa.RecordBatch]:
    places, batches = zip(*held, strict=True)
    return np.concatenate(places), pa.concat_batches(batches)


def _in_words(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


# -- files --------------------------------------------------------------------------------------


class Bounds(msgspec.Struct, frozen=True):
    """Up to where, and of which shard; None: all there is."""

    shard: str | None = None
    sequence: int | None = None
    time: datetime | None = None

    def columns(self) -> list[str]:
        """Those that they bound."""
        bounding = [("sequence", self.sequence), ("timestamp", self.time)]
        return [name for name, bound in bounding if bound is not None]

    def of(self, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
        if self.sequence is not None:
            rows = rows.filter(pc.less_equal(rows["sequence"], self.sequence))
        if self.time is not None:
            stamp = pa.scalar(self.time, rows.schema.field("timestamp").type)
            rows = rows.filter(pc.less_equal(rows["timestamp"], stamp))
        return rows


class Group(NamedTuple):
    """A row group: what of a file can be read by itself."""

    file: pq.ParquetFile
    place: int
    size: int
    """Rows."""


def groups_of(paths: Iterable[str]) -> Iterator[Group]:
    for path in paths:
        file = pq.ParquetFile(path, read_dictionary=_WORDS)
        for place in range(file.num_row_groups):
            yield Group(file, place, file.metadata.row_group(place).num_rows)


def pieces_of(groups: Iterable[Group], bounds: Bounds) -> "Iterator[FilePiece]":
    """As many row groups at a time as have `PIECE_ROWS` rows; one that has more is alone."""
    held: list[Group] = []
    for group in groups:
        if held and sum(one.size for one in held) + group.size > PIECE_ROWS:
            yield FilePiece(held, bounds)
            held = []
        held.append(group)
    if held:
        yield FilePiece(held, bounds)


class FilePiece:
    """Some row groups, as far as `bounds` goes."""

    def __init__(self, groups: list[Group], bounds: Bounds) -> None:
        self._groups = groups
        self._bounds = bounds
        self._counts: list[int] = []
        """Rows of each group within the bounds."""
        self.count = sum(group.size for group in groups)

    def read(self, names: Sequence[str], listed: Sequence[str] = ()) -> pa.Table:
        wanted = {*names, *self._bounds.columns()}
        tables = [
            self._bounds.of(
                group.file.read_row_group(
                    group.place, _paths(group, wanted, listed), use_threads=False
                )
            )
            for group in self._groups
        ]
        self._counts = [table.num_rows for table in tables]
        return pa.concat_tables(tables, promote_options="permissive")

    def rows(self, first: int, is_kept: Flags) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
        ends = pairwise(accumulate(self._counts, initial=0))
        groups = [
            group
            for group, (start, end) in zip(self._groups, ends, strict=True)
            if is_kept[start:end].any()
        ]
        batches = chain.from_iterable(self._batches(group, _MADE_OF) for group in groups)
        return _chosen(batches, first, is_kept)

    def whole(self) -> Iterator[pa.RecordBatch]:
        for group in self._groups:
            yield from map(_in_words, self._batches(group, _names))

    def _batches(self, group: Group, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        known = set(group.file.schema_arrow.names)
        columns = [name for name in names if name in known]
        for batch in group.file.iter_batches(
            _BATCH_ROWS, [group.place], columns, use_threads=False
        ):
            within = self._bounds.of(batch)
            if within.num_rows:
                yield within


def _paths(group: Group, names: set[str], listed: Sequence[str]) -> list[str]:
    """Of the columns, among them those of what `items` hold: `items.list.element.fence`."""
    schema = group.file.schema
    paths = [schema.column(place).path for place in range(len(schema))]
    parts = [path.split(".") for path in paths]
    return [
        path
        for path, (name, *below) in zip(paths, parts, strict=True)
        if (name in names and not below)
        or (name == "items" and len(below) == _BELOW_ITEMS and below[-1] in listed)
    ]


_BELOW_ITEMS = 3
"""Parts of such a path below `items`; what lies deeper belongs to a map."""


def read_files(paths: Iterable[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """All rows, batch by batch."""
    for path in paths:
        file = pq.ParquetFile(path)
        known = set(file.schema_arrow.names)
        for batch in file.iter_batches(_BATCH_ROWS, columns=[n for n in _names if n in known]):
            within = bounds.of(batch)
            if within.num_rows:
                yield within
