"""One small table of each kind, over events that are easy to count."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from omnirelay.pipeline.datasets import Change, Dataset, Expectation, Step, in_order
from omnirelay.pipeline.schema import EVENT, EVENT_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_OPEN = "SELECT shard, sequence_id, opened, closed, state FROM {old} UNION ALL "
_LIVES = """
SELECT shard, sequence_id, min(opened) AS opened, max(closed) AS closed,
       if(max(closed) IS NULL, 'open', 'closed') AS state
FROM (%s SELECT shard, sequence_id,
                if(event_type = 'Enqueue', sequence, NULL) AS opened,
                if(event_type = 'Completed', sequence, NULL) AS closed, NULL AS state
         FROM {new} WHERE event_type IN ('Enqueue', 'Completed'))
GROUP BY shard, sequence_id
"""


def _seen(step: Step) -> Change:
    return Change(append=step.new.select("shard", "sequence", "event_type"))


def _lives(step: Step) -> Change:
    if step.old is None:
        return Change(rows=step.session.sql(_LIVES % "", new=step.new))
    return Change(rows=step.session.sql(_LIVES % _OPEN, new=step.new, old=step.old))


def _counts(step: Step) -> Change:
    fresh = step.new.groupBy("shard", "event_type").count().withColumnRenamed("count", "times")
    rows = fresh if step.old is None else fresh.unionByName(step.old)
    summed = rows.groupBy("shard", "event_type").sum("times")
    return Change(replace=summed.withColumnRenamed("sum(times)", "times"))


def _tens(step: Step) -> Change:
    """Ten sequences are a window."""
    lives = step.read("lives")
    assert lives is not None
    touched = step.new.selectExpr("shard", "sequence div 10 AS ten").distinct()
    ended = lives.where("closed IS NOT NULL").selectExpr("shard", "closed div 10 AS ten")
    again = ended.join(touched, ["shard", "ten"]).groupBy("shard", "ten").count()
    again = again.withColumnRenamed("count", "ends")
    kept = None if step.old is None else step.old.join(touched, ["shard", "ten"], "left_anti")
    return Change(replace=again if kept is None else kept.unionByName(again))


SEEN = Dataset(
    "seen",
    "silver",
    "shard string, sequence bigint, event_type string",
    ("shard", "sequence"),
    "append",
    ("lease_events",),
    _seen,
)
LIVES = Dataset(
    "lives",
    "silver",
    "shard string, sequence_id bigint, opened bigint, closed bigint, state string",
    ("shard", "sequence_id"),
    "carry",
    ("lease_events",),
    _lives,
    expectations=(Expectation("opened first", "opened IS NOT NULL"),),
    partition_by="state",
)
COUNTS = Dataset(
    "counts",
    "gold",
    "shard string, event_type string, times bigint",
    ("shard", "event_type"),
    "merge",
    ("lease_events",),
    _counts,
    expectations=(Expectation("often", "times > 2", "warn"),),
)
TENS = Dataset(
    "tens",
    "gold",
    "shard string, ten bigint, ends bigint",
    ("shard", "ten"),
    "merge",
    ("lease_events", "lives"),
    _tens,
)
DATASETS = in_order((TENS, COUNTS, LIVES, SEEN))


def event(shard: str, sequence: int, kind: str, item: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(EVENT)  # Any: columns of every type
    row.update(
        shard=shard,
        sequence=sequence,
        event_type=kind,
        timestamp=BEGIN + timedelta(seconds=sequence),
        sequence_id=item,
        epoch=1,
        node="n",
    )
    return row


def life(shard: str, *, items: int, first: int = 1) -> list[dict[str, Any]]:
    """Items that are enqueued one after the other; each ends three events later, the last ones not
    yet."""
    events = []
    sequence = first
    for item in range(1, items + 1):
        events.append(event(shard, sequence, "Enqueue", item))
        if item > 2:
            events.append(event(shard, sequence + 1, "Completed", item - 2))
        sequence = first + len(events)
    return events


def frame(spark: "SparkSession", rows: Iterable[dict[str, Any]]) -> "DataFrame":
    return spark.createDataFrame(list(rows), EVENT_DDL)


def content(rows: "DataFrame | None") -> list[tuple[Any, ...]]:
    assert rows is not None
    return sorted((tuple(row) for row in rows.collect()), key=repr)
