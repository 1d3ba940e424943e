"""`omnirelay journal backup`, `restore` and `export`."""

from pathlib import Path

import pytest

import omnirelay
from omnirelay.journal.events import decode_event
from tests.cli.command import omnirelay as run

pytestmark = pytest.mark.timeout(60)


def url(file: Path) -> str:
    return f"sqlite:///{file}"


def test_a_backup_taken_under_the_writer_can_be_restored_and_goes_on(tmp_path: Path) -> None:
    live, copy, back = (tmp_path / name for name in ("live.db", "copy.db", "back.db"))
    with omnirelay.connect_sync(url(live)) as relay:
        relay.enqueue("table", "a")
        ended = run("journal", "backup", url(live), "--out", str(copy))
        assert ended.code == 0, ended.err
        assert "resourcelease up to sequence 2, epoch 1; " in ended.out
        assert "every link was checked" in ended.out
        relay.enqueue("table", "later")
    again = run("journal", "backup", url(live), "--out", str(copy))
    assert "is there already" in again.complaint
    assert run("journal", "restore", str(copy), url(back), "--json").code == 0
    with omnirelay.connect_sync(url(back)) as relay:
        assert relay.stats().pending_count == 1
        relay.enqueue("table", "more")
    assert {path.name for path in tmp_path.iterdir() if "unfinished" in path.name} == set()


def test_a_restore_never_writes_over_a_journal_nor_below_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    live, copy = tmp_path / "live.db", tmp_path / "copy.db"
    with omnirelay.connect_sync(url(live)) as relay:
        relay.enqueue("table", "a")
        run("journal", "backup", url(live), "--out", str(copy))
        relay.enqueue("table", "later")
        owned = run("journal", "restore", str(copy), url(live))
        assert owned.code == 1
        assert "is in use by" in owned.complaint
    used = run("journal", "restore", str(copy), url(live))
    assert "another journal is there: it goes on to sequence 3" in used.complaint
    live.unlink()
    below = run("journal", "restore", str(copy), url(live))
    assert below.code == 1
    assert f"acknowledged up to 3 here, {copy} ends at 2" in below.complaint
    assert not live.exists()


def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a database, by far " * 50)
    assert run("journal", "restore", str(text), url(tmp_path / "x.db")).code == 1
    assert run("journal", "restore", str(tmp_path / "no"), url(tmp_path / "x.db")).code == 3
    assert run("journal", "backup", url(tmp_path / "no.db"), "--out", str(tmp_path / "y")).code == 3
    assert run("journal", "backup", "memory:", "--out", str(tmp_path / "y")).code == 2
    assert not (tmp_path / "x.db").exists()
    assert not (tmp_path / "y").exists()


def test_an_export_holds_every_event_once(tmp_path: Path) -> None:
    live, out = tmp_path / "live.db", tmp_path / "events.ndjson"
    with omnirelay.connect_sync(url(live)) as relay:
        for number in range(20):
            relay.enqueue("table", f"t{number}")
    ended = run("journal", "export", url(live), "--out", str(out), "--from", "2", "--json")
    assert ended.json() == {"ok": True, "events": 20, "file": str(out)}
    events = [decode_event(line) for line in out.read_bytes().splitlines()]
    assert [event.sequence_number for event in events] == list(range(2, 22))
    assert run("journal", "export", url(live), "--out", str(out)).code == 1
