"""`omnirelay pipeline replay` as a user types it."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import typer
from typer.testing import CliRunner, Result

import omnirelay
from omnirelay.cli.pipeline_places import meant
from omnirelay.cli.pipeline_replay import replay
from omnirelay.model.errors import InvalidArgument, InvalidOption, Unavailable
from omnirelay.pipeline.archive import archive_journal
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.run import run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(120)


app = typer.Typer()
app.command()(replay)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("journal") / "leases.db"
    with omnirelay.connect_sync(f"sqlite:///{path}") as relay:
        for number in range(8):
            relay.enqueue("table", f"orders-{number}", body=b"\x00x")
        with relay.lease():
            pass
        relay.lease_many(2)
    return f"sqlite:///{path}"


@pytest.mark.usefixtures("spark")
def test_a_journal_is_rebuilt_compared_and_written(journal: str, tmp_path: Path) -> None:
    shown = run("--from", journal)
    assert ": 5 pending, 2 active leases, 0 dead letters" in shown.stdout, shown.output
    equal = run("--from", journal, "--compare", journal)
    assert (equal.exit_code, equal.stdout.startswith("equal: resourcelease")) == (0, True)
    file = tmp_path / "items.jsonl"
    written = run("--from", journal, "--to", file, "--json")
    (said,) = msgspec.json.decode(written.stdout)
    assert (said["items"], len(file.read_text().splitlines())) == (7, 7)
    again = run("--from", journal, "--to", file)
    assert isinstance(again.exception, InvalidArgument)


def test_a_comparison_that_differs_ends_with_1(
    spark: "SparkSession", journal: str, tmp_path: Path
) -> None:
    elsewhere = f"sqlite:///{tmp_path}/other.db"
    with omnirelay.connect_sync(elsewhere) as relay:
        for number in range(12):
            relay.enqueue("table", f"customers-{number}")
    ended = run("--from", journal, "--at-sequence", 3, "--compare", elsewhere)
    assert ended.exit_code == 1
    assert "pending.1.payload.resourceId: replayed 'orders-0', live 'customers-0'" in ended.stdout


@pytest.mark.parametrize(
    ("words", "kind", "why"),
    [
        ((), InvalidOption, "name one place"),
        (("--from", "a", "--tables", "b"), InvalidOption, "name one place"),
        (("--from", "http://127.0.0.1:7400"), InvalidOption, "leave out what a state needs"),
    ],
)
def test_where_to_read_is_named_once(words: tuple[str, ...], kind: type, why: str) -> None:
    ended = run(*words)
    assert isinstance(ended.exception, kind)
    assert why in str(ended.exception)


@pytest.mark.usefixtures("spark")
def test_places_that_are_empty_are_said_to_be(tmp_path: Path) -> None:
    for flag in ("--tables", "--archive"):
        assert isinstance(run(flag, tmp_path).exception, Unavailable)
    gone = run("--from", f"sqlite:///{tmp_path}/none.db")
    assert isinstance(gone.exception, Unavailable)
    assert "there is no such file" in gone.exception.message


def test_what_spark_says_is_said_as_what_it_means() -> None:
    trace = "[X] boom\nTraceback (most recent call last):\n  File\nomnirelay.model.errors.{}: why\n"
    assert isinstance(meant(trace.format("InvalidOption")), InvalidOption)
    assert meant(trace.format("Corrupt")).message == "why"
    assert meant("[TABLE] is not there\nmore").message == "Spark: [TABLE] is not there"
    assert meant("").message == "Spark: it does not say why"


@pytest.mark.usefixtures("spark")
def test_an_archive_of_a_journal_is_rebuilt_as_the_journal_is(journal: str, tmp_path: Path) -> None:
    archive_journal(journal, tmp_path / "archive", has_tail=True)
    ended = run("--archive", tmp_path / "archive", "--compare", journal, "--json")
    assert (ended.exit_code, msgspec.json.decode(ended.stdout)["differences"]) == (0, [])
    unknown = run("--archive", tmp_path / "archive", "--shard", "nowhere")
    assert "there is no shard 'nowhere'; there are: resourcelease" in str(unknown.exception)


def test_tables_below_a_folder_with_a_blank_are_rebuilt_as_the_journal_is(
    spark: "SparkSession", journal: str, tmp_path: Path
) -> None:
    lake = tmp_path / "my lake"
    run_pipeline(spark, {"url": journal}, DeltaTables(spark, str(lake)), datasets=())
    ended = run("--tables", lake, "--compare", journal, "--json")
    assert ended.exit_code == 0, ended.output
    assert msgspec.json.decode(ended.stdout)["differences"] == []


@pytest.mark.parametrize("time", ["yesterday", "2026-01-01T00:00:00"])
def test_a_time_needs_a_shape_and_a_zone(time: str) -> None:
    ended = run("--from", "sqlite:///x.db", "--at-time", time)
    assert ended.exit_code == 2


def test_a_file_and_a_comparison_exclude_each_other() -> None:
    assert run("--from", "a.db", "--to", "x", "--compare", "sqlite:///y").exit_code == 2
