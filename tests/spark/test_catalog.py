"""Tables in a catalog of the user's own Spark: filled by the same steps, asked by the same words.

Delta's and Iceberg's own jars are not here: a plain format of Spark's stands in for theirs.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from typer.testing import CliRunner, Result

from omnirelay.cli.ending import EXIT_USAGE, exit_code
from omnirelay.cli.pipeline import app
from omnirelay.model.errors import InvalidOption, OmniRelayError
from omnirelay.pipeline.catalog import CatalogTables, Note, catalog_of, creation
from omnirelay.pipeline.catalog_formats import FORMATS
from omnirelay.pipeline.datasets import (
    Change,
    Commit,
    ExpectationFailed,
    Snapshot,
    TableFenced,
    TableMoved,
)
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.opening import open_tables
from omnirelay.pipeline.run import run_pipeline
from tests.spark.plain_catalog import PlainFormat, plain_catalog
from tests.spark.small_tables import COUNTS, LIVES, content
from tests.spark.test_run import work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
TWO = (LIVES, COUNTS)


def test_a_note_on_a_commit_is_read_back_and_another_programs_is_not_taken_for_one() -> None:
    note = Note({"größe": 7, "a": 1}, 3, 1)
    assert Note.decode(note.encode()) == note
    for foreign in ("", "nightly load", "{}", "[]", "null", '{"positions": 3}'):
        assert Note.decode(foreign) is None


def test_a_catalog_is_told_from_a_folder() -> None:
    assert catalog_of("delta:lake.leases") == (FORMATS["delta"], "lake.leases")
    assert catalog_of("iceberg:a.b.c") == (FORMATS["iceberg"], "a.b.c")
    for folder in ("lake", "s3://bucket/lake", "C:/lake", "delta", "delta://host/x"):
        assert catalog_of(folder) is None
    for wrong in ("delta:", "iceberg:a..b", "delta:a; DROP TABLE b", "delta:1"):
        with pytest.raises(InvalidOption, match=r":catalog\.schema"):
            catalog_of(wrong)


def test_statements_name_the_format_and_part_open_from_closed_rows() -> None:
    assert creation("iceberg", "a.lives", LIVES).endswith("USING iceberg PARTITIONED BY (state)")
    assert creation("delta", "a.counts", COUNTS).endswith("times bigint) USING delta")


@pytest.fixture
def tables(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CatalogTables]:
    monkeypatch.setitem(FORMATS, "parquet", PlainFormat())
    with plain_catalog(spark, tmp_path / "plain") as namespace:
        opened = open_tables(spark, f"parquet:{namespace}")
        assert isinstance(opened, CatalogTables)
        yield opened


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "leases.db"
    work(path, new=5, done=2)
    return path


def pipeline(*words: str) -> Result:
    result = CliRunner().invoke(app, [*words])
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def test_a_catalog_gets_the_tables_of_a_folder_step_by_step(
    tables: CatalogTables, journal: Path, tmp_path: Path
) -> None:
    folder = DeltaTables(tables.session, str(tmp_path / "lake"))
    options = {"url": f"sqlite:///{journal}"}
    assert tables.names() == []
    assert run_pipeline(tables.session, options, tables, datasets=TWO).events == 10
    work(journal, new=2, done=2)
    assert run_pipeline(tables.session, options, tables, datasets=TWO).events == 7
    run_pipeline(tables.session, options, folder, datasets=TWO)
    for name in ("lease_events", "lives", "counts"):
        assert tables.positions(name) == folder.positions(name)
        found, expected = tables.read(name), folder.read(name)
        assert found is not None
        assert expected is not None
        assert content(found.select(*expected.columns)) == content(expected)


def test_the_questions_are_asked_of_a_catalog_as_of_a_folder(
    tables: CatalogTables, journal: Path, tmp_path: Path
) -> None:
    run_pipeline(tables.session, {"url": f"sqlite:///{journal}"}, tables, datasets=())
    assert tables.names() == ["bronze/lease_events"]
    audited = pipeline("audit", "--tables", tables.root, "--json")
    assert msgspec.json.decode(audited.stdout)["ok"]
    assert tables.names() == ["bronze/lease_events", "audit/runs"]
    page = tmp_path / "page.html"
    pipeline("report", "--tables", tables.root, "--out", str(page))
    assert "clean" in page.read_text()
    replayed = pipeline("replay", "--tables", tables.root, "--json")
    assert [one["sequence"] for one in msgspec.json.decode(replayed.stdout)] == [10]
    edges = tmp_path / "lineage.jsonl"
    pipeline("lineage", "--tables", tables.root, "--to", f"file:{edges}")
    assert edges.read_text().count('"START"') == 2


def test_a_commit_on_another_past_by_an_older_lease_or_of_broken_rows_changes_nothing(
    tables: CatalogTables,
) -> None:
    columns = LIVES.columns
    good = tables.session.createDataFrame([("s", 1, 1, None, "open")], columns)
    broken = tables.session.createDataFrame([("s", 2, None, None, "open")], columns)
    tables.commit(LIVES, Change(rows=good), Commit(Snapshot(), {"s": 1}, fence=5))
    base = tables.snapshot(LIVES)
    assert (base.version, base.positions, base.fence) == (1, {"s": 1}, 5)
    with pytest.raises(TableMoved):
        tables.commit(LIVES, Change(rows=good), Commit(Snapshot(), {"s": 2}, fence=5))
    with pytest.raises(TableFenced):
        tables.commit(LIVES, Change(rows=good), Commit(base, {"s": 2}, fence=4))
    with pytest.raises(ExpectationFailed):
        tables.commit(LIVES, Change(rows=broken), Commit(base, {"s": 2}, fence=5))
    assert tables.snapshot(LIVES) == base
    assert content(tables.read_open("lives")) == [("s", 1, 1, None, "open")]


def test_a_stream_into_a_catalog_says_that_it_needs_a_place_for_its_checkpoint() -> None:
    words = ["stream", "--from", "sqlite:///j.db", "--to", "delta:lake.leases"]
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, OmniRelayError)
    assert exit_code(refused.exception) == EXIT_USAGE
    assert "--checkpoint" in refused.exception.message
