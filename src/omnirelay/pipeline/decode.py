"""Envelopes to Arrow columns: parsed by msgspec into the core's own records, then turned over a
kind at a time, so that Python builds columns and never a row.

Exact because it reads with the core's eyes: what `journal.format.unseal` makes of an envelope is
what `testing.event_rows.rows_of` would say of it (docs/adr/0009).
"""

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnirelay.journal.format import Envelope
from omnirelay.pipeline.decode_records import COLUMNS, KINDS, Turned, times
from omnirelay.pipeline.decode_types import TYPES
from omnirelay.pipeline.schema import VERSION

if TYPE_CHECKING:
    from omnirelay.lease.records import Record

_CODES = {kind: code for code, kind in enumerate(KINDS)}
_TAGS = [str(kind.__struct_config__.tag) for kind in KINDS]
EVENT_TYPES = frozenset(_TAGS)

Index = npt.NDArray[np.int64]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows and columns of the envelopes are wanted."""

    names: tuple[str, ...] = tuple(TYPES)
    after: int = 0
    through: int = (1 << 63) - 1
    event_types: Collection[str] | None = None


def batch_of(envelopes: Sequence[Envelope], part: Part) -> pa.RecordBatch:
    """Rows in the order of the envelopes. Raises OverflowError, pa.ArrowInvalid or InvalidArgument
    if a number in them fits no table."""
    table = _Table(envelopes, part)
    columns = [table.column(name) for name in part.names]
    schema = pa.schema([(name, TYPES[name]) for name in part.names])
    if not columns:  # a count needs rows, and Arrow keeps none without a column
        return pa.RecordBatch.from_struct_array(pa.array([{}] * table.count, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Table:
    def __init__(self, envelopes: Sequence[Envelope], part: Part) -> None:
        self._envelopes = envelopes
        records = list(chain.from_iterable(e.records for e in envelopes))
        lengths = np.array([len(e.records) for e in envelopes], np.int64)
        ends = np.cumsum(lengths)
        firsts = np.array([e.first for e in envelopes], np.int64)
        sequence = np.repeat(firsts - ends + lengths, lengths) + np.arange(len(records))
        codes = np.fromiter(map(_CODES.__getitem__, map(type, records)), np.int64, len(records))
        keep = (sequence > part.after) & (sequence <= part.through)
        self._wanted = {
            code
            for code, tag in enumerate(_TAGS)
            if part.event_types is None or tag in part.event_types
        }
        if part.event_types is not None:
            keep &= np.isin(codes, list(self._wanted))
        self._keep = np.flatnonzero(keep)
        self._is_all = len(self._keep) == len(records)
        self._sequence = sequence[self._keep]
        self._codes = codes[self._keep]
        self._envelope = np.repeat(np.arange(len(envelopes)), lengths)[self._keep]
        self.count = len(self._keep)
        self._group(records, codes)

    def _group(self, records: "list[Record]", codes: Index) -> None:
        """Records of a kind together; `_back` finds a row's place among them."""
        order = np.argsort(codes, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        self._back = place[self._keep]
        grouped = [records[index] for index in order.tolist()]
        self._groups: list[tuple[int, Turned | None, int]] = []
        start = 0
        for code, count in enumerate(np.bincount(codes, minlength=len(KINDS)).tolist()):
            if count:
                members = grouped[start : start + count]
                turned = Turned(members) if code in self._wanted else None
                self._groups.append((code, turned, count))
                start += count

    def column(self, name: str) -> pa.Array:
        if name in _OF_THE_ENVELOPE:
            values = [_OF_THE_ENVELOPE[name](envelope) for envelope in self._envelopes]
            kind = TYPES[name]
            array = times(values, kind) if name == "timestamp" else pa.array(values, kind)
            return array.take(pa.array(self._envelope))
        match name:
            case "sequence":
                return pa.array(self._sequence)
            case "event_type":
                return pa.array(_TAGS, pa.string()).take(pa.array(self._codes))
            case "pending" | "active":
                return self._depths(name)
            case "schema_version":
                return pa.repeat(pa.scalar(VERSION, pa.int32()), self.count)
        return self._of_the_records(name)

    def _depths(self, name: str) -> pa.Array:
        flat = chain.from_iterable(getattr(envelope, name) for envelope in self._envelopes)
        array = pa.array(list(flat), pa.int64())
        return array if self._is_all else array.take(pa.array(self._keep))

    def _of_the_records(self, name: str) -> pa.Array:
        kind = TYPES[name]
        pieces, has_any = [], False
        for code, turned, count in self._groups:
            make = COLUMNS[KINDS[code]].get(name)
            if make is None or turned is None:
                pieces.append(pa.nulls(count, kind))
            else:
                pieces.append(make(turned, kind))
                has_any = True
        if not has_any:
            return pa.nulls(self.count, kind)
        return pa.concat_arrays(pieces).take(pa.array(self._back))


# Any: each member has its own type; TYPES says which.
_OF_THE_ENVELOPE: dict[str, Callable[[Envelope], Any]] = {
    "shard": lambda envelope: envelope.shard,
    "timestamp": lambda envelope: envelope.time,
    "epoch": lambda envelope: envelope.epoch,
    "node": lambda envelope: envelope.node,
    "envelope_first": lambda envelope: envelope.first,
    "envelope_last": lambda envelope: envelope.last,
    "envelope_checksum": lambda envelope: envelope.checksum,
    "envelope_prev": lambda envelope: envelope.prev,
}
