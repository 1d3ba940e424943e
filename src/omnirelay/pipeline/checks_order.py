"""The order of each journal, every event held against the one before it.

A window over a whole shard would be one task a shard, so events are parted into stretches of
sequences; the last event of a stretch comes along with the next one, as the one before its first.
"""

from omnirelay.pipeline.checks_words import when

STRETCH = 4096
"""Also how many rows Spark's window keeps in plain memory."""

_COLUMNS = """sequence, event_type, epoch, node, timestamp, pending, active, moved,
  envelope_first, envelope_last, link_in, link_out,
  CASE event_type WHEN 'Enqueue' THEN 1 WHEN 'Released' THEN 1 WHEN 'LeaseGranted' THEN -1
    WHEN 'Failed' THEN CASE WHEN disposition = 'requeued' THEN 1 ELSE 0 END
    WHEN 'Expired' THEN CASE WHEN disposition = 'requeued' THEN 1 ELSE 0 END
    WHEN 'RestoreSnapshot' THEN moved WHEN 'Redriven' THEN moved
    WHEN 'DrainSnapshot' THEN NULL ELSE 0 END AS more_pending,
  CASE event_type WHEN 'LeaseGranted' THEN 1 WHEN 'Completed' THEN -1 WHEN 'Failed' THEN -1
    WHEN 'Expired' THEN -1 WHEN 'Released' THEN -1 WHEN 'DrainSnapshot' THEN NULL
    ELSE 0 END AS more_active"""

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
    WHEN pending - before_pending <> more_pending THEN 'order.depth'
    WHEN active - before_active <> more_active THEN 'order.depth'
    WHEN event_type = 'DrainSnapshot' AND (pending > before_pending OR active > before_active
      OR pending + active <> before_pending + before_active - moved) THEN 'order.depth'
    END"""

_MESSAGE = when(
    "problem",
    {
        "order.gap": "concat('sequence ', sequence, ' comes after ', coalesce(before, 0))",
        "order.duplicate": "concat('sequence ', sequence, ' is there more than once')",
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

ORDER = f"""
WITH told AS (
  SELECT shard, sequence - sequence % {STRETCH} AS stretch, 0 AS is_context, {_COLUMNS}
  FROM audit_steps
  UNION ALL
  SELECT shard, sequence + 1 AS stretch, 1 AS is_context, {_COLUMNS}
  FROM audit_steps
  WHERE (sequence + 1) % {STRETCH} = 0),
seen AS (
  SELECT *, lag(sequence) OVER line AS before, lag(envelope_first) OVER line AS before_first,
    lag(link_out) OVER line AS before_link, lag(epoch) OVER line AS before_epoch,
    lag(node) OVER line AS before_node, lag(timestamp) OVER line AS before_timestamp,
    lag(pending) OVER line AS before_pending, lag(active) OVER line AS before_active
  FROM told
  WINDOW line AS (PARTITION BY shard, stretch ORDER BY sequence, is_context)),
judged AS (SELECT *, {_STEP} AS problem FROM seen WHERE is_context = 0)
SELECT problem AS check_name, judged.shard AS shard, sequence, CAST(NULL AS BIGINT) AS sequence_id,
  event_type, {_MESSAGE} AS message
FROM judged JOIN audit_shards ON audit_shards.shard = judged.shard
WHERE problem IS NOT NULL
  AND NOT (problem = 'order.gap' AND before IS NULL AND sequence = first_sequence)
"""  # noqa: S608 - put together from the constants above
