"""The audit of whole histories, of pruned ones, of journals as files, and what it leaves behind."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner, Result

import omnirelay
from omnirelay.cli.pipeline_audit import audit as audit_command
from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.pipeline.audit import Audited, Finding, ShardSeen, _views, cut_off
from omnirelay.pipeline.audit_report import as_text, as_verdict, keep
from omnirelay.pipeline.checks import CHECKS
from omnirelay.pipeline.datasets import LEASE_EVENTS, Change, Commit, Snapshot
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.synth import Plan, synthesize
from omnirelay.pipeline.synth_traffic import Share
from tests.spark.audit_histories import clean_history, envelopes_of, found_by_duckdb, table_of
from tests.spark.replay_histories import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer()
app.command()(audit_command)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


# -- clean histories --------------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize("start", [0, 1000])
def test_whatever_the_core_lets_happen_gives_no_finding(start: int) -> None:
    histories = (History(seed, steps=300).envelopes() for seed in range(start, start + 40))
    assert found_by_duckdb(table_of(histories)) == set()


@pytest.mark.timeout(60)
def test_many_clean_shards_give_no_finding() -> None:
    histories = [clean_history(Share(number, 21, 8 * 6000, 8)) for number in range(8)]
    assert found_by_duckdb(table_of(envelopes_of(histories))) == set()


def test_a_pruned_history_is_judged_from_where_it_begins() -> None:
    (envelopes,) = envelopes_of([clean_history(Share(0, 4, 3000, 1))])
    assert found_by_duckdb(table_of([envelopes[len(envelopes) // 3 :]])) == set()


def test_a_shard_that_ends_before_what_was_acknowledged_is_a_finding() -> None:
    seen = [ShardSeen("a", 1, 40, 40, "o", 0), ShardSeen("b", 1, 40, 40, "p", 0)]
    found = cut_off(seen, {"a": 45, "b": 40, "gone": 7})
    assert [(one.check, one.shard, one.sequence) for one in found] == [
        ("tail", "a", 41),
        ("tail", "gone", 1),
    ]


# -- what is left behind ----------------------------------------------------------------------

FOUND = Audited(
    "run-1",
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, 0, 1, tzinfo=UTC),
    [ShardSeen("a", 1, 9, 9, "o", 0), ShardSeen("b", 5, 9, 5, "p", 0)],
    [Finding("items.token", "a", 7, 3, "Completed", "item 3 was held with token x")],
)


def test_the_report_names_shard_sequence_event_and_check_of_each_finding() -> None:
    text = as_text(FOUND)
    assert "a 7 Completed items.token: item 3 was held with token x" in text
    assert "damaged: 1 finding\n" in text
    assert "b begins after 1" in text
    assert not as_verdict(FOUND).ok
    assert "items.token" not in as_verdict(FOUND).proved
    assert "order.gap" in as_verdict(FOUND).proved


def test_a_clean_report_says_what_was_proved() -> None:
    text = as_text(msgspec.structs.replace(FOUND, findings=[]))
    assert "clean: no finding" in text
    assert "items.overlap: no item has two holders" in text


def test_links_that_a_node_does_not_tell_are_not_said_to_be_proved() -> None:
    bare = ShardSeen("a", 1, 9, 9, "o", 0, 1)
    found = msgspec.structs.replace(FOUND, shards=[bare], findings=[])
    assert "order.chain" not in as_verdict(found).proved
    assert "a came without envelopes" in as_text(found)


@pytest.mark.timeout(60)
def test_events_without_envelopes_and_rules_give_no_finding() -> None:
    events = table_of(envelopes_of([clean_history(Share(n, 9, 4000, 2)) for n in (0, 1)]))
    for name in ("envelope_first", "envelope_last", "envelope_checksum", "envelope_prev"):
        events = _without(events, name)
    events = _without(_without(_without(events, "rules"), "fence_floor"), "lease_ms")
    assert found_by_duckdb(events) == set()


def _without(events: pa.Table, name: str) -> pa.Table:
    """As a node would tell it: the column is there and says nothing."""
    at = events.schema.get_field_index(name)
    return events.set_column(at, name, pa.nulls(len(events), events.schema.field(at).type))


@pytest.mark.timeout(300)
def test_tables_are_audited_and_keep_what_was_found(spark: "SparkSession", tmp_path: Path) -> None:
    tables = DeltaTables(spark, str(tmp_path))
    history = envelopes_of([clean_history(Share(0, 4, 300, 1))])
    rows = spark.createDataFrame(table_of(history)).coalesce(1)
    commit = Commit(base=Snapshot(), positions={"synth-0000": 300})
    tables.commit(LEASE_EVENTS, Change(append=rows), commit)
    ended = run("--tables", tmp_path)
    assert ended.exit_code == 0, ended.output
    keep(tables, FOUND)
    runs, findings = tables.read("runs"), tables.read("findings")
    assert runs is not None
    assert findings is not None
    assert [
        (row.kind, row.positions, row.events, row.findings, row.verdict)
        for row in runs.orderBy("events").collect()
    ] == [
        ("audit", {"a": 9, "b": 9}, 14, 1, "findings"),
        ("audit", {"synth-0000": 300}, 300, 0, "clean"),
    ]
    (row,) = findings.collect()
    assert (row.run_id, row.check, row.shard, row.sequence) == ("run-1", "items.token", "a", 7)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("joins_of_many_rows")
def test_the_few_shards_are_sent_to_the_events_and_not_the_events_to_the_shards(
    spark: "SparkSession",
) -> None:
    events = spark.createDataFrame(table_of(envelopes_of([clean_history(Share(1, 4, 600, 2))])))
    (resources,) = (check for check in CHECKS if check.name == "resources")
    with _views(spark, events) as shards:
        assert [one.is_serialised for one in shards] == [1]
        plan = spark.sql(f"EXPLAIN {resources.sql}").collect()[0].plan
    assert "BuildRight" in plan
    assert "BuildLeft" not in plan


# -- the command ------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(300)
def test_the_journal_of_a_real_queue_is_clean_and_ends_with_0(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/leases.db"
    with omnirelay.connect_sync(url) as relay:
        for number in range(6):
            relay.enqueue("table", f"orders-{number}", body=b"\x00x")
        with relay.lease():
            pass
    report = tmp_path / "report.txt"
    ended = run("--from", url, "--report", report)
    assert ended.exit_code == 0, ended.output
    assert "clean: no finding" in ended.stdout
    assert report.read_text() == ended.stdout


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(300)
def test_damaged_files_end_with_1_and_name_where(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/damaged.db"
    made = synthesize(Plan(events=1600, shards=4, seed=2, to=url, plants=("flipped", "cut-tail")))
    planted = [one.planted for one in made.shards if one.planted is not None]
    ended = run("--from", url, "--json")
    assert ended.exit_code == 1
    said = msgspec.json.decode(ended.stdout)
    found = {(one["check"], one["shard"], one["sequence"]) for one in said["audit"]["findings"]}
    assert {(one.check, one.shard, one.sequence) for one in planted} <= found
    assert {shard for _, shard, _ in found} == {one.shard for one in planted}
    assert not said["ok"]


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(300)
def test_an_archive_is_judged_with_what_its_manifests_claim(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    made = synthesize(Plan(events=2400, shards=3, seed=2, to=str(archive), plants=("older-token",)))
    (flaw,) = (one.planted for one in made.shards if one.planted is not None)
    (damaged,) = (archive / "synth-0000").glob("*.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    said = msgspec.json.decode(run("--from", archive, "--json").stdout)
    found = {(one["check"], one["shard"], one["sequence"]) for one in said["audit"]["findings"]}
    assert found == {
        ("quarantine", "synth-0000", 1),
        ("tail", "synth-0000", 1),
        (flaw.check, flaw.shard, flaw.sequence),
    }


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 2),
        (("--from", "a.db", "--tables", "t"), 2),
        (("--from", "a.db", "--report", "no/x"), 2),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(words: tuple[str, ...], code: int) -> None:
    assert run(*words).exit_code == code


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(300)
def test_a_place_where_nothing_is_cannot_be_audited(tmp_path: Path) -> None:
    assert isinstance(run("--from", f"sqlite:///{tmp_path}/none.db").exception, Unavailable)
    assert isinstance(run("--from", tmp_path).exception, Unavailable)
    assert isinstance(run("--tables", tmp_path).exception, Unavailable)
    assert isinstance(run("--from", "ftp://bucket/x").exception, InvalidOption)
    assert isinstance(run("--from", tmp_path, "--from", tmp_path).exception, InvalidOption)
