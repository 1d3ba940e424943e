"""A piece of a shard's history as numbers: as much of each row as says which items come and go."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnirelay.lease.options import Rules
from omnirelay.lease.records import DEAD_LETTERED

if TYPE_CHECKING:
    from omnirelay.pipeline.replay_pieces import Piece

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

KINDS = (
    "Enqueue",
    "LeaseGranted",
    "Completed",
    "Released",
    "Failed",
    "Expired",
    "Heartbeat",
    "EpochStarted",
    "DrainSnapshot",
    "RestoreSnapshot",
    "Redriven",
    "Purged",
    "Refused",
    "Followed",
)
(
    ENQUEUED,
    GRANTED,
    COMPLETED,
    RELEASED,
    FAILED,
    EXPIRED,
    RENEWED,
    EPOCH,
    DRAINED,
    RESTORED,
    REDRIVEN,
    PURGED,
    REFUSED,
    FOLLOWED,
) = range(len(KINDS))
UNKNOWN = len(KINDS)

COLUMNS = (
    "sequence",
    "event_type",
    "timestamp",
    "sequence_id",
    "fence",
    "disposition",
    "fence_floor",
    "rules",
    "pending",
    "active",
)
_rules = msgspec.json.Decoder(Rules)


class Unfit(Exception):
    """Rows that only the whole fold may judge; nothing has been changed by them yet."""


@dataclass(frozen=True)
class Listed:
    """What the lists of rows hold, one after the other."""

    row: Numbers
    item: Numbers
    fence: Numbers


class Rows:
    """Rows are counted from 0; row `i` has the sequence `first + i`."""

    def __init__(self, piece: "Piece", after: int) -> None:
        """Raises Unfit unless the rows follow `after` without a gap, in time too: what ripens
        between two rows may only then be left to the later one."""
        self.piece = piece
        self._table = piece.read(COLUMNS, ("sequence_id", "fence"))
        self.count = self._table.num_rows
        self.first = after + 1
        self.at = self._times("timestamp")
        wanted = np.arange(self.first, self.first + self.count)
        if not np.array_equal(self.numbers("sequence"), wanted):
            raise Unfit("the sequences do not follow")
        if bool(np.any(np.diff(self.at) < 0)):
            raise Unfit("the clock went back")
        self.item, self.fence = self.numbers("sequence_id"), self.numbers("fence")
        self.kind = self._kinds()
        if bool(np.any(self.kind == UNKNOWN)):
            # Whose items it is about is not known either, so none may be left out.
            raise Unfit("a kind of event that is not known here")
        self.is_dead = self._dead_lettered()
        self.epochs = self._epochs()
        self.listed = self._listed()

    def numbers(self, name: str, null: int = 0) -> Numbers:
        if name not in self._table.column_names:
            return np.full(self.count, null, np.int64)
        return _numbers(_whole(self._table.column(name)), null)

    def texts(self, names: Sequence[str]) -> list[pa.Array]:
        """Of columns that are read for this."""
        table = self.piece.read(names)
        return [_texts(table, name) for name in names]

    def listed_texts(self, names: Sequence[str]) -> list[pa.Array]:
        """Of `listed`, one each; read for this."""
        table = self.piece.read((), names)
        if "items" not in table.column_names:
            return [pa.nulls(0, pa.string())] * len(names)
        values = pc.list_flatten(_whole(table.column("items")))
        return [_member(values, name, pa.string()) for name in names]

    def _times(self, name: str) -> Numbers:
        times = _whole(self._table.column(name))
        return _numbers(times.cast(pa.timestamp("ms", times.type.tz), safe=False), 0)

    def _kinds(self) -> npt.NDArray[np.int8]:
        encoded = _whole(self._table.column("event_type"))
        if not pa.types.is_dictionary(encoded.type):
            encoded = encoded.dictionary_encode()
        codes = pc.index_in(encoded.dictionary, pa.array(KINDS)).take(encoded.indices)
        return _numbers(codes, UNKNOWN).astype(np.int8)

    def _dead_lettered(self) -> Flags:
        found = pc.equal(_texts(self._table, "disposition"), DEAD_LETTERED).fill_null(False)
        ended = (self.kind == FAILED) | (self.kind == EXPIRED)
        return found.to_numpy(zero_copy_only=False) & ended  # type: ignore[no-any-return]

    def _epochs(self) -> list[tuple[int, Rules]]:
        """Where rules begin."""
        texts = _texts(self._table, "rules")
        found = np.flatnonzero(self.kind == EPOCH).tolist()
        try:
            return [(row, _rules.decode(texts[row].as_py() or b"")) for row in found]
        except msgspec.DecodeError as error:
            raise Unfit("rules that are no rules") from error

    def _listed(self) -> Listed:
        if "items" not in self._table.column_names:
            none = np.zeros(0, np.int64)
            return Listed(none, none, none)
        lists = _whole(self._table.column("items"))
        values, number = pc.list_flatten(lists), pa.int64()
        ids, fences = (_member(values, name, number) for name in ("sequence_id", "fence"))
        return Listed(
            _numbers(pc.list_parent_indices(lists), 0), _numbers(ids, 0), _numbers(fences, 0)
        )


def _member(values: pa.StructArray, name: str, type_: pa.DataType) -> pa.Array:
    place = values.type.get_field_index(name)
    if place < 0:
        return pa.nulls(len(values), type_)
    return pc.struct_field(values, place).cast(type_)


def _texts(table: pa.Table, name: str) -> pa.Array:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, pa.string())
    return _whole(table.column(name)).cast(pa.string())


def any_of(kinds: npt.NDArray[np.int8], wanted: Sequence[int]) -> Flags:
    chosen = np.zeros(UNKNOWN + 1, np.bool_)
    chosen[list(wanted)] = True
    return chosen[kinds]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    if not column.num_chunks:
        return pa.array([], column.type)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _numbers(array: pa.Array, null: int) -> Numbers:
    filled = array.fill_null(null) if array.null_count else array
    return filled.cast(pa.int64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
