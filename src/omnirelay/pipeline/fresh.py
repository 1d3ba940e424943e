"""The step of a carry table, and which rows of another such table are new to one that takes a step.

A row is news if it was closed by one of the step's events, or if it is open. To find the former
without reading every closed row, the frame is narrowed by time first: Parquet keeps the least and
greatest `ended_at` of each block, and blocks from before the step's first event are not opened.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from omnirelay.pipeline.datasets import Change, Step
from omnirelay.pipeline.sql import SPARK, Dialect, run_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Statement(Protocol):
    def __call__(self, sql: Dialect, /, *, has_old: bool) -> str:
        """Reads `$new`, and `$old` if there is any."""


def carried(statement: Statement) -> Callable[[Step], Change]:
    """The step of a table that goes on from new events and its own open rows alone."""

    def advance(step: Step) -> Change:
        text = statement(SPARK, has_old=step.old is not None)
        frames = {"new": step.new} | ({"old": step.old} if step.old is not None else {})
        return Change(rows=run_sql(step.session, text, **frames))

    return advance


def fresh_sql(table: str, *, has_old: bool) -> str:
    """A common table expression `fresh_<table>`: its rows with `since`, the first new sequence of
    their shard, where there is one. Reads `$new` if the step is not the first."""
    if not has_old:
        return f"fresh_{table} AS (SELECT *, CAST(0 AS BIGINT) AS since FROM ${table})"
    return f"""spans AS (SELECT shard, min(sequence) AS since FROM $new GROUP BY shard),
fresh_{table} AS (
  SELECT t.*, spans.since FROM ${table} AS t LEFT JOIN spans ON spans.shard = t.shard
  WHERE t.state = 'open' OR t.ended_sequence >= spans.since
)"""


def recent(step: Step, table: str, *, has_old: bool) -> "DataFrame":
    """The frame that `fresh_sql` reads, without what ended before the step's first event."""
    frame = step.read(table)
    assert frame is not None, f"{table} is an input and comes first"
    if not has_old:
        return frame
    from pyspark.sql import functions

    first = step.new.agg(functions.min("timestamp")).collect()[0][0]
    if first is None:
        return frame.where("state = 'open'")
    return frame.where(
        (functions.col("state") == "open") | (functions.col("ended_at") >= functions.lit(first))
    )
