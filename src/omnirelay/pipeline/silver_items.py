"""`items`: one row per stay of an item in a shard, from its arrival to its one end.

An item that is drained and comes back by restore has one row for each stay, told apart by
`enqueued_sequence`: the one before is over, and a table whose closed rows never change must not
say otherwise later. `origin` is null for an item born here. A dead letter has its fate and the
time of its death, and stays open because redrive or purge may follow.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from omnirelay.pipeline.datasets import EVENTS, Dataset, Expectation
from omnirelay.pipeline.fresh import carried
from omnirelay.pipeline.sql import ITEM_ORDER, Dialect, names_of

COLUMNS = (
    "shard string, sequence_id bigint, origin string, resource_type string, resource_id string,"
    " partition_key string, priority int, enqueued_at timestamp, enqueued_sequence bigint,"
    " enqueued_by string, request_id string, attempts int, first_granted_at timestamp,"
    " ended_at timestamp, ended_sequence bigint, fate string, last_error_message string,"
    " last_error_code string, arrived string, total_ms bigint, state string"
)
CARRIED = "Carried"
_SINGLE = "'Enqueue', 'LeaseGranted', 'Completed', 'Failed', 'Expired'"
_MOVES = "'DrainSnapshot', 'RestoreSnapshot', 'Redriven', 'Purged'"

_TOUCH = ("shard", "sequence_id", "sequence", "kind", "timestamp", "fate")
_ARRIVAL = {
    "origin": "string",
    "resource_type": "string",
    "resource_id": "string",
    "partition_key": "string",
    "priority": "int",
    "request_id": "string",
    "enqueued_at": "timestamp",
    "enqueued_sequence": "bigint",
    "enqueued_by": "string",
    "arrived": "string",
    "attempts": "bigint",
    "first_granted_at": "timestamp",
    "ended_at": "timestamp",
    "ended_sequence": "bigint",
}
"""What an item brings along; of one that an earlier step left open, also what became of it."""
_ERROR = {"error_message": "string", "error_code": "string"}
_PAYLOAD = ("resource_type", "resource_id", "partition_key", "priority", "request_id")


def _touch(
    sql: Dialect, own: dict[str, str], source: str, **packs: tuple[str, dict[str, str]]
) -> str:
    """Rows of one kind; each pack is when it is there and what of it has another name here."""
    values = {name: own.get(name, name) for name in _TOUCH}
    for name, fields in (("arrival", _ARRIVAL), ("error", _ERROR)):
        when, given = packs[name]
        values[name] = sql.packed(fields, given, when)
    chosen = ", ".join(f"{value} AS {name}" for name, value in values.items())
    return f"SELECT {chosen} FROM {source}"


def _singles(sql: Dialect) -> str:
    own = {
        "kind": "event_type",
        "fate": "CASE WHEN event_type = 'Completed' THEN 'completed' "
        "WHEN disposition = 'deadLettered' THEN 'deadLettered' END",
    }
    arrival = {n: n for n in _PAYLOAD} | {"arrived": "'enqueue'", "enqueued_by": "principal"}
    arrival |= {"enqueued_at": "timestamp", "enqueued_sequence": "sequence"}
    tells = "event_type IN ('Enqueue', 'Failed', 'Expired')"
    return _touch(
        sql,
        own,
        f"$new WHERE event_type IN ({_SINGLE})",
        arrival=("event_type = 'Enqueue'", arrival),
        error=(tells, {n: n for n in _ERROR}),
    )


def _moved(sql: Dialect) -> str:
    came = "event_type = 'RestoreSnapshot'"
    own = {
        "sequence_id": "item.sequence_id",
        "kind": "event_type",
        "fate": "CASE WHEN event_type = 'DrainSnapshot' THEN 'drained' WHEN event_type = 'Purged' "
        f"THEN 'purged' WHEN {came} AND item.dead THEN 'deadLettered' END",
    }
    arrival = {n: f"item.{n}" for n in ("origin", "enqueued_at", *_PAYLOAD)}
    arrival |= {"enqueued_sequence": "sequence", "enqueued_by": "principal"}
    source = (
        "(SELECT shard, sequence, timestamp, principal, event_type, "
        f"{sql.each('items')} AS item FROM $moved WHERE event_type IN ({_MOVES})) AS moves"
    )
    error = (came, {n: f"item.{n}" for n in _ERROR})
    return _touch(sql, own, source, arrival=(came, arrival | {"arrived": "'restore'"}), error=error)


def _carried(sql: Dialect) -> str:
    own = {"kind": f"'{CARRIED}'", "sequence": "enqueued_sequence", "timestamp": "enqueued_at"}
    arrival = ("1 = 1", {n: n for n in _ARRIVAL})
    error = ("1 = 1", {n: f"last_{n}" for n in _ERROR})
    return _touch(sql, own, "$old", arrival=arrival, error=error)


def statement(sql: Dialect, *, has_old: bool) -> str:
    """What an item brought along is filled in by the second window: through the first, only the
    rows of arrivals have it to carry."""
    parts = [_singles(sql), _moved(sql)] + ([_carried(sql)] if has_old else [])
    window = f"OVER ({ITEM_ORDER})"
    arrives = "arrival.enqueued_sequence IS NOT NULL"
    first = """coalesce(arrival.first_granted_at, CASE WHEN next_kind = 'LeaseGranted' THEN next_at
        WHEN next_kind = 'Redriven' AND second_kind = 'LeaseGranted' THEN second_at END)"""
    before = "grants - coalesce(arrival.attempts, 0)"
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
  SELECT shard, sequence_id, sequence, kind, timestamp, fate, grants, next_kind,
    {sql.last_known("arrival")} AS arrival, {sql.last_known("error")} AS error,
    {sql.last_known(f"CASE WHEN {arrives} THEN {before} END")} AS grants_before,
    {sql.last_known(f"CASE WHEN {arrives} THEN {first} END")} AS first_granted_at
  FROM lined
)
{_result(sql)}
FROM told AS t
WHERE t.arrival.enqueued_sequence IS NOT NULL
  AND (t.next_kind IS NULL OR t.next_kind = 'RestoreSnapshot')"""


