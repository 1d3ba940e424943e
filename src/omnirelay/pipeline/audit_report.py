"""What an audit found, for people, for programs and as rows of the audit tables."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from omnirelay.model.limits import AUDIT_COMMITS_MAX
from omnirelay.pipeline.audit import CLEAN, Audited, Finding, ShardSeen
from omnirelay.pipeline.checks import CHECKS
from omnirelay.pipeline.datasets import Change, Commit, Dataset, TableFenced, TableMoved, Tables

KIND = "audit"


FINDINGS = Dataset(
    name="findings",
    layer="audit",
    columns="run_id string, check string, severity string, shard string, sequence bigint,"
    " sequence_id bigint, event_type string, message string",
    key=("run_id", "check", "shard", "sequence", "sequence_id"),
    kind="append",
    inputs=(),
    advance=None,
)
RUNS = Dataset(
    name="runs",
    layer="audit",
    columns="run_id string, started_at timestamp, ended_at timestamp, kind string,"
    " positions map<string, bigint>, events bigint, findings bigint, verdict string",
    key=("run_id",),
    kind="append",
    inputs=(),
    advance=None,
)


def keep(tables: Tables, audited: Audited) -> None:
    """Findings first: a run that is there has all of its own."""
    if audited.findings:
        rows = [_finding_row(audited.run_id, one) for one in audited.findings]
        add_rows(tables, FINDINGS, rows)
    run = (
        audited.run_id,
        audited.started_at,
        audited.ended_at,
        KIND,
        audited.positions,
        audited.events,
        len(audited.findings),
        audited.verdict,
    )
    add_rows(tables, RUNS, [run])


def _finding_row(run_id: str, one: Finding) -> tuple[Any, ...]:
    """Any: as the columns of FINDINGS are typed."""
    place = (one.shard, one.sequence, one.sequence_id, one.event_type)
    return (run_id, one.check, one.severity, *place, one.message)


def add_rows(tables: Tables, dataset: Dataset, rows: list[tuple[Any, ...]]) -> None:
    """To a table of this layer, which is not fenced: an audit holds no lease, and a row that was
    added takes nothing from another. So the fence that maintenance left there stays as it is, and
    whoever was faster is let go first. Any: as the columns are typed."""
    frame = tables.session.createDataFrame(rows, dataset.columns).coalesce(1)
    for left in reversed(range(AUDIT_COMMITS_MAX)):
        base = tables.snapshot(dataset)
        try:
            tables.commit(dataset, Change(append=frame), Commit(base, {}, fence=base.fence))
            return
        except (TableMoved, TableFenced):
            if not left:
                raise


# -- in words ---------------------------------------------------------------------------------


def as_text(audited: Audited) -> str:
    return "\n".join(_lines(audited)) + "\n"


def _lines(audited: Audited) -> Iterator[str]:
    shards = audited.shards
    yield f"audit {audited.run_id}: {audited.events} events of {_count(len(shards), 'shard')}"
    for shard in shards:
        yield f"  {shard.shard}: sequences {shard.first_sequence} to {shard.last_sequence}"
    for shard in filter(_is_pruned, shards):
        yield f"  {shard.shard} begins after 1: what came before could not be judged"
    for shard in shards:
        if shard.is_bare:
            yield f"  {shard.shard} came without envelopes: links and rules could not be judged"
    if audited.verdict == CLEAN:
        yield "clean: no finding. Proved:"
        yield from (f"  {name}: {what}" for name, what in _proved(audited).items())
        return
    more = ", and more than could be named" if audited.is_cut else ""
    yield f"damaged: {_count(len(audited.findings), 'finding')}{more}"
    for name, times in sorted(Counter(one.check for one in audited.findings).items()):
        yield f"  {name}: {times}"
    for one in audited.findings:
        yield f"{one.shard} {one.sequence} {one.event_type or '-'} {one.check}: {one.message}"


def _is_pruned(shard: ShardSeen) -> bool:
    return shard.first_sequence > 1


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """The report for programs."""

    ok: bool
    verdict: str
    events: int
    audit: Audited
    proved: dict[str, str]


def as_verdict(audited: Audited) -> Verdict:
    return Verdict(not audited.findings, audited.verdict, audited.events, audited, _proved(audited))


def _proved(audited: Audited) -> dict[str, str]:
    known = {name: what for check in CHECKS for name, what in check.proves.items()}
    unproved = {one.check for one in audited.findings}
    if any(shard.is_bare for shard in audited.shards):
        unproved |= {"order.chain", "resources.overlap"}
    return {name: what for name, what in known.items() if name not in unproved}
