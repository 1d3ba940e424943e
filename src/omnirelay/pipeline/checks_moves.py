"""Fences over a shard, holders over a resource, items over all shards."""

# A grant's fence is its sequence plus a lead that only a restore of items with higher fences may
# raise. So a shard has few leads, each good for one stretch, and none needs a look at every grant.
FENCES = """
WITH given AS (
  SELECT shard, fence - sequence AS ahead, min(sequence) AS earliest, max(sequence) AS latest
  FROM lease_events WHERE event_type = 'LeaseGranted' GROUP BY shard, fence - sequence),
base AS (
  SELECT given.shard AS shard,
    CASE WHEN max(first_sequence) > 1 THEN min_by(ahead, earliest) ELSE 0 END AS ahead
  FROM given JOIN audit_shards ON audit_shards.shard = given.shard GROUP BY given.shard),
raised AS (
  SELECT shard, sequence, fence_floor - sequence AS ahead
  FROM audit_counts WHERE event_type = 'RestoreSnapshot' AND fence_floor > sequence),
due AS (
  SELECT given.shard AS shard, given.ahead AS ahead, given.earliest AS earliest,
    given.latest AS latest,
    greatest(max(base.ahead), coalesce(max(CASE WHEN raised.sequence < given.earliest
      THEN raised.ahead END), 0)) AS due_earliest,
    greatest(max(base.ahead), coalesce(max(CASE WHEN raised.sequence < given.latest
      THEN raised.ahead END), 0)) AS due_latest
  FROM given JOIN base ON base.shard = given.shard
  LEFT JOIN raised ON raised.shard = given.shard
  GROUP BY given.shard, given.ahead, given.earliest, given.latest)
SELECT 'fences.line' AS check_name, shard,
  CASE WHEN ahead <> due_earliest THEN earliest ELSE latest END AS sequence,
  CAST(NULL AS BIGINT) AS sequence_id, 'LeaseGranted' AS event_type,
  concat('fence ', CASE WHEN ahead <> due_earliest THEN earliest ELSE latest END + ahead,
    ' where ', CASE WHEN ahead <> due_earliest THEN earliest + due_earliest
    ELSE latest + due_latest END, ' was due') AS message
FROM due WHERE ahead <> due_earliest OR ahead <> due_latest
"""

RESOURCES = """
WITH ruled AS (
  SELECT shard, epoch,
    CASE WHEN rules LIKE '%"serializeBy":"resource"%' THEN 1 ELSE 0 END AS by_resource,
    CASE WHEN rules LIKE '%"serializeBy":"partition_key"%' THEN 1 ELSE 0 END AS by_key
  FROM lease_events WHERE event_type = 'EpochStarted'),
told AS (
  SELECT audit_touches.shard AS shard, sequence_id, sequence, event_type, epoch, partition_key,
    resource_type || '|' || resource_id AS resource
  FROM audit_touches JOIN audit_shards ON audit_shards.shard = audit_touches.shard
  WHERE is_serialised = 1 AND event_type <> 'Heartbeat'),
lives AS (
  SELECT shard, sequence_id, sequence, event_type, epoch, lead(sequence) OVER line AS until,
    last_value(resource) IGNORE NULLS OVER past AS resource,
    last_value(partition_key) IGNORE NULLS OVER past AS partition_key
  FROM told
  WINDOW line AS (PARTITION BY shard, sequence_id ORDER BY sequence),
    past AS (PARTITION BY shard, sequence_id ORDER BY sequence
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)),
held AS (
  SELECT lives.shard AS shard, sequence_id, sequence, until, by_resource + by_key AS is_ruled,
    CASE WHEN by_key = 1 AND partition_key IS NOT NULL THEN '|' || partition_key
      ELSE resource END AS owned
  FROM lives JOIN ruled ON ruled.shard = lives.shard AND ruled.epoch = lives.epoch
  WHERE event_type = 'LeaseGranted'),
seen AS (
  SELECT *, max(coalesce(until, 9007199254740991)) OVER (PARTITION BY shard, owned ORDER BY sequence
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy_until
  FROM held)
SELECT 'resources.overlap' AS check_name, shard, sequence, sequence_id,
  'LeaseGranted' AS event_type,
  concat('item ', sequence_id, ' is granted while another holds ', owned) AS message
FROM seen WHERE is_ruled = 1 AND owned IS NOT NULL AND busy_until > sequence
"""

