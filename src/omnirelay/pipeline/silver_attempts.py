"""`lease_attempts`: one row per grant, and one for every item that is not held at the moment.

Without its heartbeats an item's events stand in a fixed order: something makes it available, a
grant takes it, something ends the lease. So a grant finds its beginning one row before and its end
one row after; all heartbeats of a lease come together as one row in between. A step reads the new
events and the open rows, which count as each item's first event.

Open rows are the live items: held (`fence` is set), waiting (`queued_at` is set, `fence` null;
`attempt` is the one its next grant will carry) or dead letters (both null). The waiting and the
dead are kept because a later grant needs to know what the item is about and since when it waits.

A new epoch gives every holder its whole time again without saying so in a record of its own, so
`expires_at` looks at the epoch of the ending event, or at the newest one while the lease is open.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from omnirelay.pipeline.datasets import EVENTS, Change, Dataset, Expectation, Step
from omnirelay.pipeline.sql import ITEM_ORDER, SPARK, Dialect, names_of, rows_like, run_sql

COLUMNS = (
    "shard string, sequence_id bigint, attempt int, fence bigint, lease_id string,"
    " resource_type string, resource_id string, partition_key string, peer_id string,"
    " principal string, proof string, queued_at timestamp, granted_at timestamp,"
    " granted_sequence bigint, lease_ms bigint, last_heartbeat_at timestamp, heartbeats int,"
    " expires_at timestamp, ended_at timestamp, ended_sequence bigint, outcome string,"
    " disposition string, error_message string, error_code string, ended_by string,"
    " wait_ms bigint, hold_ms bigint, state string"
)

CARRIED = "Carried"
"""The kind of a row that an earlier step left open."""
_SINGLE = "'Enqueue', 'LeaseGranted', 'Completed', 'Failed', 'Expired', 'Released'"
_MOVES = "'DrainSnapshot', 'RestoreSnapshot', 'Redriven', 'Purged'"
_WAITING = "'Enqueue', 'RestoreSnapshot', 'Failed', 'Expired', 'Released', 'Redriven'"

_TOUCH = {
    "shard": "string",
    "sequence_id": "bigint",
    "sequence": "bigint",
    "kind": "string",
    "timestamp": "timestamp",
    "epoch": "bigint",
    "attempt": "int",
    "next_attempt": "int",
    "fence": "bigint",
    "lease_id": "string",
    "resource_type": "string",
    "resource_id": "string",
    "partition_key": "string",
    "peer_id": "string",
    "principal": "string",
    "proof": "string",
    "queued_at": "timestamp",
    "granted_at": "timestamp",
    "granted_sequence": "bigint",
    "lease_ms": "bigint",
    "last_heartbeat_at": "timestamp",
    "heartbeats": "bigint",
    "expires_at": "timestamp",
    "disposition": "string",
    "error_message": "string",
    "error_code": "string",
}
_FROM_EVENT = (
    "shard", "sequence_id", "sequence", "timestamp", "epoch", "attempt", "fence", "lease_id",
    "resource_type", "resource_id", "partition_key", "peer_id", "principal", "proof", "lease_ms",
    "expires_at", "disposition", "error_message", "error_code",
)  # fmt: skip
_CARRIED_ON = (
    "shard", "sequence_id", "attempt", "fence", "lease_id", "resource_type", "resource_id",
    "partition_key", "peer_id", "principal", "proof", "queued_at", "granted_at",
    "granted_sequence", "lease_ms", "last_heartbeat_at", "heartbeats", "expires_at",
)  # fmt: skip


def _singles() -> str:
    requeued = "event_type IN ('Failed', 'Expired') AND disposition = 'requeued'"
    values = {name: name for name in _FROM_EVENT}
    values |= {
        "kind": "event_type",
        "queued_at": "CASE WHEN event_type IN ('Enqueue', 'Released') OR "
        f"({requeued}) THEN greatest(timestamp, available_at) END",
        "next_attempt": f"CASE WHEN event_type = 'LeaseGranted' THEN NULL WHEN {requeued} "
        "THEN attempt + 1 ELSE attempt END",
        "granted_at": "CASE WHEN event_type = 'LeaseGranted' THEN timestamp END",
        "granted_sequence": "CASE WHEN event_type = 'LeaseGranted' THEN sequence END",
    }
    return rows_like(_TOUCH, values, f"$new WHERE event_type IN ({_SINGLE})")


def _moved(sql: Dialect) -> str:
    came = "event_type = 'RestoreSnapshot'"
    item = {n: f"item.{n}" for n in ("sequence_id", "resource_type", "resource_id")}
    values = {n: n for n in ("shard", "sequence", "timestamp", "epoch", "principal")} | item
    values |= {
        "kind": "event_type",
        "partition_key": "item.partition_key",
        "fence": "CASE WHEN event_type = 'DrainSnapshot' THEN item.last_fence END",
        "next_attempt": f"CASE WHEN {came} THEN item.attempt END",
        "queued_at": f"CASE WHEN event_type = 'Redriven' THEN timestamp WHEN {came} "
        "AND NOT item.dead THEN greatest(timestamp, item.available_at) END",
    }
    source = (
        "(SELECT shard, sequence, timestamp, epoch, principal, event_type, "
        f"{sql.each('items')} AS item FROM $new WHERE event_type IN ({_MOVES})) AS moves"
    )
    return rows_like(_TOUCH, values, source)


def _beats(sql: Dialect) -> str:
    values = {n: n for n in ("shard", "sequence", "fence", "sequence_id", "heartbeats")}
    values |= {"kind": "'Heartbeat'", "last_heartbeat_at": "beaten_at", "expires_at": "expires_at"}
    source = (
        "(SELECT shard, item.sequence_id AS sequence_id, item.fence AS fence,"
        " max(sequence) AS sequence, count(*) AS heartbeats, max(timestamp) AS beaten_at,"
        " max(item.expires_at) AS expires_at"
        f" FROM (SELECT shard, sequence, timestamp, {sql.each('items')} AS item FROM $new"
        " WHERE event_type = 'Heartbeat') AS beats"
        " GROUP BY shard, item.sequence_id, item.fence) AS beaten"
    )
    return rows_like(_TOUCH, values, source)


def _carried() -> str:
    values = {name: name for name in _CARRIED_ON}
    values |= {
        "kind": f"'{CARRIED}'",
        "sequence": "coalesce(granted_sequence, 0)",
        "next_attempt": "CASE WHEN fence IS NULL THEN attempt END",
    }
    return rows_like(_TOUCH, values, "$old")


def statement(sql: Dialect, *, has_old: bool) -> str:
    parts = [_singles(), _moved(sql), _beats(sql)] + ([_carried()] if has_old else [])
    after = sql.pack(
        "kind", "fence", "timestamp", "sequence", "epoch", "principal", "disposition",
        "error_message", "error_code", "heartbeats", "last_heartbeat_at", "expires_at",
    )  # fmt: skip
    payload = sql.pack("resource_type", "resource_id", "partition_key")
    arrives = f"kind IN ('Enqueue', 'RestoreSnapshot', '{CARRIED}')"
    return f"""
