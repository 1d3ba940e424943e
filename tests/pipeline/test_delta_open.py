"""Tables that are opened once for reading: never older than the newest commit."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from omnirelay.pipeline import delta_open
from omnirelay.pipeline.delta_open import Opened


def write(at: Path, *values: int) -> None:
    write_deltalake(str(at), pa.table({"value": list(values)}), mode="append")


def files(opened: Opened, at: Path) -> int:
    table = opened.table(str(at))
    assert table is not None
    return len(table.file_uris())


def test_a_table_is_opened_again_when_somebody_has_committed_and_only_then(tmp_path: Path) -> None:
    at, opened = tmp_path / "a table", Opened(None)
    assert opened.table(str(at)) is None
    write(at, 1)
    first = opened.table(str(at))
    assert first is not None
    assert opened.table(str(at)) is first
    write(at, 2)
    write(at, 3)
    assert files(opened, at) == 3
    assert len(first.file_uris()) == 1, "whoever read before goes on with what it has"


def test_another_table_at_the_same_place_is_not_taken_for_the_one_that_was_there(
    tmp_path: Path,
) -> None:
    at, opened = tmp_path / "table", Opened(None)
    write(at, 1)
    write(at, 2)
    assert files(opened, at) == 2
    shutil.rmtree(at)
    assert opened.table(str(at)) is None
    write(at, 3)
    write(at, 4, 5)
    table = opened.table(str(at))
    assert table is not None
    assert table.to_pyarrow_table()["value"].to_pylist() in ([3, 4, 5], [4, 5, 3])


def test_a_log_that_has_forgotten_the_commits_in_between_is_read_again_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, opened = tmp_path / "table", Opened(None)
    write(at, 1)
    assert files(opened, at) == 1
    write(at, 2)
    write(at, 3)
    DeltaTable(str(at)).create_checkpoint()
    # As retention leaves it, but for the commit that was seen.
    (at / "_delta_log" / f"{1:020d}.json").unlink()
    assert files(opened, at) == 1, "nothing tells it yet"
    monkeypatch.setattr(delta_open, "_TRUSTED_S", 0.0)
    assert files(opened, at) == 3


def test_a_table_whose_log_is_damaged_is_an_error_and_not_the_table_of_before(
    tmp_path: Path,
) -> None:
    at, opened = tmp_path / "table", Opened(None)
    write(at, 1)
    assert files(opened, at) == 1
    (at / "_delta_log" / f"{1:020d}.json").write_text("{not a commit")
    with pytest.raises(Exception, match=r"(?i)json|parse|log|schema"):
        opened.table(str(at))
