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

from omnirelay.pipeline.datasets import EVENTS, Dataset, Expectation
from omnirelay.pipeline.fresh import carried
from omnirelay.pipeline.sql import ITEM_ORDER, Dialect, names_of

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

_TOUCH = ("shard", "sequence_id", "sequence", "kind", "fence", "attempt", "queued_at")
_ABOUT = {"resource_type": "string", "resource_id": "string", "partition_key": "string"}
"""What an arriving item brings along."""
_LEASE = {
    "lease_id": "string",
    "peer_id": "string",
    "principal": "string",
    "proof": "string",
    "granted_at": "timestamp",
    "granted_sequence": "bigint",
    "lease_ms": "bigint",
    "last_heartbeat_at": "timestamp",
    "heartbeats": "bigint",
    "expires_at": "timestamp",
}
"""What a grant says, with what heartbeats added to it in earlier steps."""
_AFTER = {
    "kind": "string",
    "fence": "bigint",
    "timestamp": "timestamp",
    "sequence": "bigint",
    "epoch": "bigint",
    "principal": "string",
    "disposition": "string",
    "error_message": "string",
    "error_code": "string",
    "heartbeats": "bigint",
    "expires_at": "timestamp",
}
"""What may follow a grant: its heartbeats together, or its end."""


def _touch(
    sql: Dialect, own: dict[str, str], source: str, **packs: tuple[str, dict[str, str]]
) -> str:
    """Rows of one kind; each pack is when it is there and what of it has another name here."""
    values = {name: own.get(name, name) for name in _TOUCH}
    for name, fields in (("about", _ABOUT), ("lease", _LEASE), ("after", _AFTER)):
        when, given = packs.get(name, ("1 = 0", {}))
        values[name] = sql.packed(fields, given, when)
    return (
        f"SELECT {', '.join(f'{value} AS {name}' for name, value in values.items())} FROM {source}"
    )


def _singles(sql: Dialect) -> str:
    requeued = "event_type IN ('Failed', 'Expired') AND disposition = 'requeued'"
    own = {
        "kind": "event_type",
        "queued_at": "CASE WHEN event_type IN ('Enqueue', 'Released') OR "
        f"({requeued}) THEN greatest(timestamp, available_at) END",
        "attempt": f"CASE WHEN {requeued} THEN attempt + 1 ELSE attempt END",
    }
    lease = {n: n for n in _LEASE if n not in ("last_heartbeat_at", "heartbeats")}
    lease |= {"granted_at": "timestamp", "granted_sequence": "sequence"}
    after = {n: n for n in _AFTER if n not in ("heartbeats", "expires_at")} | {"kind": "event_type"}
    return _touch(
        sql,
        own,
        f"$new WHERE event_type IN ({_SINGLE})",
        about=("event_type = 'Enqueue'", {n: n for n in _ABOUT}),
        lease=("event_type = 'LeaseGranted'", lease),
        after=("event_type NOT IN ('Enqueue', 'LeaseGranted')", after),
    )


def _moved(sql: Dialect) -> str:
    came, left = "event_type = 'RestoreSnapshot'", "event_type = 'DrainSnapshot'"
    own = {
        "sequence_id": "item.sequence_id",
        "kind": "event_type",
        "fence": f"CASE WHEN {left} THEN item.last_fence END",
        "attempt": f"CASE WHEN {came} THEN item.attempt END",
        "queued_at": f"CASE WHEN event_type = 'Redriven' THEN timestamp WHEN {came} "
        "AND NOT item.dead THEN greatest(timestamp, item.available_at) END",
    }
    source = (
        "(SELECT shard, sequence, timestamp, epoch, principal, event_type, "
        f"{sql.each('items')} AS item FROM $moved WHERE event_type IN ({_MOVES})) AS moves"
    )
    after = {n: n for n in ("timestamp", "sequence", "epoch", "principal")}
    after |= {"kind": "event_type", "fence": "item.last_fence"}
    about = {n: f"item.{n}" for n in _ABOUT}
    return _touch(sql, own, source, about=(came, about), after=(left, after))


def _beats(sql: Dialect) -> str:
    own = {"kind": "'Heartbeat'", "attempt": "CAST(NULL AS INT)"}
    own |= {"queued_at": "CAST(NULL AS TIMESTAMP)"}
    source = (
        "(SELECT shard, item.sequence_id AS sequence_id, item.fence AS fence,"
        " max(sequence) AS sequence, count(*) AS heartbeats, max(timestamp) AS timestamp,"
        " max(item.expires_at) AS expires_at"
        f" FROM (SELECT shard, sequence, timestamp, {sql.each('items')} AS item FROM $new"
        " WHERE event_type = 'Heartbeat') AS beats"
        " GROUP BY shard, item.sequence_id, item.fence) AS beaten"
    )
    after = {n: n for n in ("fence", "timestamp", "sequence", "heartbeats", "expires_at")}
    return _touch(sql, own, source, after=("1 = 1", after | {"kind": "'Heartbeat'"}))


