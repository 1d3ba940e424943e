"""`backpressure`: when a shard refused new items because too many waited.

The core pauses at `pendingHigh` items and resumes at `pendingLow` (lease/state.py). In between
nothing changes, so only events at or beyond a mark count, and of those only each first after one of
the other kind, in shards where somebody reached the high mark at all. They are thinned out in
blocks of sequences before anything looks at a whole shard.

A closed row is one pause, with the rules of the event that ended it. Each shard has one open row:
its newest rules, the last event seen as `until_…`, and `from_…` if it is paused now.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from omnirelay.pipeline.datasets import EVENTS, Dataset
from omnirelay.pipeline.fresh import carried
from omnirelay.pipeline.sql import Dialect

COLUMNS = (
    "shard string, epoch bigint, pending_high bigint, pending_low bigint, from_sequence bigint,"
    " from_at timestamp, until_sequence bigint, until_at timestamp, state string"
)
_BLOCK = 65_536
_SHARD_ORDER = "PARTITION BY shard ORDER BY sequence"


def statement(sql: Dialect, *, has_old: bool) -> str:
    rules, pressed, marks, seen = "", "", "", ""
    if has_old:
        pressed = "UNION ALL SELECT shard FROM $old WHERE from_at IS NOT NULL"
        rules = "UNION ALL SELECT shard, epoch, pending_high, pending_low FROM $old"
        marks = """UNION ALL SELECT shard, coalesce(from_sequence, 0), from_at, epoch, pending_high,
    pending_low, CASE WHEN from_at IS NULL THEN 0 ELSE 1 END FROM $old"""
        seen = "UNION ALL SELECT shard, epoch, until_sequence, until_at FROM $old"
    high = f"coalesce({sql.whole_number('rules', 'pendingHigh')}, 0)"
    low = f"coalesce({sql.whole_number('rules', 'pendingLow')}, 0)"
    block = f"PARTITION BY shard, CAST(floor(sequence / {_BLOCK}) AS BIGINT) ORDER BY sequence"
    return f"""
WITH rules AS (
  SELECT shard, epoch, {high} AS pending_high, {low} AS pending_low FROM $started
  WHERE event_type = 'EpochStarted'
  {rules}
),
tops AS (
  SELECT shard, epoch, max(pending) AS pending_most, max(sequence) AS until_sequence,
    max(timestamp) AS until_at
  FROM $new GROUP BY shard, epoch
),
pressed AS (
  SELECT /*+ BROADCAST(r) */ t.shard
  FROM tops AS t JOIN rules AS r ON r.shard = t.shard AND r.epoch = t.epoch
  WHERE r.pending_high > 0 AND t.pending_most >= r.pending_high
  {pressed}
),
marked AS (
  SELECT /*+ BROADCAST(r), BROADCAST(pressed) */
    e.shard, e.sequence, e.timestamp AS marked_at, e.epoch, r.pending_high, r.pending_low,
    CASE WHEN r.pending_high > 0 AND e.pending >= r.pending_high THEN 1 ELSE 0 END AS mark
  FROM $new AS e SEMI JOIN pressed ON pressed.shard = e.shard
  JOIN rules AS r ON r.shard = e.shard AND r.epoch = e.epoch
  WHERE r.pending_high > 0 AND (e.pending >= r.pending_high OR e.pending <= r.pending_low)
    OR r.pending_high = 0 AND e.event_type = 'EpochStarted'
),
thinned AS (
  SELECT shard, sequence, marked_at, epoch, pending_high, pending_low, mark FROM (
    SELECT *, lag(mark) OVER ({block}) AS before FROM marked
  ) AS blocks WHERE before IS NULL OR before <> mark
  {marks}
),
{_pauses(seen)}"""


def _pauses(seen: str) -> str:
    """From each turn to the next, and what the shard is under now."""
    return f"""turns AS (
  SELECT shard, sequence, marked_at, epoch, pending_high, pending_low, mark FROM (
    SELECT *, lag(mark) OVER ({_SHARD_ORDER}) AS before FROM thinned
  ) AS shards WHERE coalesce(before, 0) <> mark
),
pauses AS (
  SELECT shard, mark, sequence AS from_sequence, marked_at AS from_at,
    lead(sequence) OVER ({_SHARD_ORDER}) AS until_sequence,
    lead(marked_at) OVER ({_SHARD_ORDER}) AS until_at,
    lead(epoch) OVER ({_SHARD_ORDER}) AS epoch,
    lead(pending_high) OVER ({_SHARD_ORDER}) AS pending_high,
    lead(pending_low) OVER ({_SHARD_ORDER}) AS pending_low
  FROM turns
),
seen AS (
  SELECT shard, max(epoch) AS epoch, max(until_sequence) AS until_sequence,
    max(until_at) AS until_at
  FROM (SELECT shard, epoch, until_sequence, until_at FROM tops {seen}) AS parts GROUP BY shard
)
SELECT shard, epoch, pending_high, pending_low, from_sequence, from_at, until_sequence, until_at,
  'closed' AS state
FROM pauses WHERE mark = 1 AND until_sequence IS NOT NULL
UNION ALL
SELECT seen.shard, seen.epoch, coalesce(r.pending_high, 0), coalesce(r.pending_low, 0),
  p.from_sequence, p.from_at, seen.until_sequence, seen.until_at, 'open'
FROM seen LEFT JOIN rules AS r ON r.shard = seen.shard AND r.epoch = seen.epoch
LEFT JOIN (SELECT * FROM pauses WHERE mark = 1 AND until_sequence IS NULL) AS p
  ON p.shard = seen.shard"""


BACKPRESSURE = Dataset(
    name="backpressure",
    layer="silver",
    columns=COLUMNS,
    key=("shard", "from_sequence"),
    kind="carry",
    inputs=(EVENTS,),
    advance=carried(statement),
    partition_by="state",
)
