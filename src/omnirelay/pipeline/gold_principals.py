"""`principal_activity`: who touched what, when, how often.

One row per principal, resource and action (the event type). An event about many items counts for
each of them. Heartbeats are left out: they say that a grant, which is here, went on, and
`lease_attempts` counts them. An expiry counts for the principal that let the lease expire. Refused
calls count as often as the journal says, heartbeats among them, and stand where their principal was
told no; their resource is blank where they named no item that is known here.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from functools import partial

from omnirelay.pipeline.datasets import EVENTS, Change, Dataset, Expectation, Step
from omnirelay.pipeline.fresh import fresh_sql, made_by
from omnirelay.pipeline.sql import Dialect

COLUMNS = (
    "shard string, principal string, resource_type string, resource_id string, action string,"
    " times bigint, first_at timestamp, last_at timestamp, first_sequence bigint,"
    " last_sequence bigint"
)
_KEY = "shard, principal, resource_type, resource_id, action"
_SPAN = "first_at, last_at, first_sequence, last_sequence"


def _refused(*, has_old: bool) -> str:
    """What was refused may be about an item that left long ago, so all items are asked; but only if
    anything was refused, which is little and so broadcast."""
    items = "every_item" if has_old else "items"
    return f"""
told AS (
  SELECT shard, sequence, timestamp, principal, sequence_id,
    CAST(details['times'] AS BIGINT) AS times
  FROM $refused WHERE event_type = 'Refused'
),
about AS (
  SELECT /*+ BROADCAST(r) */ r.shard, r.sequence,
    max_by(i.resource_type, i.enqueued_sequence) AS resource_type,
    max_by(i.resource_id, i.enqueued_sequence) AS resource_id
  FROM told AS r JOIN ${items} AS i ON i.shard = r.shard AND i.sequence_id = r.sequence_id
    AND i.enqueued_sequence < r.sequence
  GROUP BY r.shard, r.sequence
),
refusals AS (
  SELECT r.shard, r.principal, coalesce(a.resource_type, '') AS resource_type,
    coalesce(a.resource_id, '') AS resource_id, 'Refused' AS action, r.sequence, r.times,
    r.timestamp AS touched_at
  FROM told AS r LEFT JOIN about AS a ON a.shard = r.shard AND a.sequence = r.sequence
)"""


def statement(sql: Dialect, *, has_old: bool) -> str:
    old = f"UNION ALL SELECT {_KEY}, times, {_SPAN} FROM $old" if has_old else ""
    span = (
        "min(touched_at) AS first_at, max(touched_at) AS last_at,"
        " min(sequence) AS first_sequence, max(sequence) AS last_sequence"
    )
    return f"""
WITH {fresh_sql("lease_attempts", has_old=has_old)},{_refused(has_old=has_old)},
moves AS (
  SELECT shard, sequence, timestamp, principal, event_type, {sql.each("items")} AS item FROM $moved
  WHERE event_type IN ('DrainSnapshot', 'RestoreSnapshot', 'Redriven', 'Purged')
),
touches AS (
  SELECT shard, principal, resource_type, resource_id, event_type AS action, sequence,
    timestamp AS touched_at FROM $new WHERE event_type = 'Enqueue'
  UNION ALL
  SELECT shard, principal, resource_type, resource_id, 'LeaseGranted', granted_sequence, granted_at
  FROM fresh_lease_attempts WHERE granted_sequence >= since
  UNION ALL
  SELECT shard, ended_by, resource_type, resource_id, CASE outcome WHEN 'completed' THEN 'Completed'
    WHEN 'failed' THEN 'Failed' WHEN 'expired' THEN 'Expired' ELSE 'Released' END,
    ended_sequence, ended_at
  FROM fresh_lease_attempts WHERE outcome <> 'drained' AND ended_sequence >= since
  UNION ALL
  SELECT shard, principal, item.resource_type, item.resource_id, event_type, sequence, timestamp
  FROM moves WHERE event_type IN ('DrainSnapshot', 'RestoreSnapshot')
  UNION ALL
  SELECT m.shard, m.principal, i.resource_type, i.resource_id, m.event_type, m.sequence, m.timestamp
  FROM moves AS m JOIN $items AS i ON i.shard = m.shard AND i.sequence_id = m.item.sequence_id
    AND i.enqueued_sequence < m.sequence
    AND (i.state = 'open' OR i.ended_sequence >= m.sequence)
  WHERE m.event_type IN ('Redriven', 'Purged')
),
parts AS (
  SELECT {_KEY}, count(*) AS times, {span} FROM touches GROUP BY {_KEY}
  UNION ALL
  SELECT {_KEY}, CAST(sum(times) AS BIGINT) AS times, {span} FROM refusals GROUP BY {_KEY}
  {old}
)
SELECT {_KEY}, CAST(sum(times) AS BIGINT) AS times, min(first_at) AS first_at,
  max(last_at) AS last_at, min(first_sequence) AS first_sequence,
  max(last_sequence) AS last_sequence
FROM parts GROUP BY {_KEY}"""


def advance(step: Step) -> Change:
    leases, items = partial(step.recent, "lease_attempts"), partial(step.recent, "items")
    every = partial(step.read, "items") if step.may_have("Refused") else items
    rows = made_by(statement, step, lease_attempts=leases, items=items, every_item=every)
    return Change(replace=rows)


PRINCIPAL_ACTIVITY = Dataset(
    name="principal_activity",
    layer="gold",
    columns=COLUMNS,
    key=("shard", "principal", "resource_type", "resource_id", "action"),
    kind="merge",
    inputs=(EVENTS, "lease_attempts", "items"),
    advance=advance,
    expectations=(Expectation("what happened happened", "times > 0"),),
)
