"""The order of each journal, every event held against the one before it.

A window over a whole shard would be one task a shard, so events are parted into stretches of
sequences; the last event of a stretch comes along with the next one, as the one before its first.
"""

from omnirelay.pipeline.checks_words import when

STRETCH = 4096
"""Also how many rows Spark's window keeps in plain memory."""
STRETCH_OF = f"sequence - sequence % {STRETCH}"

_MORE_PENDING = """CASE event_type WHEN 'Enqueue' THEN 1 WHEN 'Released' THEN 1
    WHEN 'LeaseGranted' THEN -1
    WHEN 'Failed' THEN CASE WHEN disposition = 'requeued' THEN 1 ELSE 0 END
    WHEN 'Expired' THEN CASE WHEN disposition = 'requeued' THEN 1 ELSE 0 END
    ELSE 0 END"""
_MORE_ACTIVE = """CASE event_type WHEN 'LeaseGranted' THEN 1 WHEN 'Completed' THEN -1
    WHEN 'Failed' THEN -1 WHEN 'Expired' THEN -1 WHEN 'Released' THEN -1 ELSE 0 END"""

_STEP = """CASE
    WHEN before IS NULL AND sequence = 1 AND (event_type <> 'EpochStarted' OR pending <> 0
      OR active <> 0 OR link_in <> '') THEN 'order.chain'
    WHEN before IS NULL THEN 'order.gap'
    WHEN sequence = before THEN 'order.duplicate'
    WHEN sequence > before + 1 THEN 'order.gap'
    WHEN sequence < envelope_first OR sequence > envelope_last THEN 'order.chain'
    WHEN sequence > envelope_first AND envelope_first <> before_first THEN 'order.chain'
    WHEN sequence = envelope_first AND before_link IS NULL THEN 'order.chain'
    WHEN sequence = envelope_first AND link_in <> before_link THEN 'order.chain'
    WHEN epoch < before_epoch THEN 'order.epoch'
    WHEN (epoch > before_epoch) <> (event_type = 'EpochStarted') THEN 'order.epoch'
    WHEN epoch = before_epoch AND node <> before_node THEN 'order.epoch'
    WHEN timestamp < before_timestamp THEN 'order.clock'
    WHEN event_type IN ('DrainSnapshot', 'RestoreSnapshot', 'Redriven') THEN 'order.depth'
    WHEN pending - before_pending <> more_pending THEN 'order.depth'
    WHEN active - before_active <> more_active THEN 'order.depth'
    END"""

_MESSAGE = when(
    "problem",
    {
        "order.gap": "concat('sequence ', judged.sequence, ' comes after ', coalesce(before, 0))",
        "order.duplicate": "concat('sequence ', judged.sequence, ' is there more than once')",
        "order.chain": (
            "concat('its envelope (', envelope_first, ' to ', envelope_last, ') follows checksum ',"
            " coalesce(link_in, 'of itself'), ', the journal has ', coalesce(before_link, 'none'))"
        ),
        "order.epoch": (
            "concat('epoch ', epoch, ' of ', node, ' after epoch ', before_epoch, ' of ',"
            " before_node)"
        ),
        "order.clock": "concat('its time ', timestamp, ' is before ', before_timestamp)",
        "order.depth": (
            "concat('it leaves ', pending, ' pending and ', active, ' active; before it there"
            " were ', before_pending, ' and ', before_active)"
        ),
    },
)

# How much a page moves is known only from its items, so every page comes through as a suspect.
_PAGE_FITS = """judged.event_type IN ('DrainSnapshot', 'RestoreSnapshot', 'Redriven') AND CASE
    WHEN judged.event_type = 'DrainSnapshot' THEN pending <= before_pending
      AND active <= before_active
      AND pending + active = before_pending + before_active - coalesce(moved, 0)
    ELSE pending = before_pending + coalesce(moved, 0) AND active = before_active END"""

ORDER = f"""
WITH told AS (
  SELECT *, {_MORE_PENDING} AS more_pending, {_MORE_ACTIVE} AS more_active FROM audit_steps),
seen AS (
  SELECT *, lag(sequence) OVER line AS before, lag(envelope_first) OVER line AS before_first,
    lag(link_out) OVER line AS before_link, lag(epoch) OVER line AS before_epoch,
    lag(node) OVER line AS before_node, lag(timestamp) OVER line AS before_timestamp,
    lag(pending) OVER line AS before_pending, lag(active) OVER line AS before_active
  FROM told
  WINDOW line AS (PARTITION BY shard, stretch ORDER BY sequence)),
judged AS (SELECT *, {_STEP} AS problem FROM seen WHERE sequence >= stretch)
SELECT problem AS check_name, judged.shard AS shard, judged.sequence AS sequence,
  CAST(NULL AS BIGINT) AS sequence_id, judged.event_type AS event_type, {_MESSAGE} AS message
FROM judged JOIN audit_shards ON audit_shards.shard = judged.shard
LEFT JOIN audit_counts
  ON audit_counts.shard = judged.shard AND audit_counts.sequence = judged.sequence
WHERE problem IS NOT NULL
  AND NOT (problem = 'order.gap' AND before IS NULL AND judged.sequence = first_sequence)
  AND NOT (problem = 'order.depth' AND {_PAGE_FITS})
"""  # noqa: S608 - put together from the constants above
