"""A worker's process that is asked to end: it finishes or hands back, and exits in peace."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import omnirelay
from tests.embedded.worker_program import PROGRAM


@contextmanager
def working(file: Path, kind: str, stop_timeout_s: float = 0.01) -> Iterator[subprocess.Popen[str]]:
    with omnirelay.connect_sync(f"sqlite:///{file}") as relay:
        relay.enqueue(kind, "a")
        relay.enqueue(kind, "b")
    command = [sys.executable, "-c", PROGRAM, f"sqlite:///{file}", str(stop_timeout_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "holding\n"
            yield child
        finally:
            child.kill()


def end(child: "subprocess.Popen[str]", number: signal.Signals) -> tuple[int, str]:
    os.kill(child.pid, number)
    said, _ = child.communicate(timeout=15)
    return child.returncode, said


def left(file: Path) -> list[str]:
    with omnirelay.connect_sync(f"sqlite:///{file}") as relay:
        return [event.event_type for event in relay.events()]


def test_on_sigterm_a_worker_hands_back_what_it_cannot_finish(tmp_path: Path) -> None:
    with working(tmp_path / "leases.db", "slow") as child:
        assert end(child, signal.SIGTERM) == (0, "ended\n")
    assert "Released" in left(tmp_path / "leases.db")
    with omnirelay.connect_sync(f"sqlite:///{tmp_path}/leases.db") as relay:
        assert (relay.stats().pending_count, relay.stats().active_lease_count) == (2, 0)


def test_on_sigterm_a_worker_finishes_what_it_has_in_hand(tmp_path: Path) -> None:
    with working(tmp_path / "leases.db", "quick", stop_timeout_s=10) as child:
        assert end(child, signal.SIGTERM) == (0, "ended\n")
    assert left(tmp_path / "leases.db").count("Completed") == 1


def test_on_sigint_too(tmp_path: Path) -> None:
    with working(tmp_path / "leases.db", "slow") as child:
        assert end(child, signal.SIGINT) == (0, "ended\n")
    assert "Released" in left(tmp_path / "leases.db")


def test_a_killed_worker_loses_its_leases_and_nothing_else(tmp_path: Path) -> None:
    with working(tmp_path / "leases.db", "slow") as child:
        assert end(child, signal.SIGKILL)[0] == -signal.SIGKILL
    with omnirelay.connect_sync(f"sqlite:///{tmp_path}/leases.db") as relay:
        assert (relay.stats().pending_count, relay.stats().active_lease_count) == (1, 1)
