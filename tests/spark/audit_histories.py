"""Histories for the audit's tests, and its statements run by DuckDB, which starts at once."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from omnirelay.pipeline.checks import CHECKS, in_duckdb, views
from omnirelay.pipeline.decode import Part, batch_of
from omnirelay.pipeline.planting import KINDS, plant
from omnirelay.pipeline.planting_bed import Planted
from omnirelay.pipeline.synth_chain import Kept, sealed
from omnirelay.pipeline.synth_traffic import Share, Traffic

if TYPE_CHECKING:
    from omnirelay.journal.format import Envelope

IN_ROWS = [kind for kind, flaw in KINDS.items() if "archive" in flaw.forms]
# One clean shard before each damaged one: those with an odd number take in what it hands over.
COUNT = 2 * len(IN_ROWS)

Named = tuple[str, str, int]
"""Check, shard and sequence of a finding."""


def clean_history(share: Share) -> list[Kept]:
    return list(sealed(share.shard, Traffic(share).run()))


def damaged_histories(seed: int, events: int) -> tuple[list[list[Kept]], dict[str, Planted]]:
    """Every kind of damage that rows can show, each between clean shards."""
    histories: list[list[Kept]] = []
    planted: dict[str, Planted] = {}
    for number, kind in enumerate(IN_ROWS):
        clean = Share(2 * number, seed, events * COUNT, COUNT)
        kept, planted[kind] = plant(kind, clean.neighbour())
        histories += [clean_history(clean), kept]
    return histories, planted


def table_of(histories: "Iterable[Iterable[Envelope]]") -> pa.Table:
    return pa.Table.from_batches([batch_of(list(one), Part()) for one in histories])


def envelopes_of(histories: Iterable[list[Kept]]) -> "list[list[Envelope]]":
    return [[kept.envelope for kept in history] for history in histories]


def found_by_duckdb(events: pa.Table) -> set[Named]:
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.register("lease_events", events)
        for name, sql in views(duckdb=True).items():
            engine.execute(f"CREATE TABLE {name} AS {sql}")
        rows = [row for check in CHECKS for row in engine.execute(in_duckdb(check.sql)).fetchall()]
    return {(row[0], row[1], row[2]) for row in rows}


def complaints(found: set[Named], planted: dict[str, Planted]) -> list[str]:
    """What was planted and not found at its place, and what was claimed beside it."""
    said = []
    for kind, flaw in planted.items():
        if (flaw.check, flaw.shard, flaw.sequence) not in found:
            said.append(f"{kind} was not found at {flaw.sequence} of {flaw.shard}")
        wrong = {one for one in found if one[1] == flaw.shard}
        beside = {one for one in wrong if one[0] not in (flaw.check, *flaw.also)}
        said += [f"{kind}: {one} was claimed too" for one in sorted(beside)]
    damaged = {flaw.shard for flaw in planted.values()}
    return said + [f"{one} is whole" for one in sorted(found) if one[1] not in damaged]
