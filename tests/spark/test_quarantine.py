"""Envelopes that cannot be believed are set aside with a reason; everything else is read. No Spark
but in the last two tests."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from omnirelay.cli.ending import EXIT_FAILED
from omnirelay.cli.pipeline import app
from omnirelay.journal.format import Sealed, checksum, seal
from omnirelay.lease.records import Enqueued
from omnirelay.model.items import Payload
from omnirelay.pipeline.address import open_file
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.run import run_pipeline
from omnirelay.testing.envelopes import Scribe
from tests.spark.journals import append

Harm = Callable[[apsw.Connection, list[Sealed]], None]
"""Done to the third of five envelopes, which holds the sequences 7 to 9."""


def put(db: apsw.Connection, body: bytes, first: int = 7) -> None:
    db.execute("UPDATE journal SET body = CAST(? AS TEXT) WHERE first = ?", (body, first))


def resealed(body: bytes) -> bytes:
    """Changed, and its checksum made good again."""
    data = body[: body.rindex(b',"checksum"')]
    return data + b',"checksum":"' + checksum(data).encode() + b'"}'


def flipped_bit(db: apsw.Connection, held: list[Sealed]) -> None:
    put(db, held[2].body.replace(b"table", b"tabme", 1))


def cut_end(db: apsw.Connection, held: list[Sealed]) -> None:
    put(db, held[2].body[:-40])


def no_json(db: apsw.Connection, held: list[Sealed]) -> None:
    put(db, resealed(held[2].body.replace(b'"records":[', b'"records":[[', 1)))


def from_the_future(db: apsw.Connection, held: list[Sealed]) -> None:
    put(db, resealed(held[2].body.replace(b'{"v":1,', b'{"v":9,', 1)))


def of_another_shard(db: apsw.Connection, held: list[Sealed]) -> None:
    put(db, resealed(held[2].body.replace(b'"shard":"s"', b'"shard":"z"', 1)))


def stored_elsewhere(db: apsw.Connection, held: list[Sealed]) -> None:
    put(db, held[3].body)


def foreign_link(db: apsw.Connection, held: list[Sealed]) -> None:
    put(db, resealed(held[2].body.replace(held[1].checksum.encode(), b"0" * 32, 1)))


def missing(db: apsw.Connection, held: list[Sealed]) -> None:
    db.execute("DELETE FROM journal WHERE first = 7")


def wrong_key(db: apsw.Connection, held: list[Sealed]) -> None:
    db.execute("UPDATE journal SET last = 8 WHERE first = 7")


def beyond_the_table(db: apsw.Connection, held: list[Sealed]) -> None:
    record = Enqueued(1 << 63, Payload("table", "t"))
    sealed = seal(
        [record] * 3,
        ([0] * 3, [0] * 3),
        head=("s", 1, "node-1"),
        first=7,
        time=held[2].time,
        prev=held[1].checksum,
    )
    put(db, sealed.body)


HARMS: dict[Harm, str] = {
    flipped_bit: "checksum is",
    cut_end: "its end is missing",
    no_json: "cannot be read",
    from_the_future: "format version 9 is newer",
    of_another_shard: "the envelope stored here is z 7",
    stored_elsewhere: "the envelope stored here is s 10",
    foreign_link: "it follows checksum 00000000000000000000000000000000",
    missing: "sequences 7 to 9 are missing",
    wrong_key: "it is stored as ending at 8 and says 9",
    beyond_the_table: "a value in it fits no table",
}


@pytest.fixture
def journal(tmp_path: Path) -> tuple[Path, list[Sealed]]:
    scribe = Scribe("s")
    held = [scribe.seal(3) for _ in range(5)]
    append(tmp_path / "j.db", held)
    return tmp_path / "j.db", held


def harm(journal: tuple[Path, list[Sealed]], deed: Harm) -> None:
    with closing(apsw.Connection(str(journal[0]))) as db:
        deed(db, journal[1])


def sequences(path: Path, after: int = 0, through: int = 15) -> list[int]:
    with closing(open_file(str(path))) as address:
        part = Part(after=after, through=through)
        return [row["sequence"] for b in address.read("s", part) for row in b.to_pylist()]


def damaged(path: Path, after: int = 0, through: int = 15) -> list[tuple[int, str]]:
    with closing(open_file(str(path))) as address:
        found = address.damaged("s", after, through)
        return sorted((one.sequence, one.reason) for one in found)


@pytest.mark.parametrize("deed", HARMS, ids=lambda deed: deed.__name__)
def test_a_damaged_envelope_is_set_aside_and_the_rest_is_read(
    journal: tuple[Path, list[Sealed]], deed: Harm
) -> None:
    harm(journal, deed)
    assert sequences(journal[0])[:6] == [1, 2, 3, 4, 5, 6]
    (first, reason), *others = damaged(journal[0])
    assert first == 7
    assert HARMS[deed] in reason
    if deed in (beyond_the_table, foreign_link):
        # Whole in itself, and another than the one that the next envelope follows.
        assert [number for number, _ in others] == [10]
        assert sequences(journal[0])[6:] == [13, 14, 15]
    else:
        assert others == []
        assert sequences(journal[0])[6:] == [10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("deed", HARMS, ids=lambda deed: deed.__name__)
@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_parts_find_the_same_damage_as_the_whole_each_once(
    journal: tuple[Path, list[Sealed]], deed: Harm, size: int
) -> None:
    harm(journal, deed)
    parts = [(after, min(after + size, 15)) for after in range(0, 15, size)]
    assert [one for part in parts for one in damaged(journal[0], *part)] == damaged(journal[0])
    assert [one for part in parts for one in sequences(journal[0], *part)] == sequences(journal[0])


def test_the_body_of_a_damaged_envelope_is_kept_as_it_is(
    journal: tuple[Path, list[Sealed]],
) -> None:
    harm(journal, cut_end)
    with closing(open_file(str(journal[0]))) as address:
        (found,) = address.damaged("s", 0, 15)
    assert found.body == journal[1][2].body[:-40]


def test_a_whole_journal_has_no_damage(journal: tuple[Path, list[Sealed]]) -> None:
    assert damaged(journal[0]) == []
    assert sequences(journal[0]) == list(range(1, 16))


def test_a_pruned_beginning_is_no_damage(journal: tuple[Path, list[Sealed]]) -> None:
    def prune(db: apsw.Connection, _: list[Sealed]) -> None:
        db.execute("DELETE FROM journal WHERE first < 7")

    harm(journal, prune)
    assert damaged(journal[0]) == []


@pytest.mark.timeout(120)
def test_spark_reads_on_and_shows_what_was_set_aside(
    spark: SparkSession, journal: tuple[Path, list[Sealed]]
) -> None:
    harm(journal, flipped_bit)
    reader = spark.read.format("omnirelay").option("rows_per_partition", "4")
    assert reader.load(str(journal[0])).count() == 12
    (row,) = reader.option("view", "quarantine").load(str(journal[0])).collect()
    assert (row.shard, row.sequence, row.address) == ("s", 7, str(journal[0]))
    assert bytes(row.body) == journal[1][2].body.replace(b"table", b"tabme", 1)
    assert row.found_at is not None


@pytest.mark.timeout(200)
def test_an_audit_of_tables_names_what_the_run_that_made_them_set_aside(
    spark: SparkSession, journal: tuple[Path, list[Sealed]], tmp_path: Path
) -> None:
    harm(journal, flipped_bit)
    path, lake = str(journal[0]), str(tmp_path / "lake")
    run_pipeline(spark, {"url": f"sqlite:///{path}"}, DeltaTables(spark, lake), datasets=())
    ended = CliRunner().invoke(app, ["audit", "--tables", lake, "--json"])
    assert ended.exit_code == EXIT_FAILED, ended.output
    findings = msgspec.json.decode(ended.stdout)["audit"]["findings"]
    (aside,) = (one for one in findings if one["check"] == "quarantine")
    assert (aside["shard"], aside["sequence"]) == ("s", 7)
    assert "checksum" in aside["message"]
    assert path in aside["message"]
