"""A journal as the world sees it: one event per record, with the field names of CONTRACT §5."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from omnirelay.journal.format import Envelope
from omnirelay.lease.deciding_moves import from_item
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
    Record,
    Redriven,
    Refused,
    Released,
    Renewed,
    Restored,
)
from omnirelay.model.items import ErrorInfo, Payload, PendingItem, Token, to_time

PROOF = "principal.proof"


class EventItem(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """One of several items an event is about: whole where it moved in or out, else only its id."""

    sequence_id: int
    payload: Payload | None = None
    attempt: int | None = None
    enqueued_at: datetime | None = None
    last_error: ErrorInfo | None = None
    last_ownership_token: Token | None = None
    dead_letter: bool = False
    available_at: datetime | None = None
    priority: int = 0
    max_attempts: int | None = None
    lease_duration_ms: int | None = None
    origin: str | None = None
    fence: int | None = None
    expires_at: datetime | None = None


class Event(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    sequence_number: int
    event_type: str
    timestamp: datetime
    shard: str
    epoch: int
    node: str
    sequence_id: int | None = None
    attempt: int | None = None
    ownership: Token | None = None
    fence: int | None = None
    expires_at: datetime | None = None
    peer_id: str | None = None
    principal: str | None = None
    payload: Payload | None = None
    error: ErrorInfo | None = None
    disposition: str | None = None
    items: list[EventItem] | None = None
    metadata: dict[str, str]


def events_of(envelope: Envelope) -> Iterator[Event]:
    stamp = to_time(envelope.time)
    for index, (number, record) in enumerate(envelope.numbered()):
        fields = _FIELDS[type(record)](record)
        metadata = {
            **(fields.pop("metadata", None) or {}),
            **_proof(record),
            "queue.pending": str(envelope.pending[index]),
            "queue.active": str(envelope.active[index]),
            "shard.id": envelope.shard,
        }
        yield Event(
            sequence_number=number,
            event_type=event_type(record),
            timestamp=stamp,
            shard=envelope.shard,
            epoch=envelope.epoch,
            node=envelope.node,
            metadata=metadata,
            **fields,
        )


def _proof(record: Record) -> dict[str, str]:
    """Which certificate or token proved the principal: its digest, for the audit."""
    proof = None if isinstance(record, EpochStarted | Expired | Followed) else record.proof
    return {} if proof is None else {PROOF: proof}


def event_type(record: Record) -> str:
    return str(type(record).__struct_config__.tag)


def encode_event(event: Event) -> bytes:
    return _encoder.encode(event)


def decode_event(data: bytes | str) -> Event:
    return _decoder.decode(data)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)

Fields = dict[str, Any]  # Any: keyword arguments of Event, which checks them


def _epoch_started(record: EpochStarted) -> Fields:
    return {"metadata": {"origin": record.origin}}


def _enqueued(record: Enqueued) -> Fields:
    return {
        "sequence_id": record.sequence_id,
        "attempt": 1,
        "payload": record.payload,
        "peer_id": record.peer_id,
        "principal": record.principal,
    }


def _owned(record: Granted | Completed | Failed | Expired | Released) -> Fields:
    return {
        "sequence_id": record.sequence_id,
        "attempt": record.attempt,
        "ownership": Token(record.sequence_id, record.attempt, record.lease_id, record.fence),
        "fence": record.fence,
        "peer_id": record.peer_id,
        "principal": record.principal,
    }


def _granted(record: Granted) -> Fields:
    return {**_owned(record), "expires_at": to_time(record.expires_at)}


def _renewed(record: Renewed) -> Fields:
    return {
        "peer_id": record.peer_id,
        "principal": record.principal,
        "items": [
            EventItem(sequence_id=sequence_id, fence=fence, expires_at=to_time(expires_at))
            for sequence_id, fence, expires_at in record.beats
        ],
    }


def _failed(record: Failed) -> Fields:
    return {
        **_owned(record),
        "error": record.error,
        "disposition": record.disposition,
        "metadata": record.details,
    }


def _expired(record: Expired) -> Fields:
    return {**_owned(record), "error": record.error, "disposition": record.disposition}


def _moved(record: Drained | Restored) -> Fields:
    return {
        "peer_id": record.peer_id,
        "principal": record.principal,
        "items": [_whole(item) for item in record.items],
    }


def _whole(item: Item) -> EventItem:
    pending = from_item(item)
    return EventItem(**{name: getattr(pending, name) for name in PendingItem.__struct_fields__})


def _named(record: Redriven | Purged) -> Fields:
    return {
        "peer_id": record.peer_id,
        "principal": record.principal,
        "items": [EventItem(sequence_id=sequence_id) for sequence_id in record.sequence_ids],
    }


def _refused(record: Refused) -> Fields:
    times = "once" if record.times == 1 else f"{record.times} times"
    fields: Fields = {
        "sequence_id": record.sequence_id,
        "attempt": record.attempt,
        "peer_id": record.peer_id,
        "principal": record.principal,
        "error": ErrorInfo(f"{record.verb} was refused {times}", record.code),
        "metadata": {"verb": record.verb, "times": str(record.times)},
    }
    if record.sequence_id is not None and record.attempt is not None and record.lease_id:
        fields["ownership"] = Token(record.sequence_id, record.attempt, record.lease_id)
    return fields


def _followed(record: Followed) -> Fields:
    return {
        "metadata": {
            "reader": record.reader,
            "position": str(record.position),
            "sequence_lag": str(record.sequence_lag),
            "lag_ms": str(record.lag_ms),
        }
    }


# Any: each function takes its own record type; the key is that type.
_FIELDS: dict[type, Callable[[Any], Fields]] = {
    EpochStarted: _epoch_started,
    Enqueued: _enqueued,
    Granted: _granted,
    Renewed: _renewed,
    Completed: _owned,
    Failed: _failed,
    Expired: _expired,
    Released: _owned,
    Drained: _moved,
    Restored: _moved,
    Redriven: _named,
    Purged: _named,
    Refused: _refused,
    Followed: _followed,
}
