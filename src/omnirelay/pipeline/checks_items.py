"""The life of each item, every event of it held against what was true of it before.

`now_it` says what an event makes of its item: `w` waiting, `d` dead letter, `o` out by drain, `e`
ended, or `h|` and the token when it is held. A heartbeat changes nothing and is looked through.
A new epoch gives every holder its whole time again, so a lease that saw one begin has its deadline
from there.
"""

from omnirelay.pipeline.checks_words import when

_BEAT = "concat(fence, '|', principal, '|')"
_WHOLE = "concat(fence, '|', principal, '|', attempt, '|', lease_id)"

_NOW = f"""CASE event_type WHEN 'Heartbeat' THEN NULL
    WHEN 'LeaseGranted' THEN concat('h|', {_WHOLE})
    WHEN 'Completed' THEN 'e' WHEN 'Purged' THEN 'e' WHEN 'DrainSnapshot' THEN 'o'
    ELSE CASE WHEN dead THEN 'd' ELSE 'w' END END"""

# What its next grant must carry. A dead letter counts on when it is redriven.
_NEXT = """CASE event_type WHEN 'Enqueue' THEN 1 WHEN 'Released' THEN attempt
    WHEN 'LeaseGranted' THEN attempt + 1 WHEN 'Failed' THEN attempt + 1
    WHEN 'Expired' THEN attempt + 1
    WHEN 'RestoreSnapshot' THEN CASE WHEN dead THEN attempt + 1 ELSE attempt END END"""

_CLAIM = f"""CASE WHEN event_type IN ('Completed', 'Failed', 'Expired', 'Released')
    THEN concat('h|', {_WHOLE}) WHEN event_type = 'Heartbeat' THEN concat('h|', {_BEAT}) END"""

_PROBLEM = """CASE event_type
    WHEN 'Enqueue' THEN CASE WHEN was IS NOT NULL THEN 'items.accepted' END
    WHEN 'LeaseGranted' THEN CASE
      WHEN was IS NULL THEN 'items.unknown'
      WHEN was LIKE 'h|%' THEN 'items.overlap'
      WHEN was <> 'w' THEN 'items.waiting'
      WHEN attempt <> next_attempt THEN 'items.attempt' END
    WHEN 'Heartbeat' THEN CASE
      WHEN was IS NULL THEN 'items.unknown'
      WHEN substr(was, 1, length(claim)) <> claim THEN 'items.token'
      WHEN timestamp >= deadline OR epoch <> deadline_epoch THEN 'items.deadline' END
    WHEN 'DrainSnapshot' THEN CASE
      WHEN was IS NULL THEN 'items.unknown'
      WHEN was IN ('o', 'e') THEN 'items.moved'
      WHEN attempt <> CASE WHEN dead THEN next_attempt - 1 ELSE next_attempt END
        THEN 'items.attempt' END
    WHEN 'RestoreSnapshot' THEN CASE WHEN was <> 'o' THEN 'items.moved' END
    WHEN 'Redriven' THEN CASE
      WHEN was IS NULL THEN 'items.unknown' WHEN was <> 'd' THEN 'items.dead' END
    WHEN 'Purged' THEN CASE
      WHEN was IS NULL THEN 'items.unknown' WHEN was <> 'd' THEN 'items.dead' END
    ELSE CASE
      WHEN was IS NULL THEN 'items.unknown'
      WHEN was = 'e' THEN 'items.ended'
      WHEN was NOT LIKE 'h|%' THEN 'items.held'
      WHEN was <> claim THEN 'items.token'
      WHEN epoch <> deadline_epoch THEN 'items.deadline'
      WHEN (event_type = 'Expired') <> (timestamp >= deadline) THEN 'items.deadline' END
    END"""

_WAS = (
    "CASE substr(coalesce(was, '-'), 1, 1) WHEN 'h' THEN concat('held with token ',"
    " substr(was, 3)) WHEN 'w' THEN 'waiting' WHEN 'd' THEN 'a dead letter'"
    " WHEN 'o' THEN 'drained' WHEN 'e' THEN 'over' ELSE 'never accepted' END"
)

_MESSAGE = when(
    "problem",
    {
        "items.attempt": (
            "concat('item ', sequence_id, ': attempt ', attempt, ' where ', next_attempt,"
            " ' was due')"
        ),
        "items.deadline": (
            "concat('item ', sequence_id, ': its lease ran until ', deadline,"
            " CASE WHEN judged.epoch <> deadline_epoch THEN concat(' and anew from ', began_at)"
            " ELSE '' END, ', this is at ', timestamp)"
        ),
        "items.token": (
            f"concat('item ', sequence_id, ' was ', {_WAS}, ', this is by ', substr(claim, 3))"
        ),
    },
    otherwise=f"concat('item ', sequence_id, ' was ', {_WAS})",
)

ITEMS = f"""
WITH told AS (
  SELECT shard, sequence_id, sequence, event_type, epoch, timestamp, attempt, dead, expires_at,
    CASE WHEN expires_at IS NOT NULL THEN epoch END AS expiry_epoch,
    expires_at - timestamp AS lease_for,
    {_NOW} AS now_it, {_NEXT} AS then_attempt, {_CLAIM} AS claim
  FROM audit_touches),
seen AS (
  SELECT *, last_value(now_it) IGNORE NULLS OVER life AS was,
    last_value(then_attempt) IGNORE NULLS OVER life AS next_attempt,
    last_value(expires_at) IGNORE NULLS OVER life AS deadline,
    last_value(expiry_epoch) IGNORE NULLS OVER life AS deadline_epoch,
    last_value(lease_for) IGNORE NULLS OVER life AS held_for
  FROM told
  WINDOW life AS (PARTITION BY shard, sequence_id ORDER BY sequence
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
judged AS (SELECT *, {_PROBLEM} AS problem FROM seen)
SELECT problem AS check_name, judged.shard AS shard, sequence, sequence_id, event_type,
  {_MESSAGE} AS message
FROM judged JOIN audit_shards ON audit_shards.shard = judged.shard
LEFT JOIN audit_epochs ON audit_epochs.shard = judged.shard AND audit_epochs.epoch = judged.epoch
WHERE problem IS NOT NULL
  -- What came before a journal was pruned is not there to be judged by.
  AND NOT (problem = 'items.unknown' AND first_sequence > 1)
  AND NOT (problem = 'items.deadline' AND judged.epoch <> deadline_epoch
    AND (event_type = 'Expired') = (timestamp - began_at >= held_for))
"""  # noqa: S608 - put together from the constants above
