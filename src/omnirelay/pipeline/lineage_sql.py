"""Starts and ends of attempts, one row each, from the events alone.

Between a grant and the end of its lease nothing else happens to an item but heartbeats, and a grant
is always preceded by what brought the item into the queue. So everything an OpenLineage event tells
is in a row, in the one before it, and in the item's arrival.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from omnirelay.pipeline.delta_rows import between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STEPS = """
WITH touches AS (
    SELECT shard, sequence, timestamp, event_type, sequence_id, attempt, fence, peer_id, principal,
           available_at, disposition, error_message, error_code, resource_type, resource_id,
           attributes['lineage.inputs'] AS inputs, attributes['lineage.outputs'] AS outputs
    FROM {events}
    WHERE event_type IN ('Enqueue', 'LeaseGranted', 'Completed', 'Failed', 'Expired', 'Released')
    UNION ALL
    SELECT shard, sequence, timestamp, event_type, item.sequence_id, item.attempt, NULL, NULL,
           principal, item.available_at, NULL, NULL, NULL, item.resource_type, item.resource_id,
           item.attributes['lineage.inputs'], item.attributes['lineage.outputs']
    FROM (
        SELECT shard, sequence, timestamp, event_type, principal, explode(items) AS item
        FROM {events} WHERE event_type IN ('DrainSnapshot', 'RestoreSnapshot', 'Redriven'))),
stirred AS (SELECT DISTINCT shard, sequence_id FROM {fresh}),
lined AS (
    SELECT *,
           lag(event_type) OVER life AS last_type, lag(timestamp) OVER life AS last_at,
           lag(available_at) OVER life AS last_available_at, lag(fence) OVER life AS last_fence,
           lag(attempt) OVER life AS last_attempt, lag(peer_id) OVER life AS last_peer_id,
           last_value(resource_type, true) OVER life AS type_so_far,
           last_value(resource_id, true) OVER life AS id_so_far,
           last_value(CASE WHEN resource_type IS NOT NULL THEN coalesce(inputs, '') END, true)
               OVER life AS inputs_so_far,
           last_value(CASE WHEN resource_type IS NOT NULL THEN coalesce(outputs, '') END, true)
               OVER life AS outputs_so_far
    FROM touches LEFT SEMI JOIN stirred USING (shard, sequence_id)
    WINDOW life AS (PARTITION BY shard, sequence_id ORDER BY sequence))
SELECT shard, sequence, unix_millis(timestamp) AS at_ms, event_type, sequence_id,
       CASE WHEN event_type = 'LeaseGranted' THEN attempt ELSE last_attempt END AS attempt,
       CASE WHEN event_type = 'LeaseGranted' THEN fence ELSE last_fence END AS fence,
       CASE WHEN event_type = 'LeaseGranted' THEN peer_id
            ELSE coalesce(peer_id, last_peer_id) END AS peer_id,
       principal, disposition, error_message, error_code,
       coalesce(type_so_far, 'unknown') AS resource_type,
       coalesce(id_so_far, 'unknown') AS resource_id,
       inputs_so_far AS inputs, outputs_so_far AS outputs,
       CASE WHEN event_type = 'LeaseGranted' THEN
           unix_millis(timestamp) - unix_millis(greatest(last_at, last_available_at))
       END AS wait_ms,
       CASE WHEN event_type <> 'LeaseGranted' THEN
           unix_millis(timestamp) - unix_millis(last_at) END AS hold_ms
FROM lined
WHERE event_type = 'LeaseGranted'
   OR (last_type = 'LeaseGranted' AND event_type IN
       ('Completed', 'Failed', 'Expired', 'Released', 'DrainSnapshot'))
"""
_FRESH = """
SELECT shard, sequence_id FROM {events} WHERE sequence_id IS NOT NULL
UNION ALL
SELECT shard, item.sequence_id FROM (
    SELECT shard, explode(items) AS item FROM {events} WHERE event_type = 'DrainSnapshot')
"""


def steps(events: "DataFrame", after: Mapping[str, int], upto: Mapping[str, int]) -> "DataFrame":
    """The starts and ends in (after, upto] of each shard, in order. What lies before is looked at
    only for the items that something new happened to."""
    session = events.sparkSession
    fresh = session.sql(_FRESH, events=between(events, after, upto))
    whole = session.sql(_STEPS, events=between(events, {}, upto), fresh=fresh)
    return between(whole, after, upto).orderBy("shard", "sequence", "sequence_id")


def heads(events: "DataFrame") -> dict[str, int]:
    """How far each shard goes. Asked first, so that what a writer adds meanwhile is left alone."""
    rows = events.groupBy("shard").max("sequence").collect()
    return {row["shard"]: row["max(sequence)"] for row in rows}
