"""Envelopes to rows of the event table, one field at a time: the exact reading that the fast ones
are held to, and what a handful of events goes through."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from omnirelay.journal.events import event_type
from omnirelay.journal.format import Envelope
from omnirelay.lease.records import (
    Completed,
    Drained,
    Enqueued,
    EpochStarted,
    Expired,
    Failed,
    Followed,
    Granted,
    Item,
    Purged,
    Redriven,
    Refused,
    Released,
    Renewed,
    Restored,
)
from omnirelay.model.items import ErrorInfo, Payload, to_time
from omnirelay.pipeline.schema import EVENT, VERSION

Row = dict[str, Any]  # Any: one row of mixed columns, named and typed by schema.EVENT


def rows_of(envelope: Envelope) -> Iterator[Row]:
    stamp = to_time(envelope.time)
    for index, (sequence, record) in enumerate(envelope.numbered()):
        row: Row = dict.fromkeys(EVENT)
        row.update(_COLUMNS[type(record)](record))
        row.update(
            shard=envelope.shard,
            sequence=sequence,
            event_type=event_type(record),
            timestamp=stamp,
            epoch=envelope.epoch,
            node=envelope.node,
            proof=getattr(record, "proof", None),
            pending=envelope.pending[index],
            active=envelope.active[index],
            envelope_first=envelope.first,
            envelope_last=envelope.last,
            envelope_checksum=envelope.checksum,
            envelope_prev=envelope.prev,
            schema_version=VERSION,
        )
        yield row


def _epoch(record: EpochStarted) -> Row:
    return {"origin": record.origin, "rules": msgspec.json.encode(record.rules).decode()}


def _enqueued(record: Enqueued) -> Row:
    return {
        **_payload(record.payload),
        "sequence_id": record.sequence_id,
        "attempt": 1,
        "priority": record.priority,
        "available_at": _time(record.available_at),
        "max_attempts": record.max_attempts or None,
        "lease_ms": record.lease_ms or None,
        "peer_id": record.peer_id,
        "principal": record.principal,
    }


def _payload(payload: Payload) -> Row:
    return {
        "resource_type": payload.resource_type,
        "resource_id": payload.resource_id,
        "partition_key": payload.partition_key,
        "payload_encoding": payload.payload_encoding,
        "body": payload.body,
        "attributes": payload.attributes,
        "request_id": payload.request_id,
    }


def _error(error: ErrorInfo | None) -> Row:
    return {
        "error_message": error.message if error else None,
        "error_code": error.code if error else None,
    }


def _time(ms: int) -> Any:
    """0 is how the journal says "at once": no time."""
    return to_time(ms) if ms else None


def _owned(record: Granted | Completed | Failed | Expired | Released) -> Row:
    return {
        "sequence_id": record.sequence_id,
        "attempt": record.attempt,
        "lease_id": record.lease_id,
        "fence": record.fence,
        "peer_id": record.peer_id,
        "principal": record.principal,
    }


def _granted(record: Granted) -> Row:
    return {
        **_owned(record),
        "expires_at": to_time(record.expires_at),
        "lease_ms": record.lease_ms,
        "lease_request_id": record.request_id,
    }


def _failed(record: Failed) -> Row:
    return {
        **_owned(record),
        **_error(record.error),
        "disposition": record.disposition,
        "available_at": _time(record.available_at),
        "details": record.details,
    }


def _expired(record: Expired) -> Row:
    return {**_owned(record), **_error(record.error), "disposition": record.disposition}


def _renewed(record: Renewed) -> Row:
    beats = [
        {"sequence_id": sequence_id, "fence": fence, "expires_at": to_time(expires_at)}
        for sequence_id, fence, expires_at in record.beats
    ]
    return {"peer_id": record.peer_id, "principal": record.principal, "items": beats}


def _moved(record: Drained | Restored) -> Row:
    floor = record.fence_floor if isinstance(record, Restored) else None
    return {
        "peer_id": record.peer_id,
        "principal": record.principal,
        "items": [_item(item) for item in record.items],
        "fence_floor": floor,
    }


def _item(item: Item) -> Row:
    token = item.last_token
    return {
        **_payload(item.payload),
        **_error(item.last_error),
        "sequence_id": item.sequence_id,
        "attempt": item.attempt,
        "enqueued_at": to_time(item.enqueued_at),
        "priority": item.priority,
        "available_at": _time(item.available_at),
        "max_attempts": item.max_attempts or None,
        "lease_ms": item.lease_ms or None,
        "dead": item.dead,
        "origin": item.origin,
        "last_attempt": token.attempt if token else None,
        "last_lease_id": token.lease_id if token else None,
        "last_fence": token.fence if token else None,
    }


def _redriven(record: Redriven) -> Row:
    return {**_named(record), "extra_attempts": record.extra_attempts}


def _named(record: Redriven | Purged) -> Row:
    return {
        "peer_id": record.peer_id,
        "principal": record.principal,
        "items": [{"sequence_id": sequence_id} for sequence_id in record.sequence_ids],
    }


def _refused(record: Refused) -> Row:
    return {
        "sequence_id": record.sequence_id,
        "attempt": record.attempt,
        "lease_id": record.lease_id,
        "peer_id": record.peer_id,
        "principal": record.principal,
        "error_code": record.code,
        "details": {"verb": record.verb, "times": str(record.times)},
    }


def _followed(record: Followed) -> Row:
    told = {"reader": record.reader, "position": str(record.position)}
    told |= {"sequence_lag": str(record.sequence_lag), "lag_ms": str(record.lag_ms)}
    return {"details": told}


# Any: each function takes its own record type; the key is that type.
_COLUMNS: dict[type, Callable[[Any], Row]] = {
    EpochStarted: _epoch,
    Enqueued: _enqueued,
    Granted: _granted,
    Renewed: _renewed,
    Completed: _owned,
    Failed: _failed,
    Expired: _expired,
    Released: _owned,
    Drained: _moved,
    Restored: _moved,
    Redriven: _redriven,
    Purged: _named,
    Refused: _refused,
    Followed: _followed,
}
