"""How a statement becomes a step, and which rows of a carry table are new to one that takes a step.

A row is news if it was closed by one of the step's events, or if it is open. The former are in
files that the table has not read yet, so a step reads little of a long history.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from collections.abc import Callable
from functools import partial
from string import Template
from typing import TYPE_CHECKING, Protocol

from omnirelay.pipeline.datasets import Change, Step
from omnirelay.pipeline.delta_rows import quoted
from omnirelay.pipeline.sql import SPARK, Dialect, run_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Statement(Protocol):
    def __call__(self, sql: Dialect, /, *, has_old: bool) -> str:
        """Reads `$new`, and `$old` if there is any."""


RARE = {
    "started": ("EpochStarted",),
    "moved": ("DrainSnapshot", "RestoreSnapshot", "Redriven", "Purged"),
    "refused": ("Refused",),
}
"""Names for the new events in statements that want only these types of them. Most steps have none,
and then the whole branch goes."""


def made_by(
    statement: Statement, step: Step, **tables: "Callable[[], DataFrame | None]"
) -> "DataFrame":
    """What the statement gives in this step. It may name `$new` and its kin (RARE), `$old` and
    `$spans` unless the step is the first, and `tables`. What it does not name is not opened."""
    text = statement(SPARK, has_old=not step.is_first)
    known: dict[str, Callable[[], DataFrame | None]] = {
        "new": lambda: step.new,
        "old": lambda: step.old,
        "spans": lambda: spans(step),
        **{name: partial(step.some, *types) for name, types in RARE.items()},
        **tables,
    }
    frames: dict[str, DataFrame] = {}
    for name in Template(text).get_identifiers():
        frame = known[name]()
        assert frame is not None, f"{name}: the inputs come first"
        frames[name] = frame
    return run_sql(step.session, text, **frames)


def carried(statement: Statement) -> Callable[[Step], Change]:
    """The step of a table that goes on from new events and its own open rows alone."""
    return lambda step: Change(rows=made_by(statement, step))


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
