"""Kills a real process over and over on one journal and checks what the next one finds.

After each death the files are copied, so that the next process meets them exactly as the last one
left them, and the copy is recovered twice. Everything the journal ever held goes into an archive,
pruned or not: the harness has a position in the followers' store, and pruning waits for it.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.lease.commands import Drain
from omnirelay.mesh.recovery import recover
from omnirelay.model import limits
from omnirelay.model.items import PendingItem, Token
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from omnirelay.testing.archive import Archive, digest
from omnirelay.testing.crash_workload import (
    FOLLOWER,
    SHARD,
    Applied,
    Line,
    Ready,
    Resume,
    Stopped,
)
from omnirelay.testing.failpoints import VARIABLE
from omnirelay.testing.traffic import Answered, Called

_lines = msgspec.json.Decoder(Line)
_PATIENCE_S = 15.0
"""A process that has not ended after so long is killed and complained about."""


Process = subprocess.Popen[bytes]
Watch = Callable[[Process, int, Line], None]
"""Sees each line of a process as it is said, with its number, and may do something to it."""


@dataclass(frozen=True)
class Plan:
    """How one process is started, and what becomes of it."""

    calls: int = 1_000_000
    failpoints: str = ""
    finish: bool = False
    kill_after_s: float | None = None
    watch: Watch | None = None
    prefix: tuple[str, ...] = ()
    """A command to run it under."""
    may_not_open: bool = False
    """A fault may meet it while it opens; then it says why and ends."""


@dataclass
class CrashFigures:
    restarts: int = 0
    acknowledged: int = 0
    acknowledged_lost: int = 0
    repeated: int = 0
    recovery_ms: list[float] = field(default_factory=list)
    points_hit: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


def crash_rounds(seed: int, rounds: int) -> CrashFigures:
    """Random moments under load, all on one journal, then a last process that works it empty."""
    with tempfile.TemporaryDirectory() as folder:
        site = CrashSite(Path(folder), seed)
        for _ in range(rounds):
            site.kill_at_random()
        site.finish()
    return site.figures


class CrashSite:
    """One journal and the processes that die on it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.figures = CrashFigures()
        self.archive = Archive(SHARD)
        self._folder = folder
        self.path = folder / "leases.db"
        self._chance = Random(seed)
        self._seed = seed
        self._rounds = 0
        self._resume = Resume(f"{seed}.0")
        self._position = 0
        self._store_position()

    # -- ways to die ------------------------------------------------------------------------------

    def kill_at_random(self) -> None:
        """At some line under load, or at some moment from the start of the process on."""
        if self._chance.random() < 0.25:
            self.let_run(Plan(kill_after_s=self._chance.uniform(0.1, 0.45)))
        else:
            self.let_run(Plan(watch=_kill_at_line(self._chance.randint(1, 250))))

    def kill_at(self, point: str, hit: int, *, also: str = "") -> bool:
        """Arm one failpoint; False if the process ended before it came by so often."""
        rules = ",".join(filter(None, [f"{point}=kill@{hit}", also]))
        died = not self.let_run(Plan(failpoints=rules, calls=300))
        if died:
            self.figures.points_hit.add(point)
        return died

    def let_run(self, plan: Plan) -> bool:
        """True if the process stopped by itself; what it left is examined in any case."""
        lines = self._run(plan)
        self._examine(lines)
        return any(isinstance(line, Stopped) for line in lines)

    def finish(self) -> None:
        """A process that is left alone: everything ends, and it stops cleanly."""
        lines = self._run(Plan(calls=5, finish=True))
        last = lines[-1] if lines else None
        self._examine(lines)
        if not isinstance(last, Stopped) or (last.pending, last.active) != (0, 0):
            self._complain(f"the last process ended with {last}")

    # -- one process ------------------------------------------------------------------------------

    def _run(self, plan: Plan) -> list[Line]:
        resume = self._folder / "resume.json"
        resume.write_bytes(msgspec.json.encode(self._resume))
        command = [sys.executable, "-m", "omnirelay.testing.crash_workload", str(self.path)]
        command += ["--resume", str(resume), "--calls", str(plan.calls)]
        command += ["--seed", str(self._chance.getrandbits(32))]
        command += ["--finish"] * plan.finish + ["--drive"] * self._chance.choice((0, 1))
        self._rounds += 1
        self.figures.restarts += self._rounds > 1
        process = subprocess.Popen(
            [*plan.prefix, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, VARIABLE: plan.failpoints},
        )
        patience = plan.kill_after_s or _PATIENCE_S
        end = threading.Timer(patience, process.kill)
        end.start()
        started = time.monotonic()
        with process:
            lines = list(_read(process, plan.watch))
            assert process.stderr is not None
            said = process.stderr.read().decode(errors="replace")
        end.cancel()
        if plan.kill_after_s is None and time.monotonic() - started >= patience:
            self._complain(f"the process did not end in {patience} s: {said[-2000:]}")
        is_refused = plan.may_not_open and not lines
        if process.returncode not in (0, -9) and not is_refused:
            self._complain(f"the process ended with {process.returncode}: {said[-2000:]}")
        return lines

    # -- what is left -----------------------------------------------------------------------------

    def _examine(self, lines: list[Line]) -> None:
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            for file in self._folder.glob("leases.db*"):
                if not file.name.endswith(("-shm", "-owner")):
                    shutil.copy(file, scratch)
            copy = Path(scratch, "leases.db")
            first, bodies = asyncio.run(_recovered(copy, self.archive.last))
            second, _ = asyncio.run(_recovered(copy, self.archive.last))
            position = asyncio.run(_position(copy))
        for body in bodies:
            self.archive.add(body)
        if {first, second} != {digest(self.archive.state)}:
            self._complain("the recovered state is not the fold of the journal")
        self.figures.problems += (f"{self._where}: {b}" for b in self.archive.breaches())
        self._check_answers(lines)
        self._check_follower(lines, position)
        self._resume = self._knowledge(lines)
        if self._rounds % 2:  # every other time, so that its log, too, is met as the dead left it
            self._store_position()

    def _check_answers(self, lines: list[Line]) -> None:
        claims = [c for line in lines if isinstance(line, Answered) for c in line.claims]
        lost = self.archive.lacks(claims)
        self.figures.acknowledged += len(claims)
        self.figures.acknowledged_lost += len(lost)
        self.figures.problems += (f"{self._where}: {claim} is lost" for claim in lost)
        for line in lines:
            if isinstance(line, Ready):
                self.figures.recovery_ms.append(round(line.recovery_ms, 1))
                if self.archive.depths.get(line.last) != (line.pending, line.active):
                    self._complain(f"it served another state than its journal's: {line}")

    def _check_follower(self, lines: list[Line], position: int) -> None:
        """From where it was, in order, without a gap; a batch comes again only if a death or a disk
        fault fell between applying it and noting that."""
        noted = before = self._position
        for batch in (line for line in lines if isinstance(line, Applied)):
            if batch.first not in (noted + 1, before + 1):
                self._complain(f"the follower was at {noted} and was given {batch}")
            before, noted = batch.first - 1, batch.last
        if position not in (before, noted):
            self._complain(f"the follower was given {noted} and kept {position}")
        self._position = position

    def _knowledge(self, lines: list[Line]) -> Resume:
        """What the next clients start with. Leases and drained items are read from the journal, as
        an operator would; calls without an answer are asked again."""
        called = {line.number: line for line in lines if isinstance(line, Called)}
        for line in lines:
            if isinstance(line, Answered):
                called.pop(line.number, None)
        repeats = [call for call in called.values() if not _has_drain(call)]
        self.figures.repeated += len(repeats)
        state = self.archive.state
        held = [
            Token(h.item.sequence_id, h.item.attempt, h.lease_id, h.fence)
            for h in state.active.values()
        ]
        drained: list[PendingItem] = self.archive.drained_items()
        return Resume(f"{self._seed}.{self._rounds}", tuple(repeats), tuple(held), tuple(drained))

    def _store_position(self) -> None:
        asyncio.run(_store(f"{self.path}-positions", self.archive.last))

    @property
    def _where(self) -> str:
        return f"seed {self._seed}, process {self._rounds}"

    def _complain(self, what: str) -> None:
        self.figures.problems.append(f"{self._where}: {what}")


