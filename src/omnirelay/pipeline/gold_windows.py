"""`slo_by_window`: how each resource type of a shard fared, minute by minute.

Arrivals and grants count in the minute they happen, attempts in the minute they end, with the waits
and holds of those. `retries` are attempts whose item went back for another try. Depth, lag and time
under backpressure are the shard's and the same for all of its types; a pause that goes on counts up
to the last event. `replication_lag_ms` is the most that a reader of the journal was told to be
behind, null if none was told. `burn` is the share of waits over the objective by the share that is
allowed: at 1 the error budget is used up as fast as it is given.

A minute in which the shard lived or was paused, but no item came, was granted or ended, has one row
whose type is blank: a queue that stands still under backpressure must not be missing here. Leases
of items whose arrival is not known (it was damaged, or lies before the events) count there too.

A shard's clock never goes back, so only its newest minute can still grow. That one is open and
keeps its waits and holds, from which the next step goes on; what is closed stays as it is.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from functools import partial

from omnirelay.pipeline.datasets import EVENTS, Change, Dataset, Expectation, Step
from omnirelay.pipeline.fresh import fresh_sql, made_by
from omnirelay.pipeline.gold_windows_older import with_lag, with_open_minutes
from omnirelay.pipeline.sql import Dialect, names_of

COLUMNS = (
    "shard string, resource_type string, window_start timestamp, window_end timestamp,"
    " enqueued bigint, granted bigint, completed bigint, failed bigint, expired bigint,"
    " released bigint, retries bigint, dead_letters bigint, wait_p50_ms bigint,"
    " wait_p95_ms bigint, wait_p99_ms bigint, hold_p50_ms bigint, hold_p95_ms bigint,"
    " hold_p99_ms bigint, pending_max bigint, active_max bigint, backpressure_ms bigint,"
    " replication_lag_ms bigint, slo_total bigint, slo_good bigint, burn double,"
    " waits array<bigint>, holds array<bigint>, state string"
)
OBJECTIVE_WAIT_MS = 60_000
OBJECTIVE_ALLOWED = 0.01
"""99 % of waits within the objective: one in a hundred may be longer."""
_COUNTS = (
    "enqueued", "granted", "completed", "failed", "expired", "released", "retries",
    "dead_letters", "slo_total", "slo_good",
)  # fmt: skip
_LEVELS = ("pending_max", "active_max", "replication_lag_ms", "backpressure_ms")
"""Of the shard, whatever the type."""
_LISTS = ("waits", "holds")
_QUANTILES = tuple(f"{what}_p{share}_ms" for what in ("wait", "hold") for share in (50, 95, 99))


def statement(sql: Dialect, *, has_old: bool) -> str:
    edges, edge, since = "", "", ""
    if has_old:
        edges = "edges AS (SELECT DISTINCT shard, window_start AS since FROM $old),"
        edge = "LEFT JOIN edges ON edges.shard = t.shard"
        since = "WHERE edges.since IS NULL OR window_start >= edges.since"
    minute = "date_trunc('minute', {}) AS window_start"
    return f"""
