"""`slo_by_window`: how each resource type of a shard fared, minute by minute.

Arrivals and grants count in the minute they happen, attempts in the minute they end, with the waits
and holds of those. `retries` are attempts whose item went back for another try. Depth, lag and time
under backpressure are the shard's and the same for all of its types; a pause that goes on counts up
to the last event. `replication_lag_ms` is the most that a reader of the journal was told to be
behind, null if none was told. `burn` is the share of waits over the objective by the share that is
allowed: at 1 the error budget is used up as fast as it is given.

A shard's clock never goes back, so a step can only touch the newest minute the shard has and later
ones. Those are worked out anew from the attempts and events since then; the others are kept.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from typing import TYPE_CHECKING

from omnirelay.model import limits
from omnirelay.pipeline.datasets import EVENTS, Change, Dataset, Expectation, Step
from omnirelay.pipeline.delta_rows import quoted
from omnirelay.pipeline.sql import SPARK, Dialect, names_of, run_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = (
    "shard string, resource_type string, window_start timestamp, window_end timestamp,"
    " enqueued bigint, granted bigint, completed bigint, failed bigint, expired bigint,"
    " released bigint, retries bigint, dead_letters bigint, wait_p50_ms bigint,"
    " wait_p95_ms bigint, wait_p99_ms bigint, hold_p50_ms bigint, hold_p95_ms bigint,"
    " hold_p99_ms bigint, pending_max bigint, active_max bigint, backpressure_ms bigint,"
    " replication_lag_ms bigint, slo_total bigint, slo_good bigint, burn double"
)
OBJECTIVE_WAIT_MS = 60_000
OBJECTIVE_ALLOWED = 0.01
"""99 % of waits within the objective: one in a hundred may be longer."""
_COUNTS = (
    "enqueued", "granted", "completed", "failed", "expired", "released", "retries",
    "dead_letters", "slo_total", "slo_good",
)  # fmt: skip
_QUANTILES = tuple(f"{what}_p{share}_ms" for what in ("wait", "hold") for share in (50, 95, 99))


def statement(sql: Dialect, *, has_old: bool) -> str:
    edges = (
        """kept AS (
  SELECT o.* FROM $old AS o LEFT JOIN $edges AS edges ON edges.shard = o.shard
  WHERE edges.shard IS NULL OR o.window_start < edges.since
),"""
        if has_old
        else ""
    )
    join = "JOIN $edges AS edges ON edges.shard = t.shard" if has_old else ""
    since = " AND (edges.since IS NULL OR t.{} >= edges.since)" if has_old else ""
    kept = f"UNION ALL SELECT {', '.join(names_of(COLUMNS))} FROM kept" if has_old else ""
    return f"""
WITH {edges}
depths AS (
  SELECT t.shard, date_trunc('minute', t.timestamp) AS window_start,
    CASE WHEN t.event_type = 'Enqueue' THEN t.resource_type END AS resource_type,
    count(*) AS events, max(t.pending) AS pending, max(t.active) AS active,
    max(CASE WHEN t.event_type = 'Followed' THEN CAST(t.details['lag_ms'] AS BIGINT) END) AS lag_ms
  FROM $lease_events AS t {join}
  WHERE t.sequence IS NOT NULL{since.format("timestamp")} GROUP BY 1, 2, 3
),
levels AS (
  SELECT shard, window_start, max(pending) AS pending_max, max(active) AS active_max,
    max(lag_ms) AS replication_lag_ms
  FROM depths GROUP BY shard, window_start
),
granted AS (
  SELECT t.shard, t.resource_type, date_trunc('minute', t.granted_at) AS window_start,
    count(*) AS granted
  FROM $lease_attempts AS t {join}
  WHERE t.fence IS NOT NULL{since.format("granted_at")} GROUP BY 1, 2, 3
),
listed AS (
  SELECT t.shard, t.resource_type, date_trunc('minute', t.ended_at) AS window_start,
    {_of_the_ended(sql)}
  FROM $lease_attempts AS t {join}
  WHERE t.outcome IS NOT NULL{since.format("ended_at")} GROUP BY 1, 2, 3
),
ended AS (SELECT *, {", ".join(_quantile(sql, name) for name in _QUANTILES)} FROM listed),
paused AS (
  SELECT shard, window_start, CAST(sum({sql.ms("least(until_at, window_end)")}
    - {sql.ms("greatest(from_at, window_start)")}) AS BIGINT) AS backpressure_ms
  FROM (
    SELECT *, window_start + INTERVAL 1 MINUTE AS window_end FROM (
      SELECT t.shard, t.from_at, t.until_at, {sql.minutes("t.from_at", "t.until_at")}
        AS window_start
      FROM $backpressure AS t {join}
      WHERE t.from_at IS NOT NULL{since.format("until_at")}
    ) AS pauses
  ) AS minutes GROUP BY shard, window_start
),
{_together()}
{_result(kept)}"""


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
    parts += [f"{sql.sorted_list(f't.{what}_ms')} AS {what}s" for what in ("wait", "hold")]
    return ",\n    ".join(parts)


def _quantile(sql: Dialect, name: str) -> str:
    """The least value that so many in a hundred do not pass: one that was measured, and exact."""
    what, percent = name.split("_")[0], int(name.split("_")[1][1:])
    values = f"{what}s"
    place = f"CAST(floor(({sql.length(values)} * {percent} + 99) / 100) AS INT)"
    return f"{sql.nth(values, place)} AS {name}"


def _together() -> str:
    """Rows of three kinds made alike, added up."""
    columns = (*_COUNTS, *_QUANTILES)

    def padded(source: str, *own: str, where: str = "") -> str:
        values = ", ".join(
            f"{one} AS {one}" if one in own else f"CAST(NULL AS BIGINT) AS {one}" for one in columns
        )
        return f"SELECT shard, resource_type, window_start, {values} FROM {source}{where}"

    arrived = "(SELECT *, events AS enqueued FROM depths WHERE resource_type IS NOT NULL) AS d"
    ended = tuple(name for name in columns if name not in ("enqueued", "granted"))
    sums = ", ".join(f"CAST(coalesce(sum({name}), 0) AS BIGINT) AS {name}" for name in _COUNTS)
    most = ", ".join(f"max({name}) AS {name}" for name in _QUANTILES)
    return f"""parts AS (
  {padded(arrived, "enqueued")}
  UNION ALL {padded("granted", "granted")}
  UNION ALL {padded("ended", *ended)}
),
together AS (
  SELECT shard, resource_type, window_start, {sums}, {most}
  FROM parts GROUP BY shard, resource_type, window_start
)"""


def _result(kept: str) -> str:
    values = {name: f"w.{name}" for name in names_of(COLUMNS)}
    values |= {
        "window_end": "w.window_start + INTERVAL 1 MINUTE",
        "pending_max": "l.pending_max",
        "active_max": "l.active_max",
        "replication_lag_ms": "l.replication_lag_ms",
        "backpressure_ms": "coalesce(p.backpressure_ms, 0)",
        "burn": "CASE WHEN w.slo_total > 0 THEN (w.slo_total - w.slo_good) * 1e0 / w.slo_total"
        f" / CAST({OBJECTIVE_ALLOWED} AS DOUBLE) ELSE 0e0 END",
    }
    chosen = ", ".join(f"{value} AS {name}" for name, value in values.items())
    return f"""SELECT {chosen}
