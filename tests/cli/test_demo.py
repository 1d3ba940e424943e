"""`omnirelay demo`: it kills for real, proves from the journal, and says so in its exit code."""

import os
import pty
import subprocess
from pathlib import Path

import msgspec
import pytest

from omnirelay.journal.events import decode_event
from tests.cli.command import argv
from tests.cli.command import omnirelay as run

CLAIMS = {
    "the journal is whole",
    "every item ended exactly once",
    "every completion carries the newest fence of its item",
    "what was acknowledged before the kill is all there",
    "the worker that died mid-lease was replaced",
    "the worker that stalled was replaced",
    "the stalled worker's completion was refused",
}


class Result(msgspec.Struct):
    ok: bool
    items: int
    seconds: float
    proofs: list[dict[str, object]]


def test_the_demo_proves_all_it_claims_and_its_journal_stays_whole(tmp_path: Path) -> None:
    ended = run("demo", "--items", "12", "--data", str(tmp_path / "d#1 %"), "--json")
    assert ended.code == 0, ended.err
    assert ended.err == ""
    result = msgspec.json.decode(ended.out, type=Result)
    assert result.ok
    assert result.items == 12
    assert {proof["claim"] for proof in result.proofs} == CLAIMS
    assert all(proof["holds"] for proof in result.proofs)
    address = f"sqlite:///{tmp_path}/d%231 %25/demo.db"
    assert run("journal", "verify", address).code == 0
    tail = run("journal", "tail", address, "--json").out.splitlines()
    events = [decode_event(line) for line in tail]
    assert sum(event.event_type == "Completed" for event in events) == 12
    assert sum(event.event_type == "Expired" for event in events) >= 5
    assert {event.epoch for event in events} == {1, 2}


def test_without_a_terminal_the_demo_prints_plain_lines() -> None:
    ended = run("demo", "--items", "12")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("== stage 1")
    assert "killed process" in ended.out
    assert "refused, the fence is" in ended.out
    assert "\x1b" not in ended.out
    last = ended.out.splitlines()[-1]
    assert last.startswith("7 of 7 proofs hold")


def test_on_a_terminal_the_demo_draws_a_table() -> None:
    outside, inside = pty.openpty()
    with subprocess.Popen(
        argv("demo", "--items", "12"),
        stdin=subprocess.DEVNULL,
        stdout=inside,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as demo:
        os.close(inside)
        drawn = b""
        try:
            while part := _read(outside):
                drawn += part
        finally:
            os.close(outside)
            if demo.wait(15) != 0:
                demo.kill()
    assert demo.returncode == 0
    assert b"holder" in drawn
    assert b"worker-4" in drawn
    assert b"7 of 7 proofs hold" in drawn


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""  # the other end of a terminal is gone


def test_a_demo_that_takes_too_long_fails_and_leaves_nobody_behind(tmp_path: Path) -> None:
    ended = run("demo", "--seconds-limit", "1", "--items", "500", "--data", str(tmp_path))
    assert ended.code == 1
    assert "not done after 1 seconds" in ended.complaint
    # The child is dead: its file has no owner any more.
    address = f"sqlite:///{tmp_path}/demo.db"
    if (tmp_path / "demo.db").exists():
        assert run("journal", "tail", address).code in (0, 1)
    owner = tmp_path / "demo.db-owner"
    if owner.exists():
        pid = int(owner.read_text() or "0")
        assert pid == 0 or not Path(f"/proc/{pid}").exists()


def test_a_folder_with_an_earlier_demo_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo.db").write_bytes(b"")
    ended = run("demo", "--data", str(tmp_path))
    assert ended.code == 1
    assert "earlier demo" in ended.complaint


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run("demo", "--data", str(tmp_path / "file" / "x"))
    assert ended.code == 1
    assert "file" in ended.complaint


@pytest.mark.parametrize("words", [("--items", "3"), ("--items", "many"), ("--seconds-limit", "0")])
def test_wrong_figures_are_wrong_usage(words: tuple[str, str]) -> None:
    ended = run("demo", *words)
    assert ended.code == 2
    assert words[0] in ended.err