def _carried(sql: Dialect) -> str:
    own = {"kind": f"'{CARRIED}'", "sequence": "coalesce(granted_sequence, 0)"}
    lease = ("fence IS NOT NULL", {n: n for n in _LEASE})
    return _touch(sql, own, "$old", about=("1 = 1", {n: n for n in _ABOUT}), lease=lease)


def statement(sql: Dialect, *, has_old: bool) -> str:
    parts = [_singles(sql), _moved(sql), _beats(sql)] + ([_carried(sql)] if has_old else [])
    in_order = f"OVER ({ITEM_ORDER})"
    return f"""
WITH touches AS ({" UNION ALL ".join(parts)}),
starts AS (
  SELECT shard, epoch, max(timestamp) AS started_at FROM $started
  WHERE event_type = 'EpochStarted' GROUP BY shard, epoch
),
newest AS (SELECT shard, max(started_at) AS started_at FROM starts GROUP BY shard),
lined AS (
  SELECT shard, sequence_id, kind, fence, attempt, queued_at, lease,
    {sql.last_known("about")} AS about,
    lag(queued_at) {in_order} AS queued_before, lag(attempt) {in_order} AS attempt_before,
    lead(kind) {in_order} AS next_kind,
    lead(after, 1) {in_order} AS next_one, lead(after, 2) {in_order} AS next_two
  FROM touches
),
chosen AS (
  SELECT *, lease.lease_id IS NOT NULL AS is_lease,
    CASE WHEN next_kind = 'Heartbeat' THEN next_one END AS beat,
    CASE WHEN next_kind = 'Heartbeat' THEN next_two ELSE next_one END AS following
  FROM lined
  WHERE lease.lease_id IS NOT NULL
    OR next_kind IS NULL AND kind IN ({_WAITING}, '{CARRIED}')
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
    over = "CASE WHEN e.outcome IS NOT NULL THEN e.following.{} END"
    queued = "CASE WHEN e.kind = 'LeaseGranted' THEN e.queued_before ELSE e.queued_at END"
    again = "coalesce(ending.started_at, CASE WHEN e.outcome IS NULL THEN newest.started_at END)"
    values = {name: f"e.lease.{name}" for name in _LEASE}
    values |= {name: f"e.about.{name}" for name in _ABOUT}
    values |= {n: over.format(n) for n in ("disposition", "error_message", "error_code")}
    values |= {
        "shard": "e.shard",
        "sequence_id": "e.sequence_id",
        "fence": "CASE WHEN e.is_lease THEN e.fence END",
        "attempt": "CASE WHEN e.kind = 'Redriven' THEN e.attempt_before + 1 ELSE e.attempt END",
        "queued_at": queued,
        "last_heartbeat_at": "coalesce(e.beat.timestamp, e.lease.last_heartbeat_at)",
        "heartbeats": "CASE WHEN e.is_lease THEN CAST(coalesce(e.lease.heartbeats, 0) + "
        "coalesce(e.beat.heartbeats, 0) AS INT) END",
        "expires_at": "CASE WHEN e.is_lease THEN greatest(e.lease.expires_at, e.beat.expires_at, "
        f"{sql.later(again, 'e.lease.lease_ms')}) END",
        "ended_at": over.format("timestamp"),
        "ended_sequence": over.format("sequence"),
        "outcome": "e.outcome",
        "ended_by": over.format("principal"),
        "wait_ms": f"{sql.ms('e.lease.granted_at')} - {sql.ms(queued)}",
        "hold_ms": f"{sql.ms(over.format('timestamp'))} - {sql.ms('e.lease.granted_at')}",
        "state": "CASE WHEN e.outcome IS NULL THEN 'open' ELSE 'closed' END",
    }
    chosen = ",\n  ".join(f"{values[name]} AS {name}" for name in names_of(COLUMNS))
    return f"""SELECT /*+ BROADCAST(ending), BROADCAST(newest) */
  {chosen}
FROM ended AS e
LEFT JOIN starts AS ending ON ending.shard = e.shard AND e.outcome IS NOT NULL
  AND ending.epoch = e.following.epoch
LEFT JOIN newest ON newest.shard = e.shard"""


LEASE_ATTEMPTS = Dataset(
    name="lease_attempts",
    layer="silver",
    columns=COLUMNS,
    key=("shard", "sequence_id", "fence"),
    kind="carry",
    inputs=(EVENTS,),
    advance=carried(statement),
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
