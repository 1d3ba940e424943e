"""`omnirelay demo`: it kills for real, proves from the journal, and says so in its exit code."""

import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from omnirelay.cli.demo_proof import Proof
from omnirelay.cli.demo_screen import PlainScreen, Took
from omnirelay.journal.events import decode_event
from tests.cli.command import Ended, argv
from tests.cli.command import omnirelay as run

# Ten processes start and stop within each demo; on a busy machine that takes its time.
pytestmark = pytest.mark.timeout(90)
WITHIN_S = 70
CLAIMS = {
    "the journal is whole",
    "every item ended exactly once",
    "every completion carries the newest fence of its item",
    "nothing that was acknowledged is lost, although the node was killed",
    "the worker that was killed was replaced",
    "the worker that was stopped was replaced",
    "its stale completion over http was refused",
    "its stale completion over grpc was refused",
    "its stale completion over stream was refused",
}


class Result(msgspec.Struct):
    ok: bool
    seconds: float
    late: bool
    proofs: list[dict[str, object]]
    spark: dict[str, object] | None = None


def demo(*words: str, within_s: float = WITHIN_S) -> Ended:
    ended = subprocess.run(
        argv("demo", "--items", "12", "--no-spark", *words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
        # What a user has set for his own nodes is not the demo's business.
        env={**os.environ, "OMNIRELAY_NAMESPACE": "mine", "OMNIRELAY_HTTP": "nowhere"},
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def test_the_demo_proves_all_it_claims_and_its_journal_stays_whole(tmp_path: Path) -> None:
    ended = demo("--data", str(tmp_path / "d#1 %"), "--json")
    assert ended.code == 0, ended.err
    assert ended.err == ""
    result = msgspec.json.decode(ended.out, type=Result)
    assert result.ok
    assert {proof["claim"] for proof in result.proofs} == CLAIMS
    assert all(proof["holds"] for proof in result.proofs)
    address = f"sqlite:///{tmp_path}/d%231 %25/resourcelease.db"
    assert run("journal", "verify", address).code == 0
    tail = run("journal", "tail", address, "--json").out.splitlines()
    events = [decode_event(line) for line in tail]
    kinds = [event.event_type for event in events]
    assert kinds.count("Completed") == kinds.count("Enqueue") >= 12
    assert kinds.count("Expired") >= 2
    assert {event.epoch for event in events} == {1, 2}
    assert not processes_with(str(tmp_path))


@pytest.mark.timeout(320)  # Spark and five Python workers of its start up, on a busy machine
def test_the_demo_ends_with_tables_a_verdict_and_a_page(tmp_path: Path) -> None:
    ended = demo("--data", str(tmp_path / "d#1 %"), "--spark", "--json", within_s=300)
    assert ended.code == 0, ended.err
    result = msgspec.json.decode(ended.out, type=Result)
    assert {proof["claim"] for proof in result.proofs} == CLAIMS | {"an audit on Spark agrees"}
    assert result.spark is not None
    assert result.late == (result.seconds > 60), "Spark's time counts too"
    assert result.spark["verdict"] == "clean"
    page = Path(str(result.spark["report"])).read_text()
    assert page.startswith("<!doctype html>")
    assert "<svg" in page


def test_without_a_terminal_the_demo_prints_plain_lines() -> None:
    ended = demo()
    assert ended.code == 0, ended.err
    assert ended.out.startswith("== stage 1")
    assert "killed worker-4 (exit -9)" in ended.out
    assert "killed the node (exit -9)" in ended.out
    assert "refused over http: 412 FAILED_PRECONDITION, the fence is" in ended.out
    assert "refused over grpc: 9 FAILED_PRECONDITION, the fence is" in ended.out
    assert "refused over stream: FAILED_PRECONDITION, the fence is" in ended.out
    assert "\x1b" not in ended.out
    assert re.search(r"^9 of 9 proofs hold", ended.out, re.MULTILINE)
    assert "`omnirelay dev`" in ended.out


def test_a_demo_that_took_longer_than_it_should_says_so_and_is_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for seconds in (60.0, 60.1):
        PlainScreen().verdict([Proof("a", True, "b")], Took(seconds, 60.0))
    said = [line for line in capsys.readouterr().out.splitlines() if "proofs hold" in line]
    assert said == [
        "1 of 1 proofs hold, 60 seconds",
        "1 of 1 proofs hold, 60.1 seconds, more than the 60 it should take",
    ]


def test_on_a_terminal_the_demo_draws_a_table() -> None:
    outside, inside = pty.openpty()
    with subprocess.Popen(
        argv("demo", "--items", "12", "--no-spark"),
        stdin=subprocess.DEVNULL,
        stdout=inside,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "50"},
    ) as running:
        os.close(inside)
        drawn = b""
        with ends_within(running):
            while part := _read(outside):
                drawn += part
            os.close(outside)
    assert running.returncode == 0
    assert b"holder" in drawn
    assert b"worker-4" in drawn
    assert b"stopped" in drawn
    assert b"9 of 9 proofs hold" in drawn


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""  # the other end of a terminal is gone


@contextmanager
def ends_within(running: "subprocess.Popen[bytes]") -> Iterator[None]:
    watchdog = threading.Timer(WITHIN_S, running.kill)
    watchdog.start()
    try:
        yield
        running.wait(WITHIN_S)
    finally:
        watchdog.cancel()
        running.kill()
        running.wait()


def processes_with(word: str) -> list[str]:
    """Command lines of whoever runs with it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if word in line:
            found.append(line)
    return found


def test_a_demo_that_takes_too_long_fails_and_leaves_nobody_behind(tmp_path: Path) -> None:
    ended = run("demo", "--seconds-limit", "3", "--data", str(tmp_path))
    assert ended.code == 1
    assert "not done after 3 seconds" in ended.complaint
    assert not processes_with(str(tmp_path))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="who runs is read from /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_demo_that_is_itself_killed_leaves_nobody_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    with (
        subprocess.Popen(
            argv("demo", "--data", str(tmp_path)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as running,
        ends_within(running),
    ):
        assert running.stdout is not None
        while b"is worker-5" not in running.stdout.readline():
            assert running.poll() is None
        assert processes_with(str(tmp_path))
        running.send_signal(number)
        running.wait(WITHIN_S)
        for _ in range(100):
            if not processes_with(str(tmp_path)):
                break
            threading.Event().wait(0.1)  # the dead tell nobody that they are gone
    assert not processes_with(str(tmp_path))


def test_a_node_that_cannot_start_is_named_with_its_reason(tmp_path: Path) -> None:
    # A folder where the journal should be.
    (tmp_path / "resourcelease.db-owner").mkdir()
    ended = run("demo", "--data", str(tmp_path))
    assert ended.code == 1
    assert "the node does not start" in ended.complaint


def test_a_folder_with_an_earlier_demo_is_refused(tmp_path: Path) -> None:
    (tmp_path / "resourcelease.db").write_bytes(b"")
    ended = run("demo", "--data", str(tmp_path))
    assert ended.code == 1
    assert "is there already" in ended.complaint


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
