"""What the report draws, worked out by Spark: a few hundred rows, of tables of any size."""

from typing import TYPE_CHECKING, Any, Protocol

from omnirelay.model.errors import InvalidArgument
from omnirelay.pipeline.audit_report import KIND as AUDIT
from omnirelay.pipeline.datasets import EVENTS
from omnirelay.pipeline.report_page import Pictures
from omnirelay.pipeline.report_parts import Row, Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STEPS = 240
HEAT_STEPS, HEAT_SHARDS = 24, 20
RANKED = 20
PRINCIPALS = 12
SPANS = 400
FINDINGS = 100
POSITIONS = 200
UNAUDITED = 5
MINUTE_MS = 60_000


class ReportTables(Protocol):
    """The tables of a pipeline, as `DeltaTables` has them."""

    def read(self, name: str) -> "DataFrame | None": ...

    def names(self) -> list[str]: ...

    def positions(self, name: str) -> dict[str, int]: ...


def gather(tables: ReportTables, resource: tuple[str, str] | None = None) -> Pictures:
    """Without `resource` the hottest one's timeline is drawn."""
    rows: dict[str, Rows] = {}
    more: dict[str, int] = {}
    step, times = _over_time(tables, rows, more)
    resource = resource or _hottest(tables)
    for picture, (name, query, most) in _RANKED.items():
        rows[picture] = _ask(tables.read(name), query, most=most)
    if resource is not None:
        rows["timeline"], more["timeline"] = _timeline(tables, resource)
    _audit(tables, rows, more)
    rows["positions"], more["positions"] = _positions(tables)
    return Pictures(rows, step_ms=step, times=times, resource=resource, more=more)