def _read(process: Process, watch: Watch | None) -> Iterator[Line]:
    """Every whole line it said, also those it said before it knew that it was dead."""
    assert process.stdout is not None
    for number, text in enumerate(process.stdout, start=1):
        if not text.endswith(b"\n"):
            return
        line = _lines.decode(text)
        yield line
        if watch is not None:
            watch(process, number, line)


def _kill_at_line(at: int) -> Watch:
    def watch(process: Process, number: int, line: Line) -> None:
        if number == at:
            process.kill()

    return watch


async def _recovered(path: Path, after: int) -> tuple[str, list[bytes]]:
    """Digest of the state a new process would serve, and the envelopes after `after`."""
    journal = SqliteJournal(str(path), SHARD)
    try:
        await journal.open()
        found = await recover(journal)
        bodies: list[bytes] = []
        while page := await journal.read(
            after + sum(map(_size, bodies)), limits.READ_ENVELOPES_MAX
        ):
            bodies += page
        return digest(found.state), bodies
    finally:
        await journal.close()


class _Span(msgspec.Struct):
    first: int
    last: int


def _size(body: bytes) -> int:
    span = msgspec.json.decode(body, type=_Span)
    return span.last - span.first + 1


async def _position(path: Path) -> int:
    store = SqliteCheckpoints(f"{path}-positions")
    found = await store.read(FOLLOWER, SHARD)
    await store.close()
    return 0 if found is None else found.position


async def _store(path: str, position: int) -> None:
    store = SqliteCheckpoints(path)
    await store.write(Checkpoint("harness", SHARD, position))
    await store.close()


def _has_drain(called: Called) -> bool:
    """A drain has no request id: what it took out is found in the journal instead."""
    return any(isinstance(command, Drain) for command in called.commands)
