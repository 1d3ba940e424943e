"""Which resource came from which: `lineage_edges`, and `lineage_names` that it is made from.

An item says in its payload's attributes what it reads (`lineage.inputs`) and what it makes
(`lineage.outputs`), comma separated. A completed attempt gives an edge from each input to each
output (relation `attributes`); the resource itself (`type:id`) stands in for whichever of the two
is not named. It gives another edge, from lease order alone (relation `order`), from the resource
whose attempt was the last to complete an output of that name before this attempt was granted, to
the resource of this attempt: who worked on whose result. What `attributes` says already is not said
again, and nothing leads to itself.

`lineage_names` keeps what live items named (open) and, once they ended, who made what (closed).
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from omnirelay.pipeline.datasets import EVENTS, Change, Dataset, Expectation, Step
from omnirelay.pipeline.fresh import fresh_sql, recent
from omnirelay.pipeline.lineage_ids import run_id_sql
from omnirelay.pipeline.sql import ITEM_ORDER, SPARK, Dialect, run_sql

NAMES_COLUMNS = (
    "shard string, sequence_id bigint, named_sequence bigint, resource string, inputs string,"
    " outputs string, ended_sequence bigint, ended_at timestamp, is_completed boolean, state string"
)
EDGES_COLUMNS = (
    "shard string, sequence bigint, sequence_id bigint, attempt int, fence bigint, run_id string,"
    " source string, target string, relation string, principal string, at timestamp"
)
_INPUTS = "nullif(trim({}attributes['lineage.inputs']), '')"
_OUTPUTS = "nullif(trim({}attributes['lineage.outputs']), '')"


def names_statement(sql: Dialect, *, has_old: bool) -> str:
    carried = (
        """UNION ALL SELECT shard, sequence_id, named_sequence AS sequence, resource, inputs,
    outputs FROM $old"""
        if has_old
        else ""
    )
    return f"""
WITH moves AS (
  SELECT shard, sequence, timestamp, event_type, {sql.each("items")} AS item FROM $new
  WHERE event_type IN ('DrainSnapshot', 'RestoreSnapshot', 'Purged')
),
named AS (
  SELECT shard, sequence_id, sequence, concat(resource_type, ':', resource_id) AS resource,
    {_INPUTS.format("")} AS inputs, {_OUTPUTS.format("")} AS outputs
  FROM $new WHERE event_type = 'Enqueue'
  UNION ALL
  SELECT shard, item.sequence_id, sequence, concat(item.resource_type, ':', item.resource_id),
    {_INPUTS.format("item.")}, {_OUTPUTS.format("item.")}
  FROM moves WHERE event_type = 'RestoreSnapshot'
),
arrivals AS (
  SELECT * FROM named WHERE inputs IS NOT NULL OR outputs IS NOT NULL
  {carried}
),
ends AS (
  SELECT shard, sequence_id, sequence, timestamp, event_type FROM $new
  WHERE event_type = 'Completed'
  UNION ALL
  SELECT shard, item.sequence_id, sequence, timestamp, event_type FROM moves
  WHERE event_type <> 'RestoreSnapshot'
),
touches AS (
  SELECT shard, sequence_id, sequence, 'named' AS kind, resource, inputs, outputs,
    CAST(NULL AS TIMESTAMP) AS timestamp
  FROM arrivals
  UNION ALL
  SELECT shard, sequence_id, sequence, event_type, NULL, NULL, NULL, timestamp FROM ends AS e
  WHERE EXISTS (SELECT 1 FROM arrivals AS a
    WHERE a.shard = e.shard AND a.sequence_id = e.sequence_id)
),
lined AS (
  SELECT *, lead(kind) OVER ({ITEM_ORDER}) AS end_kind,
    lead(sequence) OVER ({ITEM_ORDER}) AS ended_sequence,
    lead(timestamp) OVER ({ITEM_ORDER}) AS ended_at
  FROM touches
)
SELECT shard, sequence_id, sequence AS named_sequence, resource, inputs, outputs, ended_sequence,
  ended_at, CASE WHEN end_kind IS NOT NULL THEN end_kind = 'Completed' END AS is_completed,
  CASE WHEN ended_sequence IS NULL THEN 'open' ELSE 'closed' END AS state
