"""`slo_by_window` as older programs wrote it, and how its rows become those of today.

1   a row for each minute and type
2   with `replication_lag_ms`
3   split by `state`, the newest minute of a shard open, with its `waits` and `holds`
"""

# ruff: noqa: S608 - put together from constants and quoted names of shards

from typing import TYPE_CHECKING

from omnirelay.pipeline.datasets import EVENTS, Older
from omnirelay.pipeline.delta_rows import between, quoted
from omnirelay.pipeline.fresh import Statement
from omnirelay.pipeline.sql import SPARK, run_sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


def with_lag(older: Older) -> "DataFrame":
    """No journal told of lags before."""
    names = [name for name in older.rows.columns if name != "replication_lag_ms"]
    return older.rows.selectExpr(*names, "CAST(NULL AS BIGINT) AS replication_lag_ms")


def with_open_minutes(statement: Statement) -> "Callable[[Older], DataFrame]":
    """What the newest minutes are made of was not kept, so they are made again from the inputs, as
    far as this table has come. All other minutes stay: their events may be gone by now."""

    def migrated(older: Older) -> "DataFrame":
        if not older.positions:
            return _closed(older.rows)  # nothing was ever in it
        again = run_sql(older.rows.sparkSession, statement(SPARK, has_old=False), **_inputs(older))
        newest = again.where("state = 'open'")
        edges = newest.groupBy("shard").agg({"window_start": "max"}).toDF("shard", "since")
        over = older.rows.join(edges, "shard", "left").where(
            "since IS NULL OR window_start < since"
        )
        return _closed(over.drop("since")).unionByName(newest)

    return migrated


def _closed(rows: "DataFrame") -> "DataFrame":
    lists = (f"CAST(NULL AS ARRAY<BIGINT>) AS {name}" for name in ("waits", "holds"))
    return rows.selectExpr("*", *lists, "'closed' AS state")


def _inputs(older: Older) -> "dict[str, DataFrame]":
    """As they were at the table's positions; they have gone on by now."""
    names = (EVENTS, "lease_attempts", "backpressure")
    found = {name: frame for name in names if (frame := older.read(name)) is not None}
    assert len(found) == len(names), "the inputs were there before"
    rows = ", ".join(f"({quoted(shard)}, {last}L)" for shard, last in older.positions.items())
    ends = older.rows.sparkSession.sql(f"SELECT * FROM VALUES {rows} AS ends(shard, last)")
    events = between(found[EVENTS], {}, older.positions)
    seen = events.groupBy("shard").agg({"timestamp": "max"}).toDF("shard", "seen_at")
    attempts = found["lease_attempts"].join(ends, "shard").where("granted_sequence <= last")
    known = ("ended_sequence", "outcome", "disposition")
    pauses = found["backpressure"].join(ends, "shard").where("from_sequence <= last")
    return {
        "new": events,
        "lease_attempts": attempts.selectExpr(
            *(name for name in attempts.columns if name not in known),
            *(f"CASE WHEN ended_sequence <= last THEN {name} END AS {name}" for name in known),
        ),
        "backpressure": pauses.join(seen, "shard").selectExpr(
            "shard", "from_at", "least(until_at, seen_at) AS until_at"
        ),
    }
