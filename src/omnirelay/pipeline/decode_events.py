"""Events as a node tells them to Arrow columns: parsed by msgspec into the journal's own events,
then turned over, so that Python builds columns and never a row.

An event tells less than its record: what it leaves out (envelopes, rules, plans of an item that was
handed in, durations) is null.
"""

from collections.abc import Sequence

import pyarrow as pa

from omnirelay.journal.events import PROOF, Event
from omnirelay.pipeline.decode_records import (
    ERROR,
    PAYLOAD,
    Make,
    Turned,
    always,
    as_it_is,
    listed,
    same,
    text_maps,
)
from omnirelay.pipeline.decode_types import ITEM, TYPES
from omnirelay.pipeline.schema import VERSION

_OURS = frozenset(["queue.pending", "queue.active", "shard.id", PROOF])
"""What every event has among its metadata, and no record among its details."""
_EPOCH = "EpochStarted"


def batch_of_events(events: Sequence[Event], names: Sequence[str]) -> pa.RecordBatch:
    """Rows in the order of the events."""
    schema = pa.schema([(name, TYPES[name]) for name in names])
    if not names:  # a count needs rows, and Arrow keeps none without a column
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(events), pa.struct([])))
    turned = Turned(events)
    columns = [
        _EVENT[name](turned, TYPES[name]) if name in _EVENT else pa.nulls(len(events), TYPES[name])
        for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _told(name: str) -> Make:
    """One entry of the metadata; a number is written as text there."""

    def make(turned: Turned, kind: pa.DataType) -> pa.Array:
        texts = [metadata.get(name) for metadata in turned.member("metadata")]
        return pa.array(texts, pa.string()).cast(kind)

    return make


def _origin(turned: Turned, kind: pa.DataType) -> pa.Array:
    told = zip(turned.member("event_type"), turned.member("metadata"), strict=True)
    return pa.array([data.get("origin") if one == _EPOCH else None for one, data in told], kind)


def _details(turned: Turned, kind: pa.DataType) -> pa.Array:
    told = zip(turned.member("event_type"), turned.member("metadata"), strict=True)
    return text_maps([None if one == _EPOCH else _rest(metadata) for one, metadata in told], kind)


def _rest(metadata: dict[str, str]) -> dict[str, str] | None:
    if metadata.keys() <= _OURS:
        return None
    return {name: value for name, value in metadata.items() if name not in _OURS}


def _items(turned: Turned, kind: pa.DataType) -> pa.Array:
    groups = turned.member("items")
    if not any(groups) and [] not in groups:
        return pa.nulls(len(groups), kind)
    flat = Turned([item for group in groups for item in group or ()])
    columns = {name: make(flat, ITEM.field(name).type) for name, make in _ITEM.items()}
    return listed(groups, columns, flat.count)


def _if_whole(name: str) -> Make:
    """What has a default means something only of an item that is told whole."""

    def make(turned: Turned, kind: pa.DataType) -> pa.Array:
        told = zip(turned.member("payload"), turned.member(name), strict=True)
        return pa.array([None if payload is None else value for payload, value in told], kind)

    return make


_ITEM: dict[str, Make] = {
    **PAYLOAD,
    **same("sequence_id", "attempt", "enqueued_at", "available_at", "max_attempts", "origin"),
    **same("fence", "expires_at"),
    "priority": _if_whole("priority"),
    "lease_ms": as_it_is("lease_duration_ms"),
    "dead": _if_whole("dead_letter"),
    "error_message": as_it_is("last_error.message"),
    "error_code": as_it_is("last_error.code"),
    "last_attempt": as_it_is("last_ownership_token.attempt"),
    "last_lease_id": as_it_is("last_ownership_token.lease_id"),
    "last_fence": as_it_is("last_ownership_token.fence"),
}
_EVENT: dict[str, Make] = {
    **PAYLOAD,
    **ERROR,
    **same("shard", "event_type", "timestamp", "epoch", "node", "sequence_id", "attempt", "fence"),
    **same("expires_at", "peer_id", "principal", "disposition"),
    "sequence": as_it_is("sequence_number"),
    "lease_id": as_it_is("ownership.lease_id"),
    "proof": _told(PROOF),
    "pending": _told("queue.pending"),
    "active": _told("queue.active"),
    "origin": _origin,
    "details": _details,
    "items": _items,
    "schema_version": always(VERSION),
}