# Items born in a journal that is not at hand, or not from its beginning, may come in once more
# than they were seen to leave.
MOVES = """
WITH named AS (
  SELECT audit_moves.shard AS shard, sequence, event_type, timestamp, sequence_id,
    coalesce(audit_moves.origin, audit_shards.origin) AS origin
  FROM audit_moves JOIN audit_shards ON audit_shards.shard = audit_moves.shard),
counted AS (
  SELECT origin, sequence_id,
    sum(CASE WHEN event_type = 'DrainSnapshot' THEN 1 ELSE 0 END) AS drained,
    sum(CASE WHEN event_type = 'RestoreSnapshot' THEN 1 ELSE 0 END) AS restored
  FROM named GROUP BY origin, sequence_id),
whole AS (SELECT DISTINCT origin FROM audit_shards WHERE first_sequence = 1 AND origin IS NOT NULL),
surplus AS (
  SELECT counted.origin AS origin, sequence_id, drained, restored
  FROM counted LEFT JOIN whole ON whole.origin = counted.origin
  WHERE restored > drained + CASE WHEN whole.origin IS NULL THEN 1 ELSE 0 END),
latest AS (
  SELECT named.*, drained, restored, row_number() OVER (
    PARTITION BY named.origin, named.sequence_id ORDER BY timestamp DESC, shard DESC, sequence DESC)
    AS place
  FROM named JOIN surplus
    ON surplus.origin = named.origin AND surplus.sequence_id = named.sequence_id
  WHERE event_type = 'RestoreSnapshot')
SELECT 'moves.restored' AS check_name, shard, sequence, sequence_id, event_type,
  concat('item ', sequence_id, ' of ', origin, ' was drained ', drained, ' times and restored ',
    restored, ' times') AS message
FROM latest WHERE place = 1
"""

# A page may take leases with it, and only the items' own past tells which of them were held.
DRAINS = """
WITH gone AS (
  SELECT shard, sequence, sequence_id FROM audit_moves WHERE event_type = 'DrainSnapshot'),
past AS (
  SELECT gone.shard AS shard, gone.sequence AS sequence, gone.sequence_id AS sequence_id,
    max_by(event_type, audit_touches.sequence) AS last_type
  FROM gone JOIN audit_touches ON audit_touches.shard = gone.shard
    AND audit_touches.sequence_id = gone.sequence_id AND audit_touches.sequence < gone.sequence
  WHERE event_type <> 'Heartbeat'
  GROUP BY gone.shard, gone.sequence, gone.sequence_id),
leases AS (
  SELECT past.shard AS shard, sequence,
    sum(CASE WHEN last_type = 'LeaseGranted' THEN 1 ELSE 0 END) AS held
  FROM past JOIN audit_shards ON audit_shards.shard = past.shard
  WHERE first_sequence = 1 GROUP BY past.shard, sequence),
depths AS (
  SELECT /*+ BROADCAST(later) */ later.shard AS shard, later.sequence AS sequence,
    later.active AS active, before.active AS before_active
  FROM lease_events AS later JOIN lease_events AS before
    ON before.shard = later.shard AND before.sequence = later.sequence - 1
  WHERE later.event_type = 'DrainSnapshot')
SELECT 'drains.depth' AS check_name, leases.shard AS shard, leases.sequence AS sequence,
  CAST(NULL AS BIGINT) AS sequence_id, 'DrainSnapshot' AS event_type,
  concat('it took ', held, ' leases with it, the depth went from ', before_active, ' to ', active)
    AS message
FROM leases JOIN depths ON depths.shard = leases.shard AND depths.sequence = leases.sequence
WHERE before_active - active <> held
"""