def resource_of(text: str) -> tuple[str, str]:
    """`TYPE:ID`; an id may hold colons, a type that does cannot be named this way."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise InvalidArgument(f"resource {text[:80]!r} is not TYPE:ID")
    return kind, name


def _ask(frame: "DataFrame | None", query: str, **values: Any) -> list[Row]:
    """Any: literals that Spark binds. No table: no rows."""
    if frame is None:
        return []
    found = frame.sparkSession.sql(query, args=values or None, t=frame)
    return [row.asDict() for row in found.collect()]


# -- over time ----------------------------------------------------------------------------------

_SPAN = (
    "SELECT unix_millis(min(window_start)) AS low, unix_millis(max(window_start)) AS high, "
    "count(DISTINCT shard) AS shards FROM {t}"
)
_WINDOWS = """
    SELECT :low + (unix_millis(window_start) - :low) DIV :step * :step AS at_ms,
           sum(enqueued) AS enqueued, sum(granted) AS granted, sum(completed) AS completed,
           sum(failed) AS failed, sum(expired) AS expired, sum(retries) AS retries,
           sum(dead_letters) AS dead_letters,
           CAST(max(wait_p50_ms) AS DOUBLE) AS wait_p50_ms,
           CAST(max(wait_p95_ms) AS DOUBLE) AS wait_p95_ms,
           CAST(max(wait_p99_ms) AS DOUBLE) AS wait_p99_ms,
           CAST(max(replication_lag_ms) AS DOUBLE) AS replication_lag_ms,
           try_divide(sum(burn * slo_total), sum(CAST(slo_total AS DOUBLE))) AS burn
    FROM {t} GROUP BY 1 ORDER BY 1"""
_HEAT = """
    WITH minutes AS (
        SELECT shard, window_start, max(backpressure_ms) AS backpressure_ms,
               max(pending_max) AS pending_max
        FROM {t} GROUP BY shard, window_start),
    tight AS (
        SELECT shard FROM minutes GROUP BY shard
        ORDER BY sum(backpressure_ms) DESC NULLS LAST, max(pending_max) DESC NULLS LAST, shard
        LIMIT :shards)
    SELECT shard, :low + (unix_millis(window_start) - :low) DIV :step * :step AS at_ms,
           sum(backpressure_ms) AS backpressure_ms, max(pending_max) AS pending_max
    FROM minutes LEFT SEMI JOIN tight USING (shard) GROUP BY 1, 2 ORDER BY 1, 2"""


def _over_time(
    tables: ReportTables, rows: dict[str, Rows], more: dict[str, int]
) -> tuple[int, tuple[int, ...]]:
    windows = tables.read("slo_by_window")
    found = _ask(windows, _SPAN)
    if not found or found[0]["low"] is None:
        return MINUTE_MS, ()
    low, high = found[0]["low"], found[0]["high"]
    step, wide = step_ms(low, high, STEPS), step_ms(low, high, HEAT_STEPS)
    rows["windows"] = _ask(windows, _WINDOWS, low=low, step=step)
    rows["heat"] = _ask(windows, _HEAT, low=low, step=wide, shards=HEAT_SHARDS)
    more["heat"] = max(0, found[0]["shards"] - HEAT_SHARDS)
    return step, tuple(range(low, high + 1, wide))


def step_ms(low: int, high: int, steps: int) -> int:
    """Whole minutes, so that no window falls into two steps, and no more than `steps` of them."""
    minutes = (high - low) // MINUTE_MS + 1
    return -(-minutes // steps) * MINUTE_MS


# -- ranked -------------------------------------------------------------------------------------

_RANKED = {
    "slowest": (
        "hot_resources",
        """SELECT resource_type, resource_id, sum(grants) AS grants, sum(retries) AS retries,
                   sum(dead_letters) AS dead_letters, max(wait_max_ms) AS wait_max_ms,
                   try_divide(sum(wait_ms_sum), sum(grants)) AS wait_mean_ms,
                   try_divide(sum(hold_ms_sum), sum(grants)) AS hold_mean_ms,
                   try_divide(sum(wait_ms_sum), sum(hold_ms_sum)) AS contention,
                   try_divide(sum(grants), sum(items)) AS churn
            FROM {t} GROUP BY resource_type, resource_id HAVING sum(grants) > 0
            ORDER BY wait_mean_ms DESC, resource_type, resource_id LIMIT :most""",
        RANKED,
    ),
    "peers": (
        "peer_health",
        """SELECT peer_id, sum(grants) AS grants, sum(completed) AS completed,
                   sum(failed) AS failed, sum(expired) AS expired, sum(released) AS released,
                   sum(refused) AS refused,
                   try_divide(sum(hold_ms_sum),
                              sum(completed + failed + expired + released)) AS hold_mean_ms,
                   bool_or(suspected_zombie) AS zombie
            FROM {t} GROUP BY peer_id ORDER BY grants DESC, peer_id LIMIT :most""",
        RANKED,
    ),
    "principals": (
        "principal_activity",
        """WITH busy AS (
                SELECT principal, sum(times) AS whole FROM {t} GROUP BY principal
                ORDER BY whole DESC, principal LIMIT :most)
            SELECT principal, action, sum(times) AS times,
                   count(DISTINCT resource_type, resource_id) AS resources,
                   unix_millis(min(first_at)) AS first_ms, unix_millis(max(last_at)) AS last_ms
            FROM {t} JOIN busy USING (principal) GROUP BY principal, action, whole
            ORDER BY whole DESC, principal, times DESC, action""",
        PRINCIPALS,
    ),
}

# -- one resource -------------------------------------------------------------------------------

_HOTTEST = """
    SELECT resource_type, resource_id FROM {t} GROUP BY resource_type, resource_id
    ORDER BY sum(retries + expiries + failures) DESC, sum(grants) DESC, resource_type, resource_id
    LIMIT 1"""
_HOLDS = """
    SELECT fence, peer_id, principal, outcome, sequence_id, unix_millis(from_at) AS from_ms,
           unix_millis(until_at) AS until_ms, count(*) OVER () AS whole
    FROM {t} WHERE resource_type = :kind AND resource_id = :name
    ORDER BY from_at DESC, fence DESC LIMIT :most"""


def _hottest(tables: ReportTables) -> tuple[str, str] | None:
    found = _ask(tables.read("hot_resources"), _HOTTEST)
    return (found[0]["resource_type"], found[0]["resource_id"]) if found else None


def _timeline(tables: ReportTables, resource: tuple[str, str]) -> tuple[Rows, int]:
    kind, name = resource
    found = _ask(tables.read("resource_ownership"), _HOLDS, kind=kind, name=name, most=SPANS)
    return found[::-1], (found[0]["whole"] - len(found) if found else 0)


# -- audit and positions ------------------------------------------------------------------------

_LAST_AUDIT = """
    SELECT run_id, unix_millis(ended_at) AS ended_ms, positions, events, findings, verdict
    FROM {t} WHERE kind = :kind ORDER BY ended_at DESC NULLS LAST, run_id LIMIT 1"""
_OF_RUN = """
    SELECT `check`, severity, shard, sequence, event_type, message FROM {t} WHERE run_id = :run
    ORDER BY shard, sequence, `check`, message LIMIT :most"""


def _audit(tables: ReportTables, rows: dict[str, Rows], more: dict[str, int]) -> None:
    """Runs of the pipeline leave their lines in the same table, and prove nothing."""
    rows["runs"] = audits = _ask(tables.read("runs"), _LAST_AUDIT, kind=AUDIT)
    if audits:
        found = _ask(tables.read("findings"), _OF_RUN, run=audits[0]["run_id"], most=FINDINGS)
        rows["findings"], more["findings"] = found, (audits[0]["findings"] or 0) - len(found)
        rows["unaudited"], more["unaudited"] = _unaudited(tables, audits[0]["positions"] or {})


def _unaudited(tables: ReportTables, looked: dict[str, int]) -> tuple[Rows, int]:
    """Where the events have gone on since."""
    found: list[Row] = [
        {"shard": shard, "looked": looked.get(shard, 0), "sequence": sequence}
        for shard, sequence in sorted(tables.positions(EVENTS).items())
        if sequence > looked.get(shard, 0)
    ]
    return found[:UNAUDITED], max(0, len(found) - UNAUDITED)


def _positions(tables: ReportTables) -> tuple[Rows, int]:
    found: list[Row] = []
    for table in tables.names():
        for shard, sequence in sorted(tables.positions(table).items()):
            found.append({"table": table, "shard": shard, "sequence": sequence})
    return found[:POSITIONS], max(0, len(found) - POSITIONS)
