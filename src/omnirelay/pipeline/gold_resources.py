"""`hot_resources`: which resources are fought over, fail, or keep work waiting.

`items` counts arrivals (enqueued or restored), `retries` attempts whose item went back for another
try, `oldest_waiting_at` since when its longest waiting item could be granted; null if none waits.

`contention` is how many of its items waited for each one that was held, on the average over time:
the time that granted ones had waited, over the time that ended leases lasted. `churn` is how often
an item changed hands: grants for each item, 1 if every item was held once.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from functools import partial
from typing import TYPE_CHECKING

from omnirelay.pipeline.datasets import EVENTS, Change, Dataset, Expectation, Older, Step
from omnirelay.pipeline.fresh import fresh_sql, made_by
from omnirelay.pipeline.sql import Dialect, rows_like

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FIGURES = {
    "items": "bigint",
    "grants": "bigint",
    "retries": "bigint",
    "expiries": "bigint",
    "failures": "bigint",
    "dead_letters": "bigint",
    "wait_ms_sum": "bigint",
    "wait_max_ms": "bigint",
    "hold_ms_sum": "bigint",
    "oldest_waiting_at": "timestamp",
}
_KEYS = {"shard": "string", "resource_type": "string", "resource_id": "string"}
_ROW = {**_KEYS, **_FIGURES}
_RATIOS = {"contention": ("wait_ms_sum", "hold_ms_sum"), "churn": ("grants", "items")}
_SHARES = tuple(
    f"CASE WHEN {below} > 0 THEN CAST({above} AS DOUBLE) / {below} END AS {name}"
    for name, (above, below) in _RATIOS.items()
)
COLUMNS = ", ".join(
    f"{name} {kind}" for name, kind in {**_ROW, **dict.fromkeys(_RATIOS, "double")}.items()
)
_KEY = ", ".join(_KEYS)
_OF_OLD = {name: name for name in _ROW if name != "oldest_waiting_at"}


def statement(sql: Dialect, *, has_old: bool) -> str:
    keys = {name: name for name in _KEYS}
    moved = (
        f"(SELECT shard, item.resource_type AS resource_type, item.resource_id AS resource_id FROM"
        f" (SELECT shard, {sql.each('items')} AS item FROM $moved"
        " WHERE event_type = 'RestoreSnapshot') AS moves) AS came"
    )
    one = "CAST(1 AS BIGINT)"
    granted, ended = "granted_sequence >= since", "ended_sequence >= since"
    lease = {
        "grants": f"CASE WHEN {granted} THEN {one} END",
        "retries": f"CASE WHEN {ended} AND disposition = 'requeued' THEN {one} END",
        "expiries": f"CASE WHEN {ended} AND outcome = 'expired' THEN {one} END",
        "failures": f"CASE WHEN {ended} AND outcome = 'failed' THEN {one} END",
        "dead_letters": f"CASE WHEN {ended} AND disposition = 'deadLettered' THEN {one} END",
        "wait_ms_sum": f"CASE WHEN {granted} THEN wait_ms END",
        "wait_max_ms": f"CASE WHEN {granted} THEN wait_ms END",
        "hold_ms_sum": f"CASE WHEN {ended} THEN hold_ms END",
        "oldest_waiting_at": "CASE WHEN fence IS NULL THEN queued_at END",
    }
    parts = [
        rows_like(_ROW, {**keys, "items": one}, "$new WHERE event_type = 'Enqueue'"),
        rows_like(_ROW, {**keys, "items": one}, moved),
        rows_like(_ROW, {**keys, **lease}, "fresh_lease_attempts"),
    ]
    if has_old:
        parts.append(rows_like(_ROW, _OF_OLD, "$old"))
    ways = dict.fromkeys(_FIGURES, "CAST(coalesce(sum({0}), 0) AS BIGINT) AS {0}")
    ways |= {"wait_max_ms": "max({0}) AS {0}", "oldest_waiting_at": "min({0}) AS {0}"}
    figures = ",\n  ".join(way.format(name) for name, way in ways.items())
    return f"""
WITH {fresh_sql("lease_attempts", has_old=has_old)},
parts AS ({" UNION ALL ".join(parts)}),
together AS (SELECT {_KEY},
  {figures}
FROM parts GROUP BY {_KEY})
SELECT *, {", ".join(_SHARES)} FROM together"""


def advance(step: Step) -> Change:
    leases = partial(step.recent, "lease_attempts")
    return Change(replace=made_by(statement, step, lease_attempts=leases))


def _with_shares(older: Older) -> "DataFrame":
    """What they are made of was there."""
    return older.rows.selectExpr("*", *_SHARES)


HOT_RESOURCES = Dataset(
    name="hot_resources",
    layer="gold",
    columns=COLUMNS,
    key=tuple(_KEYS),
    kind="merge",
    inputs=(EVENTS, "lease_attempts"),
    advance=advance,
    version=2,
    migrations=(_with_shares,),
    expectations=(
        Expectation("waits are not negative", "wait_ms_sum >= 0", "warn"),
        Expectation("an item has come before it is tried", "items > 0 OR grants = 0", "warn"),
    ),
)