WITH touches AS ({" UNION ALL ".join(parts)}),
starts AS (
  SELECT shard, epoch, max(timestamp) AS started_at FROM $new
  WHERE event_type = 'EpochStarted' GROUP BY shard, epoch
),
newest AS (SELECT shard, max(started_at) AS started_at FROM starts GROUP BY shard),
lined AS (
  SELECT *,
    {sql.last_known(f"CASE WHEN {arrives} THEN {payload} END")} AS about,
    lag(queued_at) OVER ({ITEM_ORDER}) AS queued_before,
    lag(next_attempt) OVER ({ITEM_ORDER}) AS attempt_before,
    lead({after}, 1) OVER ({ITEM_ORDER}) AS next_one,
    lead({after}, 2) OVER ({ITEM_ORDER}) AS next_two
  FROM touches
),
chosen AS (
  SELECT *, kind = 'LeaseGranted' OR fence IS NOT NULL AND kind = '{CARRIED}' AS is_lease,
    CASE WHEN next_one.kind = 'Heartbeat' THEN next_one END AS beat,
    CASE WHEN next_one.kind = 'Heartbeat' THEN next_two ELSE next_one END AS following
  FROM lined
  WHERE kind = 'LeaseGranted' OR kind = '{CARRIED}' AND fence IS NOT NULL
    OR next_one.kind IS NULL AND kind IN ({_WAITING}, '{CARRIED}')
),
ended AS (
  SELECT *, CASE WHEN is_lease AND following.fence = fence THEN
    CASE following.kind WHEN 'Completed' THEN 'completed' WHEN 'Failed' THEN 'failed'
      WHEN 'Expired' THEN 'expired' WHEN 'Released' THEN 'released'
      WHEN 'DrainSnapshot' THEN 'drained' END END AS outcome
  FROM chosen
)
{_result(sql)}"""


def _result(sql: Dialect) -> str:
    lease = ("fence", "lease_id", "peer_id", "principal", "proof", "granted_at",
             "granted_sequence", "lease_ms")  # fmt: skip
    values = {n: f"CASE WHEN e.is_lease THEN e.{n} END" for n in lease}
    over = "CASE WHEN e.outcome IS NOT NULL THEN e.following.{} END"
    queued = "CASE WHEN e.kind = 'LeaseGranted' THEN e.queued_before ELSE e.queued_at END"
    again = "coalesce(ending.started_at, CASE WHEN e.outcome IS NULL THEN newest.started_at END)"
    values |= {n: f"e.about.{n}" for n in ("resource_type", "resource_id", "partition_key")}
    values |= {n: over.format(n) for n in ("disposition", "error_message", "error_code")}
    values |= {
        "shard": "e.shard",
        "sequence_id": "e.sequence_id",
        "attempt": "CASE WHEN e.is_lease THEN e.attempt "
        "ELSE coalesce(e.next_attempt, e.attempt_before + 1) END",
        "queued_at": queued,
        "last_heartbeat_at": "CASE WHEN e.is_lease THEN "
        "coalesce(e.beat.last_heartbeat_at, e.last_heartbeat_at) END",
        "heartbeats": "CASE WHEN e.is_lease THEN CAST(coalesce(e.heartbeats, 0) + "
        "coalesce(e.beat.heartbeats, 0) AS INT) END",
        "expires_at": "CASE WHEN e.is_lease THEN greatest(e.expires_at, e.beat.expires_at, "
        f"{sql.later(again, 'e.lease_ms')}) END",
        "ended_at": over.format("timestamp"),
        "ended_sequence": over.format("sequence"),
        "outcome": "e.outcome",
        "ended_by": over.format("principal"),
        "wait_ms": f"CASE WHEN e.is_lease THEN {sql.ms('e.granted_at')} - {sql.ms(queued)} END",
        "hold_ms": f"{sql.ms(over.format('timestamp'))} - {sql.ms('e.granted_at')}",
        "state": "CASE WHEN e.outcome IS NULL THEN 'open' ELSE 'closed' END",
    }
    chosen = ",\n  ".join(f"{values[name]} AS {name}" for name in names_of(COLUMNS))
    return f"""SELECT /*+ BROADCAST(ending), BROADCAST(newest) */
  {chosen}
FROM ended AS e
LEFT JOIN starts AS ending ON ending.shard = e.shard AND e.outcome IS NOT NULL
  AND ending.epoch = e.following.epoch
LEFT JOIN newest ON newest.shard = e.shard"""


def advance(step: Step) -> Change:
    text = statement(SPARK, has_old=step.old is not None)
    frames = {"new": step.new} | ({"old": step.old} if step.old is not None else {})
    return Change(rows=run_sql(step.session, text, **frames))


LEASE_ATTEMPTS = Dataset(
    name="lease_attempts",
    layer="silver",
    columns=COLUMNS,
    key=("shard", "sequence_id", "fence"),
    kind="carry",
    inputs=(EVENTS,),
    advance=advance,
    partition_by="state",
    expectations=(
        Expectation("nobody waits less than no time", "wait_ms IS NULL OR wait_ms >= 0", "warn"),
        Expectation("nobody holds less than no time", "hold_ms IS NULL OR hold_ms >= 0", "warn"),
        Expectation(
            "a lease ends after it began",
            "ended_sequence IS NULL OR ended_sequence > granted_sequence",
            "warn",
        ),
        Expectation("an item's resource is known", "resource_id IS NOT NULL", "warn"),
    ),
)
