"""Cuts the power under a shard on SQLite and judges what the next boot finds.

A run drives a whole shard on a `FaultVfs`. Before any call that changes the disk an image of what
a cut would leave may be taken, with what had been promised by then; the run goes on. Afterwards
each image is booted: it must open, hold everything whose append had returned, hold nothing that
was not written, and fold to the state that the writer had. One image of each life is lived on: a
new shard goes on working there and loses power again.

The high-water mark is no SQLite file, so its fate is drawn here: it is written without a sync, so
a cut may leave any mark that was written so far, a torn one, or none.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from omnirelay.journal.format import Sealed
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.mesh.recovery import recover
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt
from omnirelay.model.items import dashed
from omnirelay.model.ports import Ids
from omnirelay.stores import sqlite, sqlite_file
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.stores.sqlite_wal import WalConnection
from omnirelay.testing.archive import Archive, digest
from omnirelay.testing.claims import Claim
from omnirelay.testing.faultvfs import CallKind, FaultVfs
from omnirelay.testing.platter import Image
from omnirelay.testing.traffic import Answered, Called, Traffic

SHARD = "power"
LOG_BYTES = 1 << 15
"""A short log made beforehand: the run fills it, goes beyond it and comes back to its start."""
DATABASE = "leases.db"
MARK = f"{DATABASE}-{SHARD}.mark"
_LIVES = 3
_CUT_SHARE = 0.06


@dataclass
class PowerFigures:
    cuts: int = 0
    acknowledged_lost: int = 0
    corrupt_served: int = 0
    refused: int = 0
    """Images that would not open. The operator is told and nothing is served, but a disk that
    keeps its promises gives no reason for one either."""
    lives: int = 0
    appends: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: "PowerFigures") -> None:
        for name in ("cuts", "acknowledged_lost", "corrupt_served", "refused", "lives", "appends"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.problems += other.problems


def power_cut_rounds(seed: int, rounds: int) -> PowerFigures:
    """Each round is one run of three lives, about 40 cuts in all."""
    total = PowerFigures()
    for number in range(rounds):
        total.add(PowerRun(seed * 1_000_003 + number).run())
    return total


@dataclass(frozen=True)
class Cut:
    """An image, and what had been promised when it was taken."""

    image: Image
    mark: bytes
    appended: int
    """Last sequence whose append had returned."""
    claims: tuple[Claim, ...]
    where: str


class SeededIds(Ids):
    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def lease_id(self) -> str:
        return dashed(self._chance.randbytes(16).hex())


class TickingClock:
    """Moves on by a millisecond whenever somebody looks, so that a seed is one run on any machine,
    and delays and leases still pass."""

    def __init__(self) -> None:
        self._now = 1_700_000_000_000

    def monotonic_ms(self) -> int:
        self._now += 1
        return self._now

    def wall_ms(self) -> int:
        return self.monotonic_ms()


class PowerRun:
    """One seed. `synchronous` is there so that the harness can be shown to see a loss."""

    def __init__(self, seed: int, *, synchronous: str = "FULL") -> None:
        self.seed = seed
        self._chance = Random(seed)
        self._synchronous = synchronous
        self._figures = PowerFigures()

    def run(self) -> PowerFigures:
        cut: Cut | None = Cut({}, b"", 0, (), "an empty disk")
        archive = Archive(SHARD)
        with tempfile.TemporaryDirectory() as folder:
            for number in range(_LIVES):
                if cut is None:
                    break
                with tuned(self._synchronous, self._chance.choice((8, 30, 4000))):
                    life = Life(Path(folder, str(number)), cut, archive, self._chance)
                    asyncio.run(life.live(f"{self.seed}.{number}"))
                self._figures.lives += 1
                self._figures.appends += len(life.digests)
                cut, archive = self._judge_all(life, Path(folder))
        return self._figures

    def _judge_all(self, life: "Life", folder: Path) -> tuple[Cut | None, Archive]:
        """Returns the cut to live on with, and what was left of the journal there."""
        survivors: list[tuple[Cut, int]] = []
        for number, cut in enumerate(life.cuts):
            self._figures.cuts += 1
            with tuned(self._synchronous, 4000):
                last = asyncio.run(self._judge(life, cut, folder / f"{life.name}-{number}"))
            if last is not None:
                survivors.append((cut, last))
        if not survivors:
            return None, life.archive
        chosen, last = self._chance.choice(survivors)
        return chosen, life.archive.prefix(last)

    async def _judge(self, life: "Life", cut: Cut, folder: Path) -> int | None:
        """How far the journal goes after the cut; None if the boot found fault with it."""
        figures = self._figures
        try:
            last, state, bodies = await boot(folder, cut)
        except Corrupt as error:
            figures.refused += 1
            figures.problems.append(f"seed {self.seed}, {cut.where}: refused: {error.message}")
            return None
        lost = life.archive.lacks(cut.claims, through=last)
        if last < cut.appended or lost:
            figures.acknowledged_lost += max(1, len(lost))
            why = f"ends at {last}, {cut.appended} was appended, lost {lost}"
            figures.problems.append(f"seed {self.seed}, {cut.where}: {why}")
            return None
        written = set(life.archive.bodies.values())
        if state != life.digests.get(last) or not written.issuperset(bodies):
            figures.corrupt_served += 1
            figures.problems.append(f"seed {self.seed}, {cut.where}: not what was written")
            return None
        return last


async def boot(folder: Path, cut: Cut) -> tuple[int, str, list[bytes]]:
    """What a new process finds on the image. Raises Corrupt if it says so itself."""
    vfs = mount(folder, cut)
    journal = SqliteJournal(str(folder / DATABASE), SHARD, vfs=vfs.name, log_bytes=LOG_BYTES)
    try:
        await journal.open()
        found = await recover(journal)
        bodies = await journal.read(await journal.first() - 1, limits.READ_ENVELOPES_MAX)
        return found.chain.last, digest(found.state), bodies
    finally:
        await journal.close()
        vfs.unregister()


def mount(folder: Path, cut: Cut, seed: int = 0) -> FaultVfs:
    folder.mkdir()
    if cut.mark:
        (folder / MARK).write_bytes(cut.mark)
    return FaultVfs(cut.image, seed=seed)


@contextmanager
def tuned(synchronous: str, checkpoint_pages: int) -> Iterator[None]:
    """Journals opened inside get these pragmas after their own: a small WAL, so that short runs
    checkpoint, and a level of safety that the harness must catch."""
    genuine = sqlite_file.connect

    def connect(path: str, *, read_only: bool = False, **options: Any) -> WalConnection:
        connection = genuine(path, read_only=read_only, **options)
        connection.checkpoint_pages = checkpoint_pages
        if not read_only:
            connection.execute(f"PRAGMA synchronous={synchronous}")
        return connection

    with mock.patch.object(sqlite, "connect", connect):
        yield


class WatchedJournal(SqliteJournal):
    """Notes every envelope before it is appended, and which appends have returned."""

    def __init__(self, path: str, vfs: str, life: "Life") -> None:
        super().__init__(path, SHARD, vfs=vfs)
        self._life = life

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        self._life.begin(sealed)
        await super().append(sealed, expected=expected)
        self._life.appended = sealed.last


class Life:
    """From one boot to the clean stop that no cut saw."""

    def __init__(self, folder: Path, cut: Cut, archive: Archive, chance: Random) -> None:
        self.name = folder.name
        self.archive = archive
        self.appended = archive.last
        self.digests = {archive.last: digest(archive.state)}
        self.cuts: list[Cut] = []
        self._claims = list(cut.claims)
        self._chance = chance
        self._vfs = mount(folder, cut)
        self._path = folder / DATABASE
        self._marks = [cut.mark]

    def begin(self, sealed: Sealed) -> None:
        self.archive.add(sealed.body)
        self.digests[sealed.last] = digest(self.archive.state)

    async def live(self, name: str) -> None:
        journal = WatchedJournal(str(self._path), self._vfs.name, self)
        keep = KeepOptions(snapshot_every=self._chance.choice((15, 40)), retain_ms=0)
        options = ShardOptions(node="power", keep=keep, require="process_kill")
        ids = SeededIds(Random(name))
        shard = Shard(journal, options, clock=TickingClock(), ids=ids)
        traffic = Traffic(shard.offer, self._note, seed=self._chance.getrandbits(32), name=name)
        self._vfs.watch = self._perhaps_cut
        running = asyncio.create_task(shard.run())
        await traffic.run(clients=3, calls=12)
        shard.stop()
        await running
        self._vfs.unregister()
        assert digest(shard.state) == digest(self.archive.state), "the writer is not its journal"

    def _note(self, said: Called | Answered) -> None:
        if isinstance(said, Answered):
            self._claims += said.claims

    def _perhaps_cut(self, call: CallKind, name: str) -> None:
        mark = self._path.with_name(MARK)
        written = mark.read_bytes() if mark.exists() else b""
        if written != self._marks[-1]:
            self._marks.append(written)
        if self._chance.random() < _CUT_SHARE:
            where = f"life {self.name}, {call} {self._vfs.calls[call] + 1} of {name}"
            image, claims = self._vfs.cut(self._chance), tuple(self._claims)
            self.cuts.append(Cut(image, self._mark_after_cut(), self.appended, claims, where))

    def _mark_after_cut(self) -> bytes:
        latest = self._marks[-1]
        match self._chance.randrange(4):
            case 0:
                return self._chance.choice(self._marks)
            case 1 if latest:
                torn = self._chance.randrange(len(latest))
                return latest[:torn] + bytes(len(latest) - torn)
            case _:
                return latest
