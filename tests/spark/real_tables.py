"""Every table that a pipeline makes, of a journal in which everything happens."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from deltalake import DeltaTable

from omnirelay.journal.format import Envelope, Sealed, seal
from omnirelay.pipeline.datasets import LEASE_EVENTS, QUARANTINED, all_datasets
from omnirelay.pipeline.synth import Plan, synthesize
from omnirelay.stores.sqlite import SqliteJournal
from tests.spark.histories import random_journals

if TYPE_CHECKING:
    from collections.abc import Iterable

TABLES = (LEASE_EVENTS, QUARANTINED, *all_datasets())
NAMES = tuple(dataset.name for dataset in TABLES)
DAMAGED = ("synth-0000", 60)
"""An envelope that cannot be read: the one that holds this sequence of this shard."""
Rows = dict[str, list[str]]


@dataclass(frozen=True)
class Eventful:
    url: str
    sequences: int
    """In all its shards, those of the damaged envelope among them."""
    whole: Path
    """Where the tables of one run over all of it are."""
    rows: Rows = field(default_factory=dict)
    """Those tables' rows."""


def write_eventful(path: Path) -> int:
    """Two shards of a busy mesh, the first with a damaged envelope, and four queues that everything
    happens to; how many sequences they have."""
    made = synthesize(Plan(events=240, shards=2, seed=3, to=f"sqlite:///{path}"))
    _damage(path)
    journals = random_journals(range(4), turns=60)
    for shard, envelopes in journals.items():
        asyncio.run(_append(path, shard, envelopes))
    return made.events + sum(envelopes[-1].last for envelopes in journals.values())


def _damage(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute(
        "UPDATE journal SET body = replace(CAST(body AS TEXT), ':', ';') "
        "WHERE shard = ? AND ? BETWEEN first AND last",
        DAMAGED,
    )
    assert db.changes() == 1
    db.close()


async def _append(path: Path, shard: str, envelopes: "Iterable[Envelope]") -> None:
    journal = SqliteJournal(str(path), shard)
    await journal.open()
    link = ""
    for one in envelopes:
        sealed = _sealed(one, link)
        await journal.append(sealed, expected=sealed.first - 1)
        link = sealed.checksum
    await journal.close()


def _sealed(one: Envelope, prev: str) -> Sealed:
    depths, head = (one.pending, one.active), (one.shard, one.epoch, one.node)
    return seal(one.records, depths, head=head, first=one.first, time=one.time, prev=prev)


def rows_of(target: Path) -> Rows:
    """Every table there is, each row as text, in order: read without Spark, as somebody else
    would. When a damaged envelope was found is the only thing that two runs may differ in."""
    found: Rows = {}
    for dataset in TABLES:
        at = str(target / dataset.layer / dataset.name)
        if not DeltaTable.is_deltatable(at):
            continue
        table = DeltaTable(at).to_pyarrow_table()
        named = table.select(sorted(set(table.column_names) - {"found_at"})).to_pylist()
        found[dataset.name] = sorted(json.dumps(row, default=str) for row in named)
    return found