def _result(sql: Dialect) -> str:
    def ended(at: str, before: str) -> str:
        return (
            f"CASE WHEN t.kind = '{CARRIED}' THEN t.arrival.{before} "
            f"WHEN t.fate IS NOT NULL THEN t.{at} END"
        )

    values = {name: f"t.arrival.{name}" for name in names_of(COLUMNS)}
    values |= {
        "shard": "t.shard",
        "sequence_id": "t.sequence_id",
        "attempts": "CAST(t.grants - t.grants_before AS INT)",
        "first_granted_at": "CASE WHEN t.grants > t.grants_before THEN t.first_granted_at END",
        "ended_at": ended("timestamp", "ended_at"),
        "ended_sequence": ended("sequence", "ended_sequence"),
        "fate": "t.fate",
        "last_error_message": "t.error.error_message",
        "last_error_code": "t.error.error_code",
        "total_ms": f"{sql.ms(ended('timestamp', 'ended_at'))} - {sql.ms('t.arrival.enqueued_at')}",
        "state": "CASE WHEN t.fate IN ('completed', 'drained', 'purged') "
        "THEN 'closed' ELSE 'open' END",
    }
    chosen = ",\n  ".join(f"{values[name]} AS {name}" for name in names_of(COLUMNS))
    return f"SELECT\n  {chosen}"


ITEMS = Dataset(
    name="items",
    layer="silver",
    columns=COLUMNS,
    key=("shard", "sequence_id", "enqueued_sequence"),
    kind="carry",
    inputs=(EVENTS,),
    advance=carried(statement),
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
