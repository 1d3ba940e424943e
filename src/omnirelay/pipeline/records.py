"""Rows of the event table back to the records they came from: the inverse of `rows`.

Columns become lists once a batch and records are built by position, kind by kind. A dictionary a
row would cost more than the fold that the records are for.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise, repeat
from typing import TypeVar

import msgspec
import pyarrow as pa

from omnirelay.lease.options import Rules
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
from omnirelay.model.errors import InvalidArgument
from omnirelay.model.items import ErrorInfo, Payload, Token
from omnirelay.pipeline.columns import Columns

T = TypeVar("T")
Records = Iterator[Record]
_rules = msgspec.json.Decoder(Rules)


def records_of(batch: pa.RecordBatch) -> list[Record]:
    """One record a row, in the rows' order. Raises InvalidArgument for an unknown event type."""
    columns = Columns.of_batch(batch)
    made: list[Record | None] = [None] * columns.count
    for kind, rows in columns.rows_of_each("event_type").items():
        if kind not in _MAKERS:
            raise InvalidArgument(f"event type {kind!r} is not known here: upgrade")
        make, names = _MAKERS[kind]
        for at, record in zip(
            rows.to_numpy().tolist(), make(columns.only(names).take(rows)), strict=True
        ):
            made[at] = record
    return made  # type: ignore[return-value]  # every row has had its turn


def _epochs(rows: Columns) -> Records:
    rules = map(_rules.decode, rows.texts("rules"))
    return map(EpochStarted, rows.numbers("epoch"), rows.words("node"), rows.words("origin"), rules)


def _enqueued(rows: Columns) -> Records:
    return map(
        Enqueued,
        rows.numbers("sequence_id"),
        _payloads(rows),
        rows.numbers("priority"),
        rows.times("available_at"),
        rows.numbers("max_attempts"),
        rows.numbers("lease_ms"),
        rows.words("peer_id"),
        rows.words("principal"),
        rows.words("proof"),
    )


def _payloads(rows: Columns) -> Iterator[Payload]:
    return map(
        Payload,
        rows.words("resource_type"),
        rows.texts("resource_id"),
        rows.words("partition_key"),
        rows.words("payload_encoding"),
        rows.texts("body"),
        rows.maps("attributes"),
        rows.texts("request_id"),
    )


def _errors(rows: Columns) -> Iterator[ErrorInfo]:
    return map(ErrorInfo, rows.texts("error_message"), rows.words("error_code"))


def _owned(rows: Columns) -> tuple[list[int], list[int], list[str], list[int]]:
    return (
        rows.numbers("sequence_id"),
        rows.numbers("attempt"),
        rows.texts("lease_id"),
        rows.numbers("fence"),
    )


def _by(rows: Columns) -> tuple[list[str | None], list[str], list[str | None]]:
    return rows.words("peer_id"), rows.words("principal"), rows.words("proof")


def _by_and_peer(rows: Columns) -> tuple[list[str], list[str | None], list[str | None]]:
    """In the order of records of many items, which were given a peer later."""
    peers, principals, proofs = _by(rows)
    return principals, proofs, peers


def _granted(rows: Columns) -> Records:
    peers, principals, proofs = _by(rows)
    times = (rows.times("expires_at"), rows.numbers("lease_ms"))
    asked = rows.texts("lease_request_id")
    return map(Granted, *_owned(rows), *times, peers, principals, asked, proofs)


def _completed(rows: Columns) -> Records:
    return map(Completed, *_owned(rows), *_by(rows))


def _released(rows: Columns) -> Records:
    return map(Released, *_owned(rows), *_by(rows))


def _failed(rows: Columns) -> Records:
    return map(
        Failed,
        *_owned(rows),
        _errors(rows),
        rows.words("disposition"),
        rows.times("available_at"),
        rows.maps("details"),
        *_by(rows),
    )


def _expired(rows: Columns) -> Records:
    peers, principals, _ = _by(rows)
    return map(Expired, *_owned(rows), _errors(rows), rows.words("disposition"), peers, principals)


def _renewed(rows: Columns) -> Records:
    beats, ends = rows.lists("items")
    named = beats.numbers("sequence_id"), beats.numbers("fence"), beats.times("expires_at")
    groups = _groups(list(zip(*named, strict=True)), ends)
    return map(Renewed, groups, *_by_and_peer(rows))


def _drained(rows: Columns) -> Records:
    return map(Drained, _item_groups(rows), *_by_and_peer(rows))


