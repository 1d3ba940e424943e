"""The step of a carry table, and which rows of another such table are new to one that takes a step.

A row is news if it was closed by one of the step's events, or if it is open. The former are in
files that the table has not read yet, so a step reads little of a long history.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from omnirelay.pipeline.datasets import Change, Step
from omnirelay.pipeline.delta_rows import quoted
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
    their shard, where there is one. Reads `$spans` if the step is not the first."""
    if not has_old:
        return f"fresh_{table} AS (SELECT *, CAST(0 AS BIGINT) AS since FROM ${table})"
    return f"""fresh_{table} AS (
  SELECT t.*, spans.since FROM ${table} AS t LEFT JOIN $spans AS spans ON spans.shard = t.shard
  WHERE t.state = 'open' OR t.ended_sequence >= spans.since
)"""


def spans(step: Step) -> "DataFrame":
    """Each shard that moves, with its first new sequence."""
    rows = ", ".join(f"({quoted(shard)}, {low + 1}L)" for shard, (low, _) in step.moves.items())
    return step.session.sql(f"SELECT * FROM VALUES {rows} AS spans(shard, since)")
