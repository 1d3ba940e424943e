"""One event as the tables hold it: every field of every record, so that a replay loses nothing.

Version 1. A change of this list is a new version and a migration, never a silent edit.
"""

VERSION = 1

ITEM = (
    "struct<sequence_id: bigint, attempt: int, enqueued_at: timestamp, priority: int,"
    " available_at: timestamp, max_attempts: int, lease_ms: bigint, dead: boolean, origin: string,"
    " error_message: string, error_code: string, last_attempt: int, last_lease_id: string,"
    " last_fence: bigint, resource_type: string, resource_id: string, partition_key: string,"
    " payload_encoding: string, body: binary, attributes: map<string, string>, request_id: string,"
    " fence: bigint, expires_at: timestamp>"
)
"""One of several items an event is about. Whole in DrainSnapshot and RestoreSnapshot; in Heartbeat
only sequence_id, fence and expires_at; in Redriven and Purged only sequence_id."""

EVENT: dict[str, str] = {
    "shard": "string",
    "sequence": "bigint",
    "event_type": "string",
    "timestamp": "timestamp",
    "epoch": "bigint",
    "node": "string",
    "sequence_id": "bigint",
    "attempt": "int",
    "lease_id": "string",
    "fence": "bigint",
    "expires_at": "timestamp",
    "lease_ms": "bigint",
    "available_at": "timestamp",
    "priority": "int",
    "max_attempts": "int",
    "peer_id": "string",
    "principal": "string",
    "proof": "string",
    "lease_request_id": "string",
    "resource_type": "string",
    "resource_id": "string",
    "partition_key": "string",
    "payload_encoding": "string",
    "body": "binary",
    "attributes": "map<string, string>",
    "request_id": "string",
    "error_message": "string",
    "error_code": "string",
    "disposition": "string",
    "details": "map<string, string>",
    "items": f"array<{ITEM}>",
    "fence_floor": "bigint",
    "extra_attempts": "int",
    "origin": "string",
    "rules": "string",
    "pending": "bigint",
    "active": "bigint",
    "envelope_first": "bigint",
    "envelope_last": "bigint",
    "envelope_checksum": "string",
    "envelope_prev": "string",
    "schema_version": "int",
}
"""A member that the journal leaves out because it is a default is written out here (principal
`anonymous`, attempt 1 of an Enqueue, priority 0); times and counts that mean "none" are null."""

EVENT_DDL = ", ".join(f"{name} {kind}" for name, kind in EVENT.items())
