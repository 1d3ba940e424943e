"""Errors of the real file system under a real process: a second opinion on the simulated disk."""

import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from omnirelay.testing import figures
from omnirelay.testing.crash_workload import Line
from omnirelay.testing.crashes import CrashSite, Plan, Process
from omnirelay.testing.traffic import Answered

_NOT_NOW = {
    "error.resourcelease.journal_full",
    "error.resourcelease.outcome_unknown",
    "error.resourcelease.recovering",
}


class Choke:
    """From one line on no file of the process may grow, until clients were put off often enough.
    What the kernel then says (EFBIG, after as much as still fits) SQLite knows only as an error."""

    def __init__(self, log: Path, at_line: int) -> None:
        self.refusals = 0
        self._log = log
        self._at_line = at_line
        self._hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def __call__(self, process: Process, number: int, line: Line) -> None:
        if number == self._at_line:
            self._allow(process, self._log.stat().st_size + 1000)
        elif isinstance(line, Answered) and _NOT_NOW.intersection(line.refusals):
            self.refusals += 1
            if self.refusals == 12:
                self._allow(process, self._hard)

    def _allow(self, process: Process, size: int) -> None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, self._hard))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("at_line", [1, 40, 150])
def test_a_process_whose_files_cannot_grow_refuses_and_goes_on_once_they_can(
    tmp_path: Path, at_line: int
) -> None:
    site = CrashSite(tmp_path, seed=at_line)
    choke = Choke(site.path.with_name("leases.db-wal"), at_line)
    assert site.let_run(Plan(calls=60, watch=choke)), "it did not survive"
    site.finish()
    figures.record("disk", injected=1, survived=int(not site.figures.problems))
    assert site.figures.problems == []
    assert choke.refusals >= 12, "nobody noticed"
    assert site.archive.epochs >= 3, "the shard must leave service and take office again"


def strace_works() -> bool:
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.mark.timeout(60)
@pytest.mark.skipif(not strace_works(), reason="strace is not installed or may not trace here")
@pytest.mark.parametrize("fault", ["error=EIO", "error=ENOSPC", "signal=KILL"])
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
def test_a_system_call_that_fails_or_kills_loses_nothing(
    tmp_path: Path, call: str, fault: str
) -> None:
    site = CrashSite(tmp_path, seed=5)
    tracing = ("strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={call}")
    for at in (9, 40):
        inject = ("-e", f"inject={call}:{fault}:when={at}")
        site.let_run(Plan(calls=15, prefix=(*tracing, *inject), may_not_open=True))
    site.finish()
    figures.record("disk", injected=2, survived=2 - bool(site.figures.problems))
    assert site.figures.problems == []
