"""Synthetic journals: real histories, the same for the same seed, damaged only on request."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import msgspec
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner, Result

from omnirelay.cli.pipeline_synth import synth
from omnirelay.cli.verifying import Verdict, verify_all
from omnirelay.journal.events import decode_event, event_type
from omnirelay.lease.options import SerializeBy
from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.decode import EVENT_TYPES
from omnirelay.pipeline.planting import KINDS, plant
from omnirelay.pipeline.synth import Plan, in_processes, on_spark, synthesize
from omnirelay.pipeline.synth_traffic import Share, Traffic
from omnirelay.stores.outside import look_outside
from tests.spark.audit_histories import clean_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer()
app.command()(synth)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def verified(path: Path, shard: str) -> Verdict:
    verdict = Verdict(ok=True, url="", namespace=shard)

    async def verify() -> None:
        seen = await look_outside(f"sqlite:///{path}", shard)
        await verify_all(seen, verdict)
        await seen.close()

    asyncio.run(verify())
    return verdict


def bodies(path: Path) -> list[tuple[object, ...]]:
    with_journal = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return with_journal.execute("SELECT * FROM journal ORDER BY shard, first").fetchall()
    finally:
        with_journal.close()


# -- the traffic ------------------------------------------------------------------------------


def test_a_history_of_some_length_has_every_kind_of_event_that_changes_anything() -> None:
    records = [r for kept in clean_history(Share(0, 1, 6000, 2)) for r in kept.envelope.records]
    counted = Counter(map(event_type, records))
    assert set(counted) == EVENT_TYPES - {"Refused", "Followed"}
    assert counted.total() == 3000


def test_interest_in_resources_is_skewed() -> None:
    traffic = Traffic(Share(0, 1, 5000, 1))
    names = Counter(
        record.payload.resource_id
        for commit in traffic.run()
        for record in commit.records
        if hasattr(record, "payload")
    )
    top = sum(times for _, times in names.most_common(10))
    assert top > 0.3 * names.total()
    assert len(names) > 100


def test_shards_take_turns_in_what_they_serialise_by() -> None:
    rules = {Share(number, 0, 100, 4).rule for number in range(4)}
    assert rules == set(SerializeBy)


def test_a_shard_takes_in_what_its_neighbour_drained() -> None:
    giver, taker = Traffic(Share(0, 1, 2400, 2)), Traffic(Share(1, 1, 2400, 2))
    list(giver.run())
    list(taker.run())
    (ids,) = (taker.state.adopted[origin] for origin in taker.state.adopted)
    assert [item.sequence_id in ids for item in giver.handed] == [True] * len(giver.handed)
    assert giver.handed


def test_the_same_seed_makes_the_same_bytes_and_another_makes_others() -> None:
    first, again, other = (clean_history(Share(1, seed, 1200, 2)) for seed in (5, 5, 6))
    assert [kept.body for kept in first] == [kept.body for kept in again]
    assert [kept.body for kept in first] != [kept.body for kept in other]


# -- where it goes ----------------------------------------------------------------------------


def test_a_journal_is_one_that_verify_accepts(tmp_path: Path) -> None:
    file = tmp_path / "made.db"
    made = synthesize(Plan(events=1501, shards=3, seed=1, to=f"sqlite:///{file}"))
    verdicts = [verified(file, one.shard) for one in made.shards]
    assert sum(one.events for one in verdicts) == made.events == 1501
    assert all(one.replayed for one in verdicts)
    assert not list(tmp_path.glob("*.part*"))


@pytest.mark.timeout(200)
def test_more_processes_make_the_same_journal(tmp_path: Path) -> None:
    for name, count in (("one", 1), ("two", 2)):
        plan = Plan(events=400, shards=2, to=f"sqlite:///{tmp_path}/{name}.db")
        synthesize(plan, in_processes(count))
    assert bodies(tmp_path / "one.db") == bodies(tmp_path / "two.db")


@pytest.mark.timeout(200)
def test_a_spark_session_makes_the_same_segments(spark: "SparkSession", tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    local = synthesize(Plan(events=300, shards=2, to=str(here)))
    made = synthesize(Plan(events=300, shards=2, to=str(there)), on_spark(spark))
    assert made.shards == local.shards
    names = sorted(path.relative_to(here) for path in here.rglob("*.parquet"))
    assert [str(name) for name in names] == [
        f"synth-000{number}/{1:020d}-{150:020d}.parquet" for number in (0, 1)
    ]
    for name in names:
        assert pq.read_table(here / name).equals(pq.read_table(there / name))


def test_events_can_be_written_one_a_line(tmp_path: Path) -> None:
    file = tmp_path / "made.jsonl"
    synthesize(Plan(events=90, shards=2, to=str(file)))
    events = [decode_event(line) for line in file.read_bytes().splitlines()]
    assert [event.sequence_number for event in events] == [*range(1, 46), *range(1, 46)]
    assert list(tmp_path.iterdir()) == [file]


# -- the command ------------------------------------------------------------------------------


def test_the_command_says_what_was_planted_where(tmp_path: Path) -> None:
    to = f"sqlite:///{tmp_path}/made.db"
    words = ("--events", 1400, "--shards", 2, "--to", to, "--plant", "fence-again", "--json")
    made = msgspec.json.decode(run(*words).stdout)
    assert made["events"] == 1400
    (flaw,) = [one["planted"] for one in made["shards"] if one["planted"]]
    assert (flaw["kind"], flaw["shard"]) == ("fence-again", "synth-0001")
    assert f"{flaw['kind']} in" not in run("--events", 90, "--to", tmp_path / "a").stdout


@pytest.mark.parametrize("words", [(), ("--events", 0, "--to", "x"), ("--events", "many")])
def test_words_that_are_no_numbers_or_missing_are_refused(words: tuple[object, ...]) -> None:
    assert run(*words).exit_code == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"events": 30}, "4 shards need 80"),
        ({"plants": ("rust",)}, "must be one of"),
        ({"plants": ("gap",) * 5}, "as many shards"),
        ({"plants": ("flipped",)}, "only in: sqlite"),
        ({"to": "s3://bucket/x"}, "use sqlite:///file"),
        ({"to": "sqlite://x"}, "names no file"),
        ({"to": "{tmp}/none/x"}, "does not exist"),
        ({"to": "{tmp}/full"}, "exists already"),
        ({"to": "sqlite:///{tmp}/full/file"}, "exists already"),
        ({"shards": 0}, "must be 1 or more"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_before_anything_is_written(
    tmp_path: Path, change: dict[str, object], why: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    given = {"events": 400, "to": f"{tmp_path}/made", **change}
    given["to"] = str(given["to"]).replace("{tmp}", str(tmp_path))
    with pytest.raises(InvalidOption, match=why):
        synthesize(msgspec.convert(given, Plan))
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_a_history_with_no_place_for_the_damage_says_so() -> None:
    with pytest.raises(InvalidOption, match="more events"):
        plant("older-token", Share(0, 1, 25, 1))
    with pytest.raises(InvalidOption, match="neighbour"):
        plant("restored-elsewhere", Share(0, 1, 900, 1))


def test_every_kind_names_a_check_that_exists() -> None:
    from omnirelay.pipeline.checks import CHECKS

    known = {name for check in CHECKS for name in check.proves} | {"quarantine", "tail"}
    named = {name for flaw in KINDS.values() for name in (flaw.check, *flaw.also)}
    assert named <= known
