"""Runs a shard on a disk that fails at a chosen call, and judges it by what it said and kept.

The same short traffic runs once for every fault. The shard may refuse, and say that it does not
know; it may never say yes to what a power cut at that moment would take away, and it must serve
again by itself once the disk does.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from omnirelay.journal.format import Sealed
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.errors import Corrupt, OmniRelayError
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.testing.archive import Archive, digest
from omnirelay.testing.faultvfs import CallKind, Fault, FaultVfs, noting_swallowed
from omnirelay.testing.powercuts import (
    DATABASE,
    MARK,
    SHARD,
    Cut,
    SeededIds,
    TickingClock,
    boot,
    tuned,
)
from omnirelay.testing.traffic import Answered, Called, Traffic

if TYPE_CHECKING:
    from omnirelay.testing.claims import Claim

_REFUSALS_TILL_HEALED = 6
_CHECKPOINT_PAGES = 12
"""So few that the short run checkpoints, and a fault can be aimed at that too."""
_KEEP = KeepOptions(snapshot_every=12)


@dataclass
class FaultOutcome:
    struck: int = 0
    calls: Counter[CallKind] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    epochs: int = 0
    problems: list[str] = field(default_factory=list)


def run_with_fault(fault: Fault | None, *, seed: int = 1) -> FaultOutcome:
    """A lasting fault is healed once clients have been refused a few times."""
    with tempfile.TemporaryDirectory() as folder, tuned("FULL", _CHECKPOINT_PAGES):
        run = _FaultRun(Path(folder), fault, seed)
        with noting_swallowed(run.vfs):
            asyncio.run(run.drive())
        for number, cut in enumerate(run.cuts):
            asyncio.run(run.judge(cut, Path(folder, f"boot-{number}")))
    return run.outcome


def each_fault(calls: Mapping[CallKind, int]) -> Iterator[Fault]:
    """Every call of a run, as counted by one without faults, with every error it can meet."""
    for at in range(1, calls["write"] + 1):
        yield Fault("write", at, "eio")
        yield Fault("write", at, "enospc")
    others: tuple[CallKind, ...] = ("sync", "truncate", "open", "delete")
    for kind in others:
        for at in range(1, calls[kind] + 1):
            yield Fault(kind, at, "eio")


class _NotingJournal(SqliteJournal):
    def __init__(self, path: str, vfs: str) -> None:
        super().__init__(path, SHARD, vfs=vfs)
        self.attempted: set[bytes] = set()
        self.appended = 0

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        self.attempted.add(sealed.body)
        await super().append(sealed, expected=expected)
        self.appended = sealed.last


class _FaultRun:
    def __init__(self, folder: Path, fault: Fault | None, seed: int) -> None:
        self.outcome = FaultOutcome()
        self.cuts: list[Cut] = []
        self._chance = Random(seed)
        self.vfs = FaultVfs(seed=seed)
        self.vfs.fault = fault
        self._path = folder / DATABASE
        self._journal = _NotingJournal(str(self._path), self.vfs.name)
        options = ShardOptions(
            node="faulty", keep=_KEEP, retry_min_s=0.001, retry_max_s=0.01, require="power_loss"
        )
        ids = SeededIds(Random(seed))
        self._shard = Shard(self._journal, options, clock=TickingClock(), ids=ids)
        self._traffic = Traffic(self._shard.offer, self._note, seed=seed, name="f")
        self._claims: list[Claim] = []

    async def drive(self) -> None:
        running = asyncio.create_task(self._shard.run())
        driving = asyncio.create_task(self._traffic.run(clients=2, calls=7))
        await asyncio.wait([running, driving], return_when=asyncio.FIRST_COMPLETED)
        self._take_cut("after the last answer")
        self._shard.stop()
        try:
            await running
            await driving
            self._take_cut("after a clean stop")
        except OmniRelayError as error:
            driving.cancel()
            self.outcome.problems.append(f"the shard gave up: {error!r}")
        finally:
            self.vfs.unregister()
        self.outcome.struck = self.vfs.struck
        self.outcome.calls = self.vfs.calls
        again = [f"{name} was synced again after a failed sync" for name in self.vfs.retried_syncs]
        self.outcome.problems += again

    def _note(self, said: Called | Answered) -> None:
        if isinstance(said, Called):
            return
        self._claims += said.claims
        self.outcome.refusals.update(said.refusals)
        if self.outcome.refusals.total() >= _REFUSALS_TILL_HEALED:
            self.vfs.heal()
        if said.claims and self._chance.random() < 0.2:
            self._take_cut(f"after answer {said.number}")

    def _take_cut(self, where: str) -> None:
        mark = self._path.with_name(MARK)
        written = mark.read_bytes() if mark.exists() else b""
        image = self.vfs.cut(self._chance)
        cut = Cut(image, written, self._journal.appended, tuple(self._claims), where)
        self.cuts.append(cut)

    async def judge(self, cut: Cut, folder: Path) -> None:
        problems = self.outcome.problems
        try:
            last, state, bodies = await boot(folder, cut)
        except Corrupt as error:
            problems.append(f"{cut.where}: refused: {error.message}")
            return
        archive = Archive(SHARD)
        for body in bodies:
            archive.add(body)
        if last < cut.appended:
            problems.append(f"{cut.where}: ends at {last}, {cut.appended} was appended")
        problems += [f"{cut.where}: {claim} is lost" for claim in archive.lacks(cut.claims)]
        problems += [f"{cut.where}: {breach}" for breach in archive.breaches()]
        if digest(archive.state) != state or not self._journal.attempted.issuperset(bodies):
            problems.append(f"{cut.where}: not what was written")
        self.outcome.epochs = archive.epochs
