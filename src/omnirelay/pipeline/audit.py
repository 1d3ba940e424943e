"""Proof, from the events alone, that every journal and all of them together kept the rules."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from omnirelay.model.items import to_time
from omnirelay.model.limits import AUDIT_FINDINGS_MAX
from omnirelay.model.ports import Clock, Ids, RandomIds, SystemClock
from omnirelay.pipeline.checks import CHECKS, KEPT, Check, views
from omnirelay.pipeline.session import is_in_one_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLEAN = "clean"
DAMAGED = "findings"
LANES = 3
"""How many checks run at a time."""
EVENTS_VIEW = "lease_events"
SHARDS_VIEW = "audit_shards"
_SETTINGS = {
    # What Spark would infer from our long CASEs doubles with every renamed column, until planning
    # takes all its memory; the statements need none of it.
    "spark.sql.constraintPropagation.enabled": "false",
    # Java compiles no method longer than this: a stage that would be one is better left in parts.
    "spark.sql.codegen.hugeMethodLimit": "8000",
}


@dataclass(frozen=True)
class Evidence:
    """What there is to judge."""

    events: "DataFrame"
    """Of schema.EVENT."""
    quarantined: "DataFrame | None" = None
    """Of quarantine.QUARANTINE."""
    acknowledged: Mapping[str, int] = field(default_factory=dict)
    """Shard to a sequence that was there once, as somebody else remembers it."""


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    check: str
    shard: str
    sequence: int
    sequence_id: int | None
    event_type: str | None
    message: str
    severity: str = "error"


class ShardSeen(msgspec.Struct, frozen=True, rename="camel"):
    shard: str
    first_sequence: int
    last_sequence: int
    events: int
    origin: str | None
    is_serialised: int
    """1 if items of one resource or partition key were kept apart at any time."""
    is_bare: int = 0
    """1 if events came without their envelopes and rules, as a node tells them."""


class Audited(msgspec.Struct, frozen=True, rename="camel"):
    run_id: str
    started_at: datetime
    ended_at: datetime
    shards: list[ShardSeen]
    findings: list[Finding]
    is_cut: bool = False
    """There were more findings of one kind than are named here."""

    @property
    def events(self) -> int:
        return sum(shard.events for shard in self.shards)

    @property
    def positions(self) -> dict[str, int]:
        return {shard.shard: shard.last_sequence for shard in self.shards}

    @property
    def verdict(self) -> str:
        return DAMAGED if self.findings else CLEAN


def audit(
    session: "SparkSession",
    evidence: Evidence,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Audited:
    clock = clock or SystemClock()
    started = to_time(clock.wall_ms())
    with (
        _views(session, evidence.events) as shards,
        ThreadPoolExecutor(LANES, thread_name_prefix="check") as pool,
    ):
        named = list(pool.map(lambda check: _named(session, check, shards), CHECKS))
    named.append(_quarantined(evidence.quarantined))
    named.append(list(cut_off(shards, evidence.acknowledged)))
    found = chain.from_iterable(some[:AUDIT_FINDINGS_MAX] for some in named)
    return Audited(
        (ids or RandomIds()).lease_id(),
        started,
        to_time(clock.wall_ms()),
        shards,
        sorted(found, key=lambda one: (one.shard, one.sequence, one.check, one.sequence_id or 0)),
        any(len(some) > AUDIT_FINDINGS_MAX for some in named),
    )


@contextmanager
def _views(session: "SparkSession", events: "DataFrame") -> "Iterator[list[ShardSeen]]":
    made: list[str] = []
    kept: list[DataFrame] = []
    before = {name: session.conf.get(name) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    try:
        together = events.coalesce(1) if is_in_one_task(session) else events
        together.createOrReplaceTempView(EVENTS_VIEW)
        made.append(EVENTS_VIEW)
        for name, sql in views().items():
            frame = session.sql(sql)
            if name in KEPT and name != SHARDS_VIEW:
                kept.append(frame.persist())
            frame.createOrReplaceTempView(name)
            made.append(name)
        shards = session.table(SHARDS_VIEW).toArrow()
        # From Arrow, so that Spark knows how few they are: of rows from Python it fears the worst,
        # and sends every event to the shards instead of the shards to the events.
        session.createDataFrame(shards).createOrReplaceTempView(SHARDS_VIEW)
        rows = [ShardSeen(**row) for row in shards.to_pylist()]
        yield sorted(rows, key=lambda one: one.shard)
    finally:
        for name, old in before.items():
            session.conf.set(name, old or _SETTINGS[name])
        for frame in kept:
            frame.unpersist()
        for name in made:
            session.catalog.dropTempView(name)


def _named(session: "SparkSession", check: Check, shards: list[ShardSeen]) -> list[Finding]:
    if check.is_for_serialised and not any(shard.is_serialised for shard in shards):
        return []
    rows = session.sql(check.sql).orderBy("shard", "sequence", "sequence_id")
    return [
        Finding(
            row.check_name, row.shard, row.sequence, row.sequence_id, row.event_type, row.message
        )
        for row in rows.limit(AUDIT_FINDINGS_MAX + 1).collect()
    ]


def _quarantined(damaged: "DataFrame | None") -> list[Finding]:
    if damaged is None:
        return []
    rows = damaged.select("shard", "sequence", "address", "reason").orderBy("shard", "sequence")
    return [
        Finding("quarantine", row.shard, row.sequence, None, None, f"{row.reason} ({row.address})")
        for row in rows.limit(AUDIT_FINDINGS_MAX + 1).collect()
    ]


def cut_off(shards: list[ShardSeen], acknowledged: Mapping[str, int]) -> Iterator[Finding]:
    ends = {shard.shard: shard.last_sequence for shard in shards}
    for shard, last in sorted(acknowledged.items()):
        end = ends.get(shard, 0)
        if end < last:
            message = f"the journal ends at {end} but {last} was acknowledged"
            yield Finding("tail", shard, end + 1, None, None, message)