FROM together AS w
LEFT JOIN levels AS l ON l.shard = w.shard AND l.window_start = w.window_start
LEFT JOIN paused AS p ON p.shard = w.shard AND p.window_start = w.window_start
{kept}"""


def advance(step: Step) -> Change:
    names = (EVENTS, "lease_attempts", "backpressure")
    frames = {name: frame for name in names if (frame := step.read(name)) is not None}
    assert len(frames) == len(names), "the inputs come first"
    has_old = step.old is not None
    if step.old is not None:
        newest = _newest_minutes(step, step.old)
        frames |= {"old": step.old, "edges": _edges(step, newest)}
        frames[EVENTS] = frames[EVENTS].where(_since("timestamp", newest))
    return Change(replace=run_sql(step.session, statement(SPARK, has_old=has_old), **frames))


Minutes = dict[str, int | None]
"""Of each shard that moves, the newest minute that is there, in microseconds."""


def _newest_minutes(step: Step, old: "DataFrame") -> Minutes:
    each = old.selectExpr("shard", "unix_micros(window_start) AS start").groupBy("shard")
    newest = {row[0]: row[1] for row in each.max("start").collect()}
    return {shard: newest.get(shard) for shard in step.moves}


def _edges(step: Step, newest: Minutes) -> "DataFrame":
    """`shard` and `since`: what is older stays."""
    rows = (f"({quoted(shard)}, {_time(at)})" for shard, at in newest.items())
    return step.session.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS edges(shard, since)")


def _time(micros: int | None) -> str:
    return "CAST(NULL AS TIMESTAMP)" if micros is None else f"timestamp_micros({micros})"


def _since(column: str, newest: Minutes) -> str:
    """So that Parquet blocks of older times are not opened. With very many shards it would take
    longer to look at each than to read them."""
    if len(newest) > limits.BOUNDS_IN_WORDS_MAX:
        return "true"
    later = {at: "" if at is None else f" AND {column} >= {_time(at)}" for at in newest.values()}
    return " OR ".join(f"(shard = {quoted(shard)}{later[at]})" for shard, at in newest.items())


def _with_lag(rows: "DataFrame") -> "DataFrame":
    """No journal told of lags before."""
    values = {"replication_lag_ms": "CAST(NULL AS BIGINT) AS replication_lag_ms"}
    return rows.selectExpr(*(values.get(name, name) for name in names_of(COLUMNS)))


SLO_BY_WINDOW = Dataset(
    name="slo_by_window",
    layer="gold",
    columns=COLUMNS,
    key=("shard", "resource_type", "window_start"),
    kind="window",
    inputs=(EVENTS, "lease_attempts", "backpressure"),
    advance=advance,
    version=2,
    migrations=(_with_lag,),
    expectations=(
        Expectation("no more good waits than waits", "slo_good <= slo_total"),
        Expectation("a minute has sixty seconds", "backpressure_ms BETWEEN 0 AND 60000", "warn"),
    ),
)
