"""Every silver and gold table as one SELECT over the event table, in the order they can be made.

What a first step runs, for whoever wants to run it elsewhere: `make bench` gives these very texts
to DuckDB. Frames are named as the tables are; `$new` and its kin are the event table.
"""

from collections.abc import Callable

from omnirelay.pipeline import (
    gold_peers,
    gold_principals,
    gold_resources,
    gold_windows,
    silver_attempts,
    silver_backpressure,
    silver_epochs,
    silver_items,
    silver_lineage,
    silver_ownership,
)
from omnirelay.pipeline.datasets import EVENTS
from omnirelay.pipeline.fresh import RARE
from omnirelay.pipeline.sql import Dialect, named_sql

TEXTS: dict[str, Callable[..., str]] = {
    "lease_attempts": silver_attempts.statement,
    "items": silver_items.statement,
    "resource_ownership": silver_ownership.statement,
    "epochs": silver_epochs.statement,
    "backpressure": silver_backpressure.statement,
    "lineage_names": silver_lineage.names_statement,
    "lineage_edges": silver_lineage.edges_statement,
    "slo_by_window": gold_windows.statement,
    "peer_health": gold_peers.statement,
    "principal_activity": gold_principals.statement,
    "hot_resources": gold_resources.statement,
}
"""Table to its text; each takes the dialect and whether it goes on from old rows (`has_old`)."""


def full_texts(sql: Dialect) -> dict[str, str]:
    tables = {name: name for name in TEXTS} | dict.fromkeys(("new", *RARE), EVENTS)
    return {name: named_sql(text(sql, has_old=False), **tables) for name, text in TEXTS.items()}
