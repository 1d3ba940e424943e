"""`items`: one row per stay of an item in a shard, from its arrival to its one end.

An item that is drained and comes back by restore has one row for each stay, told apart by
`enqueued_sequence`: the one before is over, and a table whose closed rows never change must not
say otherwise later. `origin` is null for an item born here. A dead letter has its fate and the
time of its death, and stays open because redrive or purge may follow.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from omnirelay.pipeline.datasets import EVENTS, Change, Dataset, Expectation, Step
from omnirelay.pipeline.sql import ITEM_ORDER, SPARK, Dialect, names_of, rows_like, run_sql

COLUMNS = (
    "shard string, sequence_id bigint, origin string, resource_type string, resource_id string,"
    " partition_key string, priority int, enqueued_at timestamp, enqueued_sequence bigint,"
    " enqueued_by string, request_id string, attempts int, first_granted_at timestamp,"
    " ended_at timestamp, ended_sequence bigint, fate string, last_error_message string,"
    " last_error_code string, arrived string, total_ms bigint, state string"
)
CARRIED = "Carried"
_ARRIVES = f"kind IN ('Enqueue', 'RestoreSnapshot', '{CARRIED}')"
_SINGLE = "'Enqueue', 'LeaseGranted', 'Completed', 'Failed', 'Expired'"
_MOVES = "'DrainSnapshot', 'RestoreSnapshot', 'Redriven', 'Purged'"

_TOUCH = {
    "shard": "string",
    "sequence_id": "bigint",
    "sequence": "bigint",
    "kind": "string",
    "timestamp": "timestamp",
    "origin": "string",
    "resource_type": "string",
    "resource_id": "string",
    "partition_key": "string",
    "priority": "int",
    "enqueued_at": "timestamp",
    "enqueued_sequence": "bigint",
    "enqueued_by": "string",
    "request_id": "string",
    "attempts": "int",
    "first_granted_at": "timestamp",
    "ended_at": "timestamp",
    "ended_sequence": "bigint",
    "fate": "string",
    "error_message": "string",
    "error_code": "string",
    "arrived": "string",
}
_PAYLOAD = ("resource_type", "resource_id", "partition_key", "priority", "request_id")


def _singles() -> str:
    values = {n: n for n in ("shard", "sequence_id", "sequence", "timestamp")}
    values |= {n: n for n in ("error_message", "error_code", *_PAYLOAD)}
    values |= {
        "kind": "event_type",
        "enqueued_at": "timestamp",
        "enqueued_sequence": "sequence",
        "enqueued_by": "principal",
        "fate": "CASE WHEN event_type = 'Completed' THEN 'completed' "
        "WHEN disposition = 'deadLettered' THEN 'deadLettered' END",
        "ended_at": "timestamp",
        "ended_sequence": "sequence",
        "arrived": "'enqueue'",
    }
    return rows_like(_TOUCH, values, f"$new WHERE event_type IN ({_SINGLE})")


def _moved(sql: Dialect) -> str:
    values = {n: n for n in ("shard", "sequence", "timestamp")}
    item = ("sequence_id", "origin", "enqueued_at", "error_message", "error_code", *_PAYLOAD)
    values |= {n: f"item.{n}" for n in item}
    values |= {
        "kind": "event_type",
        "enqueued_sequence": "sequence",
        "enqueued_by": "principal",
        "fate": "CASE WHEN event_type = 'DrainSnapshot' THEN 'drained' WHEN event_type = 'Purged' "
        "THEN 'purged' WHEN event_type = 'RestoreSnapshot' AND item.dead THEN 'deadLettered' END",
        "ended_at": "timestamp",
        "ended_sequence": "sequence",
        "arrived": "'restore'",
    }
    source = (
        "(SELECT shard, sequence, timestamp, principal, event_type, "
        f"{sql.each('items')} AS item FROM $new WHERE event_type IN ({_MOVES})) AS moves"
    )
    return rows_like(_TOUCH, values, source)


def _carried() -> str:
    values = {name: name for name in _TOUCH if name in names_of(COLUMNS)}
    values |= {
        "kind": f"'{CARRIED}'",
        "sequence": "enqueued_sequence",
        "error_message": "last_error_message",
        "error_code": "last_error_code",
    }
    return rows_like(_TOUCH, values, "$old")


def statement(sql: Dialect, *, has_old: bool) -> str:
    parts = [_singles(), _moved(sql)] + ([_carried()] if has_old else [])
    arrival = sql.pack(
        "origin", *_PAYLOAD, "enqueued_at", "enqueued_sequence", "enqueued_by", "arrived",
        "grants - coalesce(attempts, 0) AS grants_before",
        "coalesce(first_granted_at, CASE WHEN next_kind = 'LeaseGranted' THEN next_at "
        "WHEN next_kind = 'Redriven' AND second_kind = 'LeaseGranted' THEN second_at END) "
        "AS first_granted_at",
    )  # fmt: skip
    tells = f"{_ARRIVES} OR kind IN ('Failed', 'Expired')"
    error = sql.pack("error_message", "error_code")
    window = f"OVER ({ITEM_ORDER})"
    return f"""