def _restored(rows: Columns) -> Records:
    floors = rows.numbers("fence_floor")
    return map(Restored, _item_groups(rows), floors, *_by_and_peer(rows))


def _redriven(rows: Columns) -> Records:
    items, ends = rows.lists("items")
    ids = _groups(items.numbers("sequence_id"), ends)
    return map(Redriven, ids, rows.numbers("extra_attempts"), *_by_and_peer(rows))


def _purged(rows: Columns) -> Records:
    items, ends = rows.lists("items")
    ids = _groups(items.numbers("sequence_id"), ends)
    return map(Purged, ids, *_by_and_peer(rows))


def _refused(rows: Columns) -> Records:
    # A replay leaves out what no state holds, and no state holds anything of these.
    details = [one or {} for one in rows.maps("details")]
    return map(
        Refused,
        [one.get("verb", "") for one in details],
        rows.words("error_code"),
        [int(one.get("times", 0)) for one in details],
        rows.numbers_or_none("sequence_id"),
        rows.numbers_or_none("attempt"),
        rows.texts("lease_id"),
        *_by(rows),
    )


def _followed(rows: Columns) -> Records:
    told = [one or {} for one in rows.maps("details")]
    return (
        Followed(
            one.get("reader", ""),
            *(int(one.get(name, 0)) for name in ("position", "sequence_lag", "lag_ms")),
        )
        for one in told
    )


def _groups(things: list[T], ends: list[int]) -> Iterator[tuple[T, ...]]:
    return (tuple(things[start:end]) for start, end in pairwise(ends))


def _item_groups(rows: Columns) -> Iterator[tuple[Item, ...]]:
    items, ends = rows.lists("items")
    return _groups(list(_items(items)), ends)


def _items(items: Columns) -> Iterator[Item]:
    messages, codes = items.texts("error_message"), items.words("error_code")
    return map(
        Item,
        items.numbers("sequence_id"),
        _payloads(items),
        items.numbers("attempt"),
        items.times("enqueued_at"),
        items.numbers("priority"),
        items.times("available_at"),
        items.numbers("max_attempts"),
        items.numbers("lease_ms"),
        map(_error, messages, codes),
        _tokens(items),
        items.words("origin"),
        items.flags("dead"),
    )


def _error(message: str | None, code: str | None) -> ErrorInfo | None:
    return None if message is None else ErrorInfo(message, code)


def _tokens(items: Columns) -> Iterator[Token | None]:
    lease_ids = items.texts("last_lease_id")
    if not any(lease_ids):
        return repeat(None, items.count)
    ids, attempts = items.numbers("sequence_id"), items.numbers("last_attempt")
    fences = items.numbers_or_none("last_fence")
    return (
        None if lease_id is None else Token(sequence_id, attempt, lease_id, fence)
        for sequence_id, attempt, lease_id, fence in zip(
            ids, attempts, lease_ids, fences, strict=True
        )
    )


_PAYLOAD = (
    "resource_type",
    "resource_id",
    "partition_key",
    "payload_encoding",
    "body",
    "attributes",
    "request_id",
)
_OWNED = ("sequence_id", "attempt", "lease_id", "fence")
_BY = ("peer_id", "principal", "proof")
_ENDED = (*_OWNED, *_BY, "error_message", "error_code", "disposition")
_MANY = ("items", *_BY)

_MAKERS: dict[str, tuple[Callable[[Columns], Records], tuple[str, ...]]] = {
    "EpochStarted": (_epochs, ("epoch", "node", "origin", "rules")),
    "Enqueue": (
        _enqueued,
        (*_PAYLOAD, *_BY, "sequence_id", "priority", "available_at", "max_attempts", "lease_ms"),
    ),
    "LeaseGranted": (_granted, (*_OWNED, *_BY, "expires_at", "lease_ms", "lease_request_id")),
    "Heartbeat": (_renewed, _MANY),
    "Completed": (_completed, (*_OWNED, *_BY)),
    "Failed": (_failed, (*_ENDED, "available_at", "details")),
    "Expired": (_expired, _ENDED),
    "Released": (_released, (*_OWNED, *_BY)),
    "DrainSnapshot": (_drained, _MANY),
    "RestoreSnapshot": (_restored, (*_MANY, "fence_floor")),
    "Redriven": (_redriven, (*_MANY, "extra_attempts")),
    "Purged": (_purged, _MANY),
    "Refused": (_refused, ("sequence_id", "attempt", "lease_id", "error_code", "details", *_BY)),
    "Followed": (_followed, ("details",)),
}
"""How a kind is made, and of which columns: no other is looked at for its rows."""
