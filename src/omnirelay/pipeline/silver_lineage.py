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

from functools import partial

from omnirelay.pipeline.datasets import EVENTS, Change, Dataset, Expectation, Step
from omnirelay.pipeline.fresh import carried, fresh_sql, made_by
from omnirelay.pipeline.lineage_ids import run_id_sql
from omnirelay.pipeline.sql import ITEM_ORDER, Dialect

NAMES_COLUMNS = (
    "shard string, sequence_id bigint, named_sequence bigint, resource string, inputs string,"
    " outputs string, ended_sequence bigint, ended_at timestamp, is_completed boolean, state string"
)
EDGES_COLUMNS = (
    "shard string, sequence bigint, sequence_id bigint, attempt int, fence bigint, run_id string,"
    " source string, target string, relation string, principal string, at timestamp"
)
_RUN = {
    "sequence": "bigint",
    "sequence_id": "bigint",
    "attempt": "int",
    "fence": "bigint",
    "principal": "string",
    "ended_at": "timestamp",
    "resource": "string",
    "inputs": "string",
    "outputs": "string",
}
"""What an edge says of the completed attempt that it comes from."""
_INPUTS = "nullif(trim({}attributes['lineage.inputs']), '')"
_OUTPUTS = "nullif(trim({}attributes['lineage.outputs']), '')"


def names_statement(sql: Dialect, *, has_old: bool) -> str:
    old = (
        """UNION ALL SELECT shard, sequence_id, named_sequence, 'Carried', true, resource, inputs,
    outputs, CAST(NULL AS TIMESTAMP) FROM $old"""
        if has_old
        else ""
    )
    return f"""
WITH told AS (
  SELECT shard, sequence_id, sequence, timestamp, event_type, event_type = 'Enqueue' AS is_named,
    concat(resource_type, ':', resource_id) AS resource, {_INPUTS.format("")} AS inputs,
    {_OUTPUTS.format("")} AS outputs
  FROM $new WHERE event_type IN ('Enqueue', 'Completed')
  UNION ALL
  SELECT shard, item.sequence_id, sequence, timestamp, event_type, event_type = 'RestoreSnapshot',
    concat(item.resource_type, ':', item.resource_id), {_INPUTS.format("item.")},
    {_OUTPUTS.format("item.")}
  FROM (
    SELECT shard, sequence, timestamp, event_type, {sql.each("items")} AS item FROM $moved
    WHERE event_type IN ('DrainSnapshot', 'RestoreSnapshot', 'Purged')
  ) AS moves
),
touches AS (
  SELECT shard, sequence_id, sequence, event_type, is_named, resource, inputs, outputs,
    CASE WHEN NOT is_named THEN timestamp END AS timestamp
  FROM told WHERE NOT is_named OR inputs IS NOT NULL OR outputs IS NOT NULL
  {old}
),
lined AS (
  SELECT *, lead(event_type) OVER ({ITEM_ORDER}) AS end_type,
    lead(sequence) OVER ({ITEM_ORDER}) AS ended_sequence,
    lead(timestamp) OVER ({ITEM_ORDER}) AS ended_at
  FROM touches
)
SELECT shard, sequence_id, sequence AS named_sequence, resource, inputs, outputs, ended_sequence,
  ended_at, CASE WHEN end_type IS NOT NULL THEN end_type = 'Completed' END AS is_completed,
  CASE WHEN ended_sequence IS NULL THEN 'open' ELSE 'closed' END AS state
FROM lined WHERE is_named"""


def edges_statement(sql: Dialect, *, has_old: bool) -> str:
    def listed(names: str) -> str:
        return sql.each(f"split({names}, ',')")

    told = ("sequence", "sequence_id", "attempt", "fence", "principal", "ended_at")
    of_run = ", ".join(f"run.{name} AS {name}" for name in told)
    by_name = "PARTITION BY shard, name ORDER BY sequence"
    named, read, wanted = "lineage_names", "", ""
    if has_old:
        # Of all that was ever made, only what may have been read in this step.
        named = "recent_names"
        read = f"""
read AS (
  SELECT DISTINCT shard, trim(name) AS name FROM (
    SELECT shard, {listed("coalesce(inputs, resource)")} AS name FROM $recent_names
  ) AS names
),"""
        wanted = "WHERE (shard, trim(name)) IN (SELECT shard, name FROM read)"
    return f"""
WITH {fresh_sql("lease_attempts", has_old=has_old)},
runs AS (
  SELECT a.shard, a.ended_sequence AS sequence, a.sequence_id, a.attempt, a.fence,
    a.granted_sequence, a.ended_by AS principal, a.ended_at, n.resource, n.inputs, n.outputs
  FROM fresh_lease_attempts AS a JOIN ${named} AS n
    ON n.shard = a.shard AND n.sequence_id = a.sequence_id AND n.ended_sequence = a.ended_sequence
  WHERE a.outcome = 'completed'
),
sources AS (
  SELECT *, {listed("coalesce(inputs, resource)")} AS source FROM runs
),{read}
makers AS (
  SELECT * FROM (
    SELECT shard, {listed("outputs")} AS name, ended_sequence AS sequence, resource AS maker
    FROM $lineage_names WHERE is_completed AND outputs IS NOT NULL
  ) AS made {wanted}
),
known AS (
  SELECT *, {sql.last_known("maker", by_name)} AS last_maker FROM (
    SELECT shard, trim(name) AS name, sequence, maker, {sql.packed(_RUN, {}, "1 = 0")} AS run
    FROM makers
    UNION ALL
    SELECT shard, trim(source), granted_sequence, NULL,
      {sql.packed(_RUN, {name: name for name in _RUN}, "1 = 1")}
    FROM sources
  ) AS both_sides WHERE name <> ''
),
edges AS (
  SELECT shard, {of_run}, name AS source, trim(target) AS target, 'attributes' AS relation FROM (
    SELECT *, {listed("coalesce(run.outputs, run.resource)")} AS target FROM known
    WHERE run IS NOT NULL
  ) AS pairs
  UNION ALL
  SELECT shard, {of_run}, last_maker, run.resource, 'order'
  FROM known WHERE run.inputs IS NOT NULL AND last_maker IS NOT NULL
)
SELECT shard, sequence, sequence_id, attempt, fence, {run_id_sql()} AS run_id, source, target,
  min(relation) AS relation, principal, ended_at AS at
FROM edges WHERE source <> target AND source <> '' AND target <> ''
GROUP BY shard, sequence, sequence_id, attempt, fence, source, target, principal, ended_at"""


def advance_edges(step: Step) -> Change:
    rows = made_by(
        edges_statement,
        step,
        lease_attempts=partial(step.recent, "lease_attempts"),
        lineage_names=partial(step.read, "lineage_names"),
        recent_names=partial(step.recent, "lineage_names"),
    )
    return Change(append=rows)


LINEAGE_NAMES = Dataset(
    name="lineage_names",
    layer="silver",
    columns=NAMES_COLUMNS,
    key=("shard", "sequence_id", "named_sequence"),
    kind="carry",
    inputs=(EVENTS,),
    advance=carried(names_statement),
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