FROM lined WHERE kind = 'named'"""


def edges_statement(sql: Dialect, *, has_old: bool) -> str:
    def listed(names: str) -> str:
        return sql.each(f"split({names}, ',')")

    run = run_id_sql()
    by_name = "PARTITION BY shard, name ORDER BY sequence"
    return f"""
WITH {fresh_sql("lease_attempts", has_old=has_old)},
runs AS (
  SELECT a.shard, a.ended_sequence AS sequence, a.sequence_id, a.attempt, a.fence,
    a.granted_sequence, a.ended_by AS principal, a.ended_at, n.resource, n.inputs, n.outputs
  FROM fresh_lease_attempts AS a JOIN $lineage_names AS n
    ON n.shard = a.shard AND n.sequence_id = a.sequence_id AND n.ended_sequence = a.ended_sequence
  WHERE a.outcome = 'completed'
),
sources AS (
  SELECT *, {listed("coalesce(inputs, resource)")} AS source FROM runs
),
pairs AS (
  SELECT *, {listed("coalesce(outputs, resource)")} AS target FROM sources
),
makers AS (
  SELECT shard, {listed("outputs")} AS name, ended_sequence AS sequence, resource AS maker
  FROM $lineage_names WHERE is_completed AND outputs IS NOT NULL
),
known AS (
  SELECT *, {sql.last_known("maker", by_name)} AS last_maker FROM (
    SELECT shard, trim(name) AS name, sequence, maker, CAST(NULL AS BIGINT) AS sequence_id,
      CAST(NULL AS INT) AS attempt FROM makers
    UNION ALL SELECT shard, trim(source), granted_sequence, NULL, sequence_id, attempt
    FROM sources WHERE inputs IS NOT NULL
  ) AS both_sides WHERE name <> ''
),
edges AS (
  SELECT shard, sequence, sequence_id, attempt, fence, trim(source) AS source,
    trim(target) AS target, 'attributes' AS relation, principal, ended_at FROM pairs
  UNION ALL
  SELECT r.shard, r.sequence, r.sequence_id, r.attempt, r.fence, k.last_maker, r.resource, 'order',
    r.principal, r.ended_at
  FROM known AS k JOIN runs AS r ON r.shard = k.shard AND r.sequence_id = k.sequence_id
    AND r.attempt = k.attempt AND r.granted_sequence = k.sequence
  WHERE k.maker IS NULL AND k.last_maker IS NOT NULL
)
SELECT shard, sequence, sequence_id, attempt, fence, {run} AS run_id, source, target,
  min(relation) AS relation, principal, ended_at AS at
FROM edges WHERE source <> target AND source <> '' AND target <> ''
GROUP BY shard, sequence, sequence_id, attempt, fence, source, target, principal, ended_at"""


def advance_names(step: Step) -> Change:
    text = names_statement(SPARK, has_old=step.old is not None)
    frames = {"new": step.new} | ({"old": step.old} if step.old is not None else {})
    return Change(rows=run_sql(step.session, text, **frames))


def advance_edges(step: Step) -> Change:
    names = step.read("lineage_names")
    assert names is not None, "lineage_names is an input and comes first"
    has_old = step.read("lineage_edges") is not None
    attempts = recent(step, "lease_attempts", has_old=has_old)
    frames = {"lease_attempts": attempts, "lineage_names": names}
    if has_old:
        frames["new"] = step.new
    return Change(append=run_sql(step.session, edges_statement(SPARK, has_old=has_old), **frames))


LINEAGE_NAMES = Dataset(
    name="lineage_names",
    layer="silver",
    columns=NAMES_COLUMNS,
    key=("shard", "sequence_id", "named_sequence"),
    kind="carry",
    inputs=(EVENTS,),
    advance=advance_names,
    partition_by="state",
)
LINEAGE_EDGES = Dataset(
    name="lineage_edges",
    layer="silver",
    columns=EDGES_COLUMNS,
    key=("shard", "sequence_id", "attempt", "source", "target"),
    kind="append",
    inputs=("lease_attempts", "lineage_names"),
    advance=advance_edges,
    expectations=(Expectation("nothing leads to itself", "source <> target"),),
)
