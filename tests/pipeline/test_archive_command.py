"""`omnirelay pipeline archive` as a user meets it, over several stores. No Spark here."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from omnirelay.cli.ending import EXIT_FAILED, EXIT_USAGE, exit_code
from omnirelay.cli.pipeline import app
from omnirelay.model.errors import OmniRelayError, OtherJournal
from omnirelay.pipeline.address import open_file
from omnirelay.pipeline.archive import CONSUMER, archive_journal
from omnirelay.pipeline.archive_reading import look_through, read_segment
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.offsets import held
from omnirelay.testing.envelopes import Scribe
from tests.spark.archives import archive_at, prune
from tests.spark.test_source_stores import EVENTS, SHARD, history, write


def command(*words: str) -> Result:
    return CliRunner().invoke(app, ["archive", *words])


def said(result: Result) -> dict[str, Any]:
    """Any: JSON."""
    assert result.exception is None, result.output
    return dict(msgspec.json.decode(result.stdout))


@pytest.fixture(params=["sqlite", "file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres").url("archived"))
    return f"sqlite:///{tmp_path}/j.db" if request.param == "sqlite" else f"file://{tmp_path}/j"


@pytest.mark.timeout(90)
def test_a_journal_anywhere_is_archived_once_and_its_pruning_waits(
    url: str, tmp_path: Path
) -> None:
    write(url, history())
    folder = str(tmp_path / "archive")
    words = ("--from", url, "--to", folder, "--segment-events", "30", "--json")
    full = said(command(*words))
    assert [(one["first"], one["last"]) for one in full["segments"]] == [(1, 36), (37, 66)]
    assert full["events"] == 66
    assert said(command(*words))["segments"] == []
    rest = said(command(*words, "--tail", "--shards", SHARD))
    assert [(one["first"], one["last"]) for one in rest["segments"]] == [(67, EVENTS)]
    found = look_through(folder, [SHARD]).sound
    batches = [batch for one in found for batch in read_segment(one, Part(names=("sequence",)))]
    sequences = [row["sequence"] for batch in batches for row in batch.to_pylist()]
    assert sequences == list(range(1, EVENTS + 1))
    journal = open_file(url, (SHARD,))
    assert held(journal.positions(), CONSUMER, [SHARD]) == {SHARD: EVENTS}
    journal.close()


def test_it_says_what_it_has_written_or_that_nothing_fills_a_segment(tmp_path: Path) -> None:
    url, folder = f"sqlite:///{tmp_path}/j.db", str(tmp_path / "archive")
    write(url, history())
    waiting = command("--from", url, "--to", folder)
    assert "--tail" in waiting.stdout
    written = command("--from", url, "--to", folder, "--tail")
    assert f"{EVENTS} events in 1 new segment" in written.stdout


def test_a_bucket_is_archived_into_and_what_can_be_none_is_refused(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url, bucket = f"sqlite:///{tmp_path}/j.db", archive_at(request, "s3")
    write(url, history())
    (told,) = said(command("--from", url, "--to", bucket, "--tail", "--json"))["segments"]
    assert told["file"].startswith(f"{bucket}/_archive/{SHARD}/")
    for place in ("hdfs://name/x", "s3://", "s3://key:secret@bucket", "s3://bucket?key=secret"):
        refused = command("--from", url, "--to", place)
        assert isinstance(refused.exception, OmniRelayError)
        assert exit_code(refused.exception) == EXIT_USAGE
        assert "secret" not in str(refused.exception)


def test_a_node_several_journals_and_an_unknown_shard_are_refused(tmp_path: Path) -> None:
    folder, url = tmp_path / "archive", f"sqlite:///{tmp_path}/j.db"
    write(url, history())
    for words, code in (
        (("--from", "http://127.0.0.1:9"), EXIT_USAGE),
        (("--from", f"{url},{tmp_path}/k.db"), EXIT_USAGE),
        (("--from", "ftp://x"), EXIT_USAGE),
        (("--from", url, "--shards", "nobody"), EXIT_FAILED),
    ):
        refused = command(*words, "--to", str(folder))
        assert isinstance(refused.exception, OmniRelayError)
        assert exit_code(refused.exception) == code
    assert not folder.exists()


def test_an_archive_takes_no_other_journal_of_the_same_name(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    one, other = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "other"))
    write(one, history()[:4])
    archive_journal(one, folder, has_tail=True)
    scribe = Scribe(SHARD)
    write(other, [scribe.seal(10), scribe.seal(5)])
    with pytest.raises(OtherJournal, match="another envelope"):
        archive_journal(other, folder, has_tail=True)
    with pytest.raises(OtherJournal, match="another envelope"):
        archive_journal(other, folder)
    journal = open_file(other)
    assert held(journal.positions(), CONSUMER, [SHARD]) == {}, "it would let go of what is not kept"
    journal.close()


def test_an_archive_takes_no_other_journal_that_begins_behind_it(tmp_path: Path) -> None:
    """What both would have is pruned, so only the checksum before the first tells."""
    folder = tmp_path / "archive"
    one, other = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "other"))
    write(one, history()[:4])
    archive_journal(one, folder, has_tail=True)
    scribe = Scribe(SHARD)
    write(other, [scribe.seal(10), scribe.seal(5)])
    prune(tmp_path / "other.db", {SHARD: 10})
    with pytest.raises(OtherJournal, match="does not go on"):
        archive_journal(other, folder, has_tail=True)
