"""`omnirelay pipeline run`, `stream` and `maintain` as a user meets them."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from omnirelay.cli import pipeline_target
from omnirelay.cli.ending import (
    EXIT_FAILED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    CommandFailed,
    exit_code,
)
from omnirelay.cli.pipeline import app
from omnirelay.cli.pipeline_places import spark_on
from omnirelay.cli.pipeline_target import size_ahead
from omnirelay.model.errors import OmniRelayError
from omnirelay.pipeline.bronze_source import work_ahead
from omnirelay.pipeline.datasets import all_datasets
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.delta_log import positions_at
from omnirelay.pipeline.hold import Hold
from omnirelay.pipeline.run import run_pipeline
from tests.spark.test_run import work

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from omnirelay.pipeline.session import Size

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def leave_signals_as_they_were() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "leases.db"
    work(path, new=3, done=2)
    return path


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the work that each command has asked a Spark for."""
    asked: list[str] = []

    def noted(master: str, *, size: "Size") -> "AbstractContextManager[SparkSession]":
        asked.append(size)
        return spark_on(master, size=size)

    monkeypatch.setattr(pipeline_target, "spark_on", noted)
    return asked


def pipeline(*words: str) -> Result:
    return CliRunner().invoke(app, [*words])


def said(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(result.stdout.splitlines()[-1])
    return found


def test_every_table_is_made_then_there_is_nothing_new_then_files_are_put_together(
    spark: "SparkSession", journal: Path, tmp_path: Path, sizes: list[str]
) -> None:
    lake = str(tmp_path / "lake")
    words = ("--from", f"sqlite:///{journal}", "--to", lake)
    first = pipeline("run", *words, "--json")
    assert first.exit_code == 0, first.output
    made = said(first)
    names = ["lease_events", *(dataset.name for dataset in all_datasets())]
    assert [table["table"] for table in made["tables"]] == names
    assert {table["outcome"] for table in made["tables"]} == {"advanced"}
    assert (made["ok"], made["events"], made["quarantined"]) == (True, 8, 0)
    again = pipeline("stream", *words, "--once")
    assert (again.exit_code, again.stdout) == (0, "nothing new\n")
    assert sizes == ["few", "few"]
    kept = pipeline("maintain", "--to", lake, "--json")
    assert kept.exit_code == 0, kept.output
    assert {"table", "filesBefore", "filesAfter", "retired", "swept"} == set(
        said(kept)["tables"][0]
    )


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("memory:", EXIT_USAGE),
        ("ftp://host/journal", EXIT_USAGE),
        ("sqlite:///nowhere/at/all.db", EXIT_UNREACHABLE),
    ],
)
def test_a_journal_that_cannot_be_read_is_refused_with_the_right_exit_code(
    spark: "SparkSession", tmp_path: Path, url: str, code: int
) -> None:
    refused = pipeline("run", "--from", url, "--to", str(tmp_path / "lake"))
    assert isinstance(refused.exception, OmniRelayError)
    assert exit_code(refused.exception) == code


def test_the_work_ahead_is_counted_before_spark_starts(
    spark: "SparkSession", journal: Path, tmp_path: Path
) -> None:
    options, lake = {"url": f"sqlite:///{journal}"}, str(tmp_path / "lake")
    events = f"{lake}/bronze/lease_events"
    assert positions_at(events) == {}
    new, total = work_ahead(options, positions_at(events))
    assert new == total > 3
    assert work_ahead(options, {}, 3) == (3, total)
    run_pipeline(spark, options, DeltaTables(spark, lake), datasets=())
    assert work_ahead(options, positions_at(events)) == (0, total)
    work(journal, new=2, done=0)
    assert work_ahead(options, positions_at(events)) == (3, total + 3)  # and an epoch
    assert size_ahead(options, lake, None) == "few"
    assert size_ahead(options, "delta:spark_catalog.lake", None) == "many"


def test_tables_whose_log_is_damaged_are_refused_in_one_line_before_spark_starts(
    journal: Path, tmp_path: Path
) -> None:
    log = tmp_path / "lake/bronze/lease_events/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("no log\n")
    result = pipeline("run", "--from", f"sqlite:///{journal}", "--to", str(tmp_path / "lake"))
    assert isinstance(result.exception, CommandFailed)
    assert "\n" not in result.exception.message


@pytest.mark.parametrize("command", ["run", "maintain"])
def test_a_target_that_another_pipeline_holds_is_refused_by_name(
    journal: Path, tmp_path: Path, command: str
) -> None:
    lake = str(tmp_path / "lake")
    source = ("--from", f"sqlite:///{journal}") if command == "run" else ()
    with Hold(lake):
        refused = pipeline(command, *source, "--to", lake)
    assert isinstance(refused.exception, OmniRelayError)
    assert "is worked on by process" in refused.exception.message
    assert exit_code(refused.exception) == EXIT_FAILED


def test_a_catalog_keeps_its_lease_in_a_mesh(journal: Path) -> None:
    url = f"sqlite:///{journal}"
    for words, why in (
        (("run", "--from", url, "--to", "delta:a.b"), "name a mesh"),
        (("run", "--from", url, "--to", "delta:a b"), "catalog.schema"),
    ):
        refused = pipeline(*words)
        assert isinstance(refused.exception, OmniRelayError)
        assert why in refused.exception.message
