"""`epochs`: who wrote a shard, from sequence to sequence.

`until_…` is the last event seen of the epoch. The newest epoch of a shard is open: it may go on.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from omnirelay.pipeline.datasets import EVENTS, Dataset, Expectation
from omnirelay.pipeline.fresh import carried
from omnirelay.pipeline.sql import Dialect

COLUMNS = (
    "shard string, epoch bigint, node string, origin string, from_sequence bigint,"
    " from_at timestamp, until_sequence bigint, until_at timestamp, events bigint, state string"
)


def statement(_: Dialect, *, has_old: bool) -> str:
    carried = (
        """UNION ALL SELECT shard, epoch, node, origin, from_sequence, from_at, until_sequence,
  until_at, events FROM $old"""
        if has_old
        else ""
    )
    return f"""
WITH spans AS (
  SELECT shard, epoch, node, min(sequence) AS from_sequence, min(timestamp) AS from_at,
    max(sequence) AS until_sequence, max(timestamp) AS until_at, count(*) AS events
  FROM $new GROUP BY shard, epoch, node
),
starts AS (SELECT shard, epoch, node, origin FROM $started WHERE event_type = 'EpochStarted'),
parts AS (
  SELECT spans.shard, spans.epoch, spans.node, starts.origin, spans.from_sequence, spans.from_at,
    spans.until_sequence, spans.until_at, spans.events
  FROM spans LEFT JOIN starts ON starts.shard = spans.shard AND starts.epoch = spans.epoch
    AND starts.node = spans.node
  {carried}
),
merged AS (
  SELECT shard, epoch, node, max(origin) AS origin, min(from_sequence) AS from_sequence,
    min(from_at) AS from_at, max(until_sequence) AS until_sequence, max(until_at) AS until_at,
    CAST(sum(events) AS BIGINT) AS events
  FROM parts GROUP BY shard, epoch, node
)
SELECT *, CASE WHEN epoch = max(epoch) OVER (PARTITION BY shard) THEN 'open' ELSE 'closed' END
  AS state
FROM merged"""


EPOCHS = Dataset(
    name="epochs",
    layer="silver",
    columns=COLUMNS,
    key=("shard", "epoch"),
    kind="carry",
    inputs=(EVENTS,),
    advance=carried(statement),
    partition_by="state",
    expectations=(
        Expectation(
            "an epoch's events have no gap",
            "events = until_sequence - from_sequence + 1",
            "warn",
        ),
    ),
)
