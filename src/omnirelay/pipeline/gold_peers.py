"""`peer_health`: what became of the leases each peer took.

A peer without a name is the peer ''. A peer was seen when it was granted something, when it sent a
heartbeat and when it ended a lease itself. It may be a zombie if leases of its expire, at least one
in five: it took work and fell silent. Or if it was refused: its principal came, too late, with the
token of a lease that the peer had been granted. Others who show such a token are none of its fault.

Sums go on from the old rows; what an attempt adds is added once, by the step that has the event:
grants by granted_sequence, ends by ended_sequence, heartbeats of a lease from an earlier step by
counting the step's own beats.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from functools import partial
from typing import TYPE_CHECKING

from omnirelay.pipeline.datasets import EVENTS, Change, Dataset, Expectation, Older, Step
from omnirelay.pipeline.fresh import fresh_sql, made_by
from omnirelay.pipeline.sql import Dialect, names_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = (
    "shard string, peer_id string, principal string, grants bigint, completed bigint,"
    " failed bigint, expired bigint, released bigint, heartbeats bigint, refused bigint,"
    " hold_ms_sum bigint, hold_mean_ms bigint, first_seen_at timestamp, last_seen_at timestamp,"
    " suspected_zombie boolean"
)
_ENDS = ("completed", "failed", "expired", "released")
_SUMS = ("grants", *_ENDS, "heartbeats", "refused", "hold_ms_sum")
_ONLY_REFUSED = ", ".join(
    name if name == "refused" else f"CAST(0 AS BIGINT) AS {name}" for name in _SUMS
)


def _refused(*, has_old: bool) -> str:
    """What a refused call showed may be of a lease that ended long ago, so all leases are asked;
    but only if anything was refused, which is little and so broadcast."""
    leases = "every_lease" if has_old else "lease_attempts"
    return f"""
refusals AS (
  SELECT /*+ BROADCAST(r) */ r.shard, coalesce(l.peer_id, '') AS peer_id,
    sum(r.times) AS refused
  FROM (
    SELECT shard, sequence_id, lease_id, principal, CAST(details['times'] AS BIGINT) AS times
    FROM $refused WHERE event_type = 'Refused' AND lease_id IS NOT NULL
  ) AS r JOIN ${leases} AS l ON l.shard = r.shard AND l.sequence_id = r.sequence_id
    AND l.lease_id = r.lease_id AND l.principal = r.principal
  GROUP BY r.shard, coalesce(l.peer_id, '')
)"""


def statement(sql: Dialect, *, has_old: bool) -> str:
    beats, joined, beaten, old = "", "", "a.heartbeats", ""
    if has_old:
        beats = f""",
beats AS (
  SELECT shard, item.sequence_id AS sequence_id, item.fence AS fence, count(*) AS beats
  FROM (SELECT shard, {sql.each("items")} AS item FROM $new WHERE event_type = 'Heartbeat') AS b
  GROUP BY shard, item.sequence_id, item.fence
)"""
        joined = """LEFT JOIN beats AS b
    ON b.shard = a.shard AND b.sequence_id = a.sequence_id AND b.fence = a.fence"""
        beaten = "CASE WHEN a.granted_sequence >= a.since THEN a.heartbeats ELSE b.beats END"
        old = f"""UNION ALL SELECT shard, peer_id, principal, CAST(0 AS BIGINT) AS newest,
    {", ".join(_SUMS)}, first_seen_at, last_seen_at FROM $old"""
    ends = ", ".join(f"count(CASE WHEN a.outcome = '{one}' THEN 1 END) AS {one}" for one in _ENDS)
    sums = ", ".join(f"CAST(sum({name}) AS BIGINT) AS {name}" for name in _SUMS)
    all_ends = " + ".join(_ENDS)
    return f"""
WITH {fresh_sql("lease_attempts", has_old=has_old)}{beats},{_refused(has_old=has_old)},
added AS (
  SELECT a.shard, coalesce(a.peer_id, '') AS peer_id, a.principal,
    max(CASE WHEN a.granted_sequence >= a.since THEN a.granted_sequence END) AS newest,
    count(CASE WHEN a.granted_sequence >= a.since THEN 1 END) AS grants, {ends},
    sum({beaten}) AS heartbeats, CAST(0 AS BIGINT) AS refused,
    sum(CASE WHEN a.outcome <> 'drained' THEN a.hold_ms END) AS hold_ms_sum,
    min(a.granted_at) AS first_seen_at,
    max(greatest(a.granted_at, a.last_heartbeat_at,
      CASE WHEN a.outcome IN ('completed', 'failed', 'released') THEN a.ended_at END))
      AS last_seen_at
  FROM fresh_lease_attempts AS a {joined}
  WHERE a.fence IS NOT NULL AND a.since IS NOT NULL
  GROUP BY a.shard, coalesce(a.peer_id, ''), a.principal
),
parts AS (
  SELECT shard, peer_id, principal, newest, {", ".join(_SUMS)}, first_seen_at, last_seen_at
  FROM added
  UNION ALL
  SELECT shard, peer_id, CAST(NULL AS STRING) AS principal, CAST(NULL AS BIGINT) AS newest,
    {_ONLY_REFUSED},
    CAST(NULL AS TIMESTAMP) AS first_seen_at, CAST(NULL AS TIMESTAMP) AS last_seen_at
  FROM refusals
  {old}
),
together AS (
  SELECT shard, peer_id, max_by(principal, newest) AS principal, {sums},
    min(first_seen_at) AS first_seen_at, max(last_seen_at) AS last_seen_at
  FROM parts GROUP BY shard, peer_id
)
SELECT shard, peer_id, principal, {", ".join(f"coalesce({n}, 0) AS {n}" for n in _SUMS)},
  CASE WHEN {all_ends} > 0 THEN CAST(floor(hold_ms_sum / ({all_ends})) AS BIGINT) END
    AS hold_mean_ms,
  first_seen_at, last_seen_at,
  refused > 0 OR expired > 0 AND expired * 5 >= {all_ends} AS suspected_zombie
FROM together"""


def advance(step: Step) -> Change:
    recent = partial(step.recent, "lease_attempts")
    every = partial(step.read, "lease_attempts") if step.may_have("Refused") else recent
    return Change(replace=made_by(statement, step, lease_attempts=recent, every_lease=every))


def _with_refused(older: Older) -> "DataFrame":
    """No journal told of refusals before."""
    values = {"refused": "CAST(0 AS BIGINT) AS refused"}
    return older.rows.selectExpr(*(values.get(name, name) for name in names_of(COLUMNS)))


PEER_HEALTH = Dataset(
    name="peer_health",
    layer="gold",
    columns=COLUMNS,
    key=("shard", "peer_id"),
    kind="merge",
    inputs=(EVENTS, "lease_attempts"),
    advance=advance,
    version=2,
    migrations=(_with_refused,),
    expectations=(
        Expectation(
            "no more ends than grants", "completed + failed + expired + released <= grants", "warn"
        ),
    ),
)
