"""The parts of the catalog's tables that need no jars of another's format."""

import pytest

from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.catalog import Note, catalog_of, creation
from tests.spark.small_tables import COUNTS, LIVES


def test_a_note_on_a_commit_is_read_back_and_another_programs_is_not_taken_for_one() -> None:
    note = Note({"größe": 7, "a": 1}, 3, 1)
    assert Note.decode(note.encode()) == note
    for foreign in ("", "nightly load", "{}", "[]", "null", '{"positions": 3}'):
        assert Note.decode(foreign) is None


def test_a_catalog_is_told_from_a_folder() -> None:
    assert catalog_of("delta:lake.leases") == ("delta", "lake.leases")
    assert catalog_of("iceberg:a.b.c") == ("iceberg", "a.b.c")
    for folder in ("lake", "s3://bucket/lake", "C:/lake", "delta", "delta://host/x"):
        assert catalog_of(folder) is None
    for wrong in ("delta:", "iceberg:a..b", "delta:a; DROP TABLE b", "delta:1"):
        with pytest.raises(InvalidOption, match=r":catalog\.schema"):
            catalog_of(wrong)


def test_statements_name_the_format_and_part_open_from_closed_rows() -> None:
    assert creation("iceberg", "a.lives", LIVES).endswith("USING iceberg PARTITIONED BY (state)")
    assert creation("delta", "a.counts", COUNTS).endswith("times bigint) USING delta")