WITH touches AS ({" UNION ALL ".join(parts)}),
lined AS (
  SELECT *,
    sum(CASE WHEN kind = 'LeaseGranted' THEN 1 ELSE 0 END)
      OVER ({ITEM_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS grants,
    lead(kind, 1) {window} AS next_kind, lead(timestamp, 1) {window} AS next_at,
    lead(kind, 2) {window} AS second_kind, lead(timestamp, 2) {window} AS second_at
  FROM touches
),
told AS (
  SELECT shard, sequence_id, kind, grants, next_kind, fate, ended_at, ended_sequence,
    {sql.last_known(f"CASE WHEN {_ARRIVES} THEN {arrival} END")} AS arrival,
    {sql.last_known(f"CASE WHEN {tells} THEN {error} END")} AS error
  FROM lined
)
{_result(sql)}
FROM told AS t
WHERE t.arrival.enqueued_sequence IS NOT NULL
  AND (t.next_kind IS NULL OR t.next_kind = 'RestoreSnapshot')"""


def _result(sql: Dialect) -> str:
    ended = "CASE WHEN t.fate IS NOT NULL THEN t.ended_at END"
    values = {name: f"t.arrival.{name}" for name in names_of(COLUMNS)}
    values |= {
        "shard": "t.shard",
        "sequence_id": "t.sequence_id",
        "attempts": "CAST(t.grants - t.arrival.grants_before AS INT)",
        "ended_at": ended,
        "ended_sequence": "CASE WHEN t.fate IS NOT NULL THEN t.ended_sequence END",
        "fate": "t.fate",
        "last_error_message": "t.error.error_message",
        "last_error_code": "t.error.error_code",
        "total_ms": f"{sql.ms(ended)} - {sql.ms('t.arrival.enqueued_at')}",
        "state": "CASE WHEN t.fate IN ('completed', 'drained', 'purged') "
        "THEN 'closed' ELSE 'open' END",
    }
    chosen = ",\n  ".join(f"{values[name]} AS {name}" for name in names_of(COLUMNS))
    return f"SELECT\n  {chosen}"


def advance(step: Step) -> Change:
    text = statement(SPARK, has_old=step.old is not None)
    frames = {"new": step.new} | ({"old": step.old} if step.old is not None else {})
    return Change(rows=run_sql(step.session, text, **frames))


ITEMS = Dataset(
    name="items",
    layer="silver",
    columns=COLUMNS,
    key=("shard", "sequence_id", "enqueued_sequence"),
    kind="carry",
    inputs=(EVENTS,),
    advance=advance,
    partition_by="state",
    expectations=(
        Expectation(
            "an item ends once",
            "(state = 'closed') = (coalesce(fate, '') IN ('completed', 'drained', 'purged'))",
        ),
        Expectation(
            "an item ends after it came",
            "ended_sequence IS NULL OR ended_sequence >= enqueued_sequence",
            "warn",
        ),
        Expectation("an item's resource is known", "resource_id IS NOT NULL", "warn"),
    ),
)
