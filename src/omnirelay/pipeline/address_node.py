"""The events of a live node, as its events endpoint tells them.

Less than a journal: an event does not carry the envelope it was stored in, the rules of an epoch,
nor how long a lease was asked for, so those columns are null. Where the file can be read, read it.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

import omnirelay
from omnirelay.journal.checkpoint import CheckpointStore
from omnirelay.journal.events import PROOF, Event, EventItem
from omnirelay.model.errors import OmniRelayError, Unavailable
from omnirelay.model.items import Payload, to_ms
from omnirelay.pipeline.address import NAMESPACE, Damage, Extent
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.decode_types import TYPES
from omnirelay.pipeline.schema import VERSION

_ROWS = 4_096
_OURS = frozenset(["queue.pending", "queue.active", "shard.id", "origin", PROOF])

Row = dict[str, Any]  # Any: one row of mixed columns, named and typed by schema.EVENT


class NodeAddress:
    """A shard is a namespace of the node."""

    def __init__(
        self, url: str, *, token: str | None = None, namespaces: tuple[str, ...] = ()
    ) -> None:
        self.url = url
        self._token = token
        self._namespaces = namespaces or (NAMESPACE,)

    def _relay(self, shard: str) -> omnirelay.SyncRelay:
        return omnirelay.connect_sync(self.url, namespace=shard, token=self._token, retry=5.0)

    def shards(self) -> list[str]:
        return list(self._namespaces)

    def extent(self, shard: str) -> Extent:
        with self._relay(shard) as relay:
            last = relay.stats().last_sequence
            # A node does not say where its journal begins; it refuses what it has pruned.
            low, high = 1, 1 if _is_kept(relay, 1) else last
            while low < high:
                middle = (low + high) // 2
                if _is_kept(relay, middle):
                    high = middle
                else:
                    low = middle + 1
            return Extent(low, last)

    def sequence_before(self, shard: str, time_ms: int) -> int:
        kept = self.extent(shard)
        low, high = kept.first, kept.last + 1
        with self._relay(shard) as relay:
            while low < high:
                middle = (low + high) // 2
                event = next(relay.events(middle - 1))
                if to_ms(event.timestamp) < time_ms:
                    low = middle + 1
                else:
                    high = middle
        return low - 1

    def read(self, shard: str, part: Part) -> Iterator[pa.RecordBatch]:
        """Raises Unavailable if the node ends before the part does: rows must not be missing."""
        schema = pa.schema([(name, TYPES[name]) for name in part.names])
        kinds, last = part.event_types, part.after
        with self._relay(shard) as relay:
            events = relay.events(part.after)
            while last < part.through:
                held = list(islice(events, min(_ROWS, part.through - last)))
                if not held:
                    raise Unavailable(f"{self.url}: {shard} ended at {last}, not {part.through}")
                last = held[-1].sequence_number
                rows = [row_of(one) for one in held if kinds is None or one.event_type in kinds]
                if rows:
                    yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def damaged(self, shard: str, after: int, through: int) -> Iterator[Damage]:
        """A node checks what it reads out, and refuses to go on behind damage."""
        return iter(())

    def link(self, shard: str, sequence: int) -> str | None:
        return None

    def positions(self) -> CheckpointStore | None:
        return None

    def close(self) -> None:
        """Every reading has a connection of its own."""


def _is_kept(relay: omnirelay.SyncRelay, sequence: int) -> bool:
    try:
        next(relay.events(sequence - 1), None)
    except OmniRelayError as error:
        if error.status != "DATA_LOSS":
            raise
        return False
    return True


def row_of(event: Event) -> Row:
    token, error, metadata = event.ownership, event.error, event.metadata
    details = {name: value for name, value in metadata.items() if name not in _OURS}
    return {
        "shard": event.shard,
        "sequence": event.sequence_number,
        "event_type": event.event_type,
        "timestamp": event.timestamp,
        "epoch": event.epoch,
        "node": event.node,
        "sequence_id": event.sequence_id,
        "attempt": event.attempt,
        "lease_id": None if token is None else token.lease_id,
        "fence": event.fence,
        "expires_at": event.expires_at,
        "peer_id": event.peer_id,
        "principal": event.principal,
        "proof": metadata.get(PROOF),
        **({} if event.payload is None else _payload(event.payload)),
        "error_message": None if error is None else error.message,
        "error_code": None if error is None else error.code,
        "disposition": event.disposition,
        "details": details or None,
        "items": None if event.items is None else [_item(item) for item in event.items],
        "origin": metadata.get("origin") if event.event_type == "EpochStarted" else None,
        "pending": int(metadata["queue.pending"]),
        "active": int(metadata["queue.active"]),
        "schema_version": VERSION,
    }


def _payload(payload: Payload) -> Row:
    return {name: getattr(payload, name) for name in Payload.__struct_fields__}


def _item(item: EventItem) -> Row:
    token, error = item.last_ownership_token, item.last_error
    is_whole = item.payload is not None
    return {
        **({} if item.payload is None else _payload(item.payload)),
        "sequence_id": item.sequence_id,
        "attempt": item.attempt,
        "enqueued_at": item.enqueued_at,
        "priority": item.priority if is_whole else None,
        "available_at": item.available_at,
        "max_attempts": item.max_attempts,
        "lease_ms": item.lease_duration_ms,
        "dead": item.dead_letter if is_whole else None,
        "origin": item.origin,
        "error_message": None if error is None else error.message,
        "error_code": None if error is None else error.code,
        "last_attempt": None if token is None else token.attempt,
        "last_lease_id": None if token is None else token.lease_id,
        "last_fence": None if token is None else token.fence,
        "fence": item.fence,
        "expires_at": item.expires_at,
    }
