"""What the audit proves, as plain SQL over the events: window functions and aggregates, no code of
ours in between. DuckDB runs the same text after `in_duckdb`, which moves two words; how a list is
unfolded, which the two say differently, is kept in the views.

Every statement gives rows (check, shard, sequence, sequence_id, event_type, message): findings.
"""

import re
from dataclasses import dataclass, field

from omnirelay.pipeline.checks_items import ITEMS
from omnirelay.pipeline.checks_moves import DRAINS, FENCES, MOVES, RESOURCES
from omnirelay.pipeline.checks_order import ORDER, STRETCH, STRETCH_OF


@dataclass(frozen=True)
class Check:
    """One statement, and what each name under which it reports proves when it does not."""

    name: str
    proves: dict[str, str] = field(repr=False)
    sql: str = field(repr=False)
    is_for_serialised: bool = False
    """Only shards that serialise need it."""


CHECKS: tuple[Check, ...] = (
    Check(
        "order",
        {
            "order.gap": "sequences have no gap",
            "order.duplicate": "every sequence is there once",
            "order.chain": "envelopes follow one another, each linked to the one before",
            "order.epoch": "epochs rise, each begun by its record and written by one node",
            "order.clock": "the shard's clock never goes back",
            "order.depth": "recorded depths are those that the records lead to",
        },
        ORDER,
    ),
    Check(
        "fences",
        {"fences.line": "fences rise from grant to grant, in step with the journal"},
        FENCES,
    ),
    Check(
        "items",
        {
            "items.accepted": "an item is accepted once",
            "items.unknown": "nothing happens to an item that never came",
            "items.overlap": "no item has two holders",
            "items.waiting": "only what waits is granted",
            "items.token": "who ends or prolongs a lease has its newest token",
            "items.held": "only an open lease ends",
            "items.ended": "what is over stays over",
            "items.dead": "only dead letters are redriven or purged",
            "items.moved": "an item leaves once before it comes back, and the other way round",
            "items.deadline": "leases end neither by expiry too early nor by holders too late",
            "items.attempt": "attempts count on by one",
        },
        ITEMS,
    ),
    Check(
        "resources",
        {"resources.overlap": "a serialised resource has one holder at a time"},
        RESOURCES,
        is_for_serialised=True,
    ),
    Check(
        "moves",
        {"moves.restored": "over all shards, what was restored had been drained, and once"},
        MOVES,
    ),
    Check(
        "drains",
        {"drains.depth": "the leases that a drain took with it are those that were held"},
        DRAINS,
    ),
)

_SPARK = {"unfold": "explode", "stretches": f"array({STRETCH_OF}, sequence + 1)", "one": "array"}
_DUCKDB = {"unfold": "unnest", "stretches": f"[{STRETCH_OF}, sequence + 1]", "one": "list_value"}

_VIEWS = {
    # Without the lists of items: reading these for every event costs more than all the rest.
    "audit_steps": f"""
SELECT shard, sequence, event_type, epoch, node, timestamp, pending, active, disposition,
  envelope_first, envelope_last,
  CASE WHEN sequence = envelope_first THEN envelope_prev END AS link_in,
  CASE WHEN sequence = envelope_last THEN envelope_checksum END AS link_out,
  {{unfold}}(CASE WHEN (sequence + 1) % {STRETCH} = 0 THEN {{stretches}}
    ELSE {{one}}({STRETCH_OF}) END) AS stretch
FROM lease_events
""",  # noqa: S608 - put together from constants
    # Every item of every event that is about several. Read once and kept: lists are dear to read.
    "audit_pages": """
SELECT shard, sequence, event_type, epoch, timestamp, principal, item.sequence_id AS sequence_id,
  item.attempt AS attempt, item.fence AS fence, item.expires_at AS expires_at, item.dead AS dead,
  item.origin AS origin, item.last_fence AS last_fence, item.resource_type AS resource_type,
  item.resource_id AS resource_id, item.partition_key AS partition_key
FROM (
  SELECT shard, sequence, event_type, epoch, timestamp, principal, {unfold}(items) AS item
  FROM lease_events WHERE items IS NOT NULL) AS unfolded
""",
    "audit_counts": """
SELECT shard, sequence, event_type, sum(CASE WHEN dead THEN 0 ELSE 1 END) AS moved,
  max(last_fence) AS fence_floor
FROM audit_pages WHERE event_type IN ('DrainSnapshot', 'RestoreSnapshot', 'Redriven')
GROUP BY shard, sequence, event_type
""",
    "audit_touches": """
SELECT shard, sequence_id, sequence, event_type, epoch, timestamp, attempt, lease_id, fence,
  principal, expires_at, disposition = 'deadLettered' AS dead,
  resource_type, resource_id, partition_key
FROM lease_events WHERE sequence_id IS NOT NULL AND event_type <> 'Refused'
UNION ALL
SELECT shard, sequence_id, sequence, event_type, epoch, timestamp, attempt,
  CAST(NULL AS STRING), fence, principal, expires_at, dead,
  resource_type, resource_id, partition_key
FROM audit_pages
""",
    "audit_moves": """
SELECT shard, sequence, event_type, timestamp, sequence_id, origin
FROM audit_pages WHERE event_type IN ('DrainSnapshot', 'RestoreSnapshot')
""",
    "audit_epochs": """
SELECT shard, epoch, min(timestamp) AS began_at
FROM lease_events WHERE event_type = 'EpochStarted' GROUP BY shard, epoch
""",
    # What the other statements need to know of each shard as a whole. Small: a row a shard.
    "audit_shards": """
SELECT shard, min(sequence) AS first_sequence, max(sequence) AS last_sequence,
  count(*) AS events,
  min_by(origin, CASE WHEN origin IS NOT NULL THEN sequence END) AS origin,
  max(CASE WHEN rules LIKE '%"serializeBy":"resource"%'
    OR rules LIKE '%"serializeBy":"partition_key"%' THEN 1 ELSE 0 END) AS is_serialised,
  max(CASE WHEN envelope_first IS NULL THEN 1 ELSE 0 END) AS is_bare
FROM lease_events GROUP BY shard
""",
}


KEPT = ("audit_pages", "audit_shards")


def views(*, duckdb: bool = False) -> dict[str, str]:
    """What to make of the table or view `lease_events` before a check runs, in this order. Those
    of `KEPT` are asked for again and again: keep their rows, they are few."""
    words = _DUCKDB if duckdb else _SPARK
    return {name: sql.format(**words) for name, sql in _VIEWS.items()}


def in_duckdb(sql: str) -> str:
    return re.sub(r"last_value\((\w+)\) IGNORE NULLS", r"last_value(\1 IGNORE NULLS)", sql)