WITH {fresh_sql("lease_attempts", has_old=has_old)}, {edges}
depths AS (
  SELECT shard, {minute.format("timestamp")},
    CASE WHEN event_type = 'Enqueue' THEN resource_type END AS resource_type,
    count(CASE WHEN event_type = 'Enqueue' THEN 1 END) AS enqueued, max(pending) AS pending_max,
    max(active) AS active_max, max(CASE WHEN event_type = 'Followed'
      THEN CAST(details['lag_ms'] AS BIGINT) END) AS replication_lag_ms
  FROM $new WHERE sequence IS NOT NULL GROUP BY 1, 2, 3
),
granted AS (
  SELECT shard, coalesce(resource_type, '') AS resource_type, {minute.format("granted_at")},
    count(*) AS granted
  FROM fresh_lease_attempts WHERE fence IS NOT NULL AND granted_sequence >= since GROUP BY 1, 2, 3
),
ended AS (
  SELECT t.shard, coalesce(t.resource_type, '') AS resource_type, {minute.format("t.ended_at")},
    {_of_the_ended(sql)}
  FROM fresh_lease_attempts AS t
  WHERE t.outcome IS NOT NULL AND t.ended_sequence >= t.since GROUP BY 1, 2, 3
),
paused AS (
  SELECT t.shard, CAST(NULL AS STRING) AS resource_type, t.window_start,
    CAST(sum({sql.ms("least(t.until_at, t.window_start + INTERVAL 1 MINUTE)")}
    - {sql.ms("greatest(t.from_at, t.window_start)")}) AS BIGINT) AS backpressure_ms
  FROM (
    SELECT shard, from_at, until_at, {sql.minutes("from_at", "until_at")} AS window_start
    FROM $backpressure WHERE from_at IS NOT NULL
  ) AS t {edge} {since} GROUP BY 1, 2, 3
),
{_together(sql, has_old=has_old)}
{_result()}"""


def _of_the_ended(sql: Dialect) -> str:
    counted = {name: f"t.outcome = '{name}'" for name in ("completed", "failed", "expired")}
    counted |= {
        "released": "t.outcome = 'released'",
        "retries": "t.disposition = 'requeued'",
        "dead_letters": "t.disposition = 'deadLettered'",
        "slo_total": "t.wait_ms IS NOT NULL",
        "slo_good": f"t.wait_ms <= {OBJECTIVE_WAIT_MS}",
    }
    parts = [f"count(CASE WHEN {test} THEN 1 END) AS {name}" for name, test in counted.items()]
    parts += [f"{sql.listed(f't.{what}_ms')} AS {what}s" for what in ("wait", "hold")]
    return ",\n    ".join(parts)


def _quantile(sql: Dialect, name: str) -> str:
    """The least value that so many in a hundred do not pass: one that was measured, and exact."""
    what, percent = name.split("_")[0], int(name.split("_")[1][1:])
    values = f"{what}s"
    place = f"CAST(floor(({sql.length(values)} * {percent} + 99) / 100) AS INT)"
    return f"{sql.nth(values, place)} AS {name}"


def _together(sql: Dialect, *, has_old: bool) -> str:
    """Rows of every kind made alike and added up; and what is the shard's given to all of them."""
    kinds = dict.fromkeys((*_COUNTS, *_LEVELS), "BIGINT") | dict.fromkeys(_LISTS, sql.numbers)
    keys = {name: name for name in ("shard", "resource_type", "window_start")}

    def part(source: str, *own: str) -> str:
        values = keys | {
            name: name if name in own else f"CAST(NULL AS {kind})" for name, kind in kinds.items()
        }
        return f"SELECT {', '.join(f'{v} AS {name}' for name, v in values.items())} FROM {source}"

    ended = tuple(name for name in _COUNTS if name not in ("enqueued", "granted"))
    levels = _LEVELS[:-1]
    parts = [
        part("depths", "enqueued", *levels),
        part("granted", "granted"),
        part("ended", *ended, *_LISTS),
        part("paused", "backpressure_ms"),
    ]
    if has_old:
        # How long it was paused is worked out anew: the pause may go on.
        nothing = f"resource_type = '' AND {' + '.join(_COUNTS)} = 0"
        old = f"(SELECT *, CASE WHEN NOT ({nothing}) THEN resource_type END AS kind FROM $old) AS o"
        parts.append(
            part(old, *_COUNTS, *levels, *_LISTS).replace("resource_type AS", "kind AS", 1)
        )
    sums = ", ".join(f"CAST(coalesce(sum({name}), 0) AS BIGINT) AS {name}" for name in _COUNTS)
    most = ", ".join(f"max({name}) AS {name}" for name in _LEVELS)
    lists = ", ".join(f"{sql.joined_sorted(name)} AS {name}" for name in _LISTS)
    in_minute = "OVER (PARTITION BY shard, window_start)"
    spread = ", ".join(f"max({name}) {in_minute} AS shard_{name}" for name in _LEVELS)
    return f"""together AS (
  SELECT shard, resource_type, window_start, {sums}, {most}, {lists}
  FROM ({" UNION ALL ".join(parts)}) AS parts GROUP BY shard, resource_type, window_start
),
spread AS (
  SELECT *, {spread}, max(resource_type) {in_minute} AS any_type,
    {", ".join(_quantile(sql, name) for name in _QUANTILES)}
  FROM (
    SELECT *, max(window_start) OVER (PARTITION BY shard) = window_start AS is_newest FROM together
  ) AS minutes
)"""


def _result() -> str:
    values = {name: name for name in names_of(COLUMNS)}
    values |= {name: f"shard_{name}" for name in _LEVELS}
    values |= {
        "resource_type": "coalesce(resource_type, '')",
        "window_end": "window_start + INTERVAL 1 MINUTE",
        "backpressure_ms": "coalesce(shard_backpressure_ms, 0)",
        "burn": "CASE WHEN slo_total > 0 THEN (slo_total - slo_good) * 1e0 / slo_total"
        f" / CAST({OBJECTIVE_ALLOWED} AS DOUBLE) ELSE 0e0 END",
        "state": "CASE WHEN is_newest THEN 'open' ELSE 'closed' END",
    }
    values |= {name: f"CASE WHEN is_newest THEN {name} END" for name in _LISTS}
    chosen = ", ".join(f"{value} AS {name}" for name, value in values.items())
    return f"SELECT {chosen}\nFROM spread WHERE resource_type IS NOT NULL OR any_type IS NULL"


def advance(step: Step) -> Change:
    leases, pauses = partial(step.recent, "lease_attempts"), partial(step.read, "backpressure")
    return Change(rows=made_by(statement, step, lease_attempts=leases, backpressure=pauses))


SLO_BY_WINDOW = Dataset(
    name="slo_by_window",
    layer="gold",
    columns=COLUMNS,
    key=("shard", "resource_type", "window_start"),
    kind="carry",
    inputs=(EVENTS, "lease_attempts", "backpressure"),
    advance=advance,
    partition_by="state",
    version=3,
    migrations=(with_lag, with_open_minutes(statement)),
    expectations=(
        Expectation("no more good waits than waits", "slo_good <= slo_total"),
        Expectation("a minute has sixty seconds", "backpressure_ms BETWEEN 0 AND 60000", "warn"),
    ),
)
