"""One shard, one disk fault at a time: what it says, what it keeps, how it comes back."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.lease.answers import Accepted, ItemView, Stats
from omnirelay.lease.commands import Command, Enqueue, Inspect, ReadStats
from omnirelay.mesh.calls import Call, Outcome
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.errors import DiskFull, OmniRelayError, OutcomeUnknown, Unavailable
from omnirelay.model.items import Payload
from omnirelay.model.ports import RandomIds, SystemClock
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from omnirelay.testing.envelopes import Scribe
from omnirelay.testing.faultvfs import Fault, FaultVfs, noting_swallowed
from omnirelay.testing.platter import Image
from omnirelay.testing.powercuts import tuned


@pytest.fixture
async def disk() -> AsyncIterator[FaultVfs]:
    vfs = FaultVfs()
    with noting_swallowed(vfs):
        yield vfs
    vfs.unregister()


class Bench:
    """A shard with one patient caller."""

    def __init__(self, folder: Path, disk: FaultVfs) -> None:
        self.journal = SqliteJournal(
            str(folder / "leases.db"), "main", vfs=disk.name, log_bytes=1 << 15
        )
        options = ShardOptions(node="n", retry_min_s=0.01, retry_max_s=0.05)
        self.shard = Shard(self.journal, options, clock=SystemClock(), ids=RandomIds())

    async def ask(self, command: Command) -> Outcome:
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def reply(outcomes: Sequence[Outcome]) -> None:
            answer.set_result(outcomes[0])

        self.shard.offer(Call((command,), reply))
        return await answer

    async def enqueue(self, name: str) -> Outcome:
        return await self.ask(Enqueue(payload=Payload("table", name, body=bytes(200))))

    async def enqueue_until_accepted(self, name: str) -> Accepted:
        while True:
            outcome = await self.enqueue(name)
            if isinstance(outcome, Accepted):
                return outcome
            assert isinstance(outcome, OmniRelayError)
            await asyncio.sleep(0.001)

    async def stats_when_served(self) -> Stats:
        while True:
            outcome = await self.ask(ReadStats())
            if isinstance(outcome, Stats):
                return outcome
            await asyncio.sleep(0.001)


def ageless(stats: Stats) -> Stats:
    return msgspec.structs.replace(stats, oldest_pending_age_ms=None)


@pytest.fixture
async def bench(tmp_path: Path, disk: FaultVfs) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path, disk)
    running = asyncio.create_task(bench.shard.run())
    await bench.shard.ready.wait()
    yield bench
    disk.heal()
    bench.shard.stop()
    await running


async def test_a_full_disk_refuses_writers_by_name_and_takes_them_again_once_there_is_room(
    bench: Bench, disk: FaultVfs
) -> None:
    await bench.enqueue_until_accepted("a")
    disk.is_full = True
    assert isinstance(await bench.enqueue("b"), DiskFull)
    for _ in range(3):
        await bench.stats_when_served()
        assert isinstance(await bench.enqueue("c"), DiskFull)
    disk.heal()
    accepted = await bench.enqueue_until_accepted("d")
    assert accepted.sequence_id == 2, "what was refused left a trace"


async def test_readers_of_a_full_disk_are_told_only_what_the_journal_holds(
    bench: Bench, disk: FaultVfs
) -> None:
    await bench.enqueue_until_accepted("a")
    before = ageless(await bench.stats_when_served())
    disk.is_full = True
    assert isinstance(await bench.enqueue("b"), DiskFull)
    for _ in range(5):
        assert ageless(await bench.stats_when_served()) == before
        assert not isinstance(await bench.ask(Inspect(sequence_id=2)), ItemView)
        assert isinstance(await bench.enqueue("c"), DiskFull)


@pytest.mark.parametrize("fault", [Fault("write", 1, lasting=True), Fault("sync", 1, lasting=True)])
async def test_a_reader_never_sees_what_an_append_failed_to_write(
    bench: Bench, disk: FaultVfs, fault: Fault
) -> None:
    await bench.enqueue_until_accepted("a")
    disk.fault = fault
    assert isinstance(await bench.enqueue("b"), OutcomeUnknown)
    for _ in range(20):
        assert not isinstance(await bench.ask(Inspect(sequence_id=2)), ItemView)
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("at", range(1, 4))
async def test_a_journal_that_did_not_enter_wal_mode_is_not_served(
    tmp_path: Path, disk: FaultVfs, at: int
) -> None:
    """SQLite answers a pragma it could not obey with the old mode, not with an error."""
    disk.fault = Fault("sync", at)
    journal = SqliteJournal(str(tmp_path / "leases.db"), "main", vfs=disk.name, log_bytes=1 << 15)
    try:
        await journal.open()
    except Unavailable:
        await journal.open()
    assert (await journal.durability()).survives_power_loss
    mode = journal._db.execute("PRAGMA journal_mode").fetchone()
    assert mode == ("wal",)
    await journal.close()


async def test_a_failed_sync_is_followed_by_a_new_connection_that_writes_the_log_again(
    tmp_path: Path, disk: FaultVfs
) -> None:
    """The pages of a failed sync stay readable and are never written: a power cut after the next
    good sync would take what was acknowledged by it."""
    journal = SqliteJournal(str(tmp_path / "leases.db"), "main", vfs=disk.name, log_bytes=1 << 15)
    await journal.open()
    scribe = Scribe("main")
    lost, kept = scribe.seal(2), scribe.seal(1)
    disk.fault = Fault("sync", disk.calls["sync"] + 1)
    with pytest.raises(OutcomeUnknown):
        await journal.append(lost, expected=0)
    await journal.open()
    assert (await journal.head()).last == lost.last, "the kernel still shows it"
    await journal.append(kept, expected=lost.last)
    after_cut = [await last_after(disk.cut(Random(seed)), tmp_path, seed) for seed in range(10)]
    await journal.close()
    assert after_cut == [kept.last] * 10


async def test_a_log_of_several_megabytes_is_settled_on_a_real_disk(tmp_path: Path) -> None:
    journal = SqliteJournal(str(tmp_path / "leases.db"), "main")
    await journal.open()
    scribe = Scribe("main")
    for last in range(6):
        await journal.append(scribe.seal(1, text="x" * 400_000), expected=last)
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(tmp_path / f"leases.db{suffix}", crashed)
    await journal.close()
    assert (crashed / "leases.db-wal").stat().st_size > 2 << 20
    reopened = SqliteJournal(str(crashed / "leases.db"), "main")
    await reopened.open()
    assert (await reopened.head()).last == scribe.last
    await reopened.close()


async def test_a_failed_checkpoint_ends_the_connection_before_its_next_append(
    tmp_path: Path, disk: FaultVfs
) -> None:
    with tuned("FULL", 1):
        journal = SqliteJournal(
            str(tmp_path / "leases.db"), "main", vfs=disk.name, log_bytes=1 << 15
        )
        await journal.open()
    scribe = Scribe("main")
    first, second = scribe.seal(1), scribe.seal(1)
    disk.fault = Fault("sync", disk.calls["sync"] + 3)  # the commit's own, the log's, the file's
    await journal.append(first, expected=0)
    assert disk.struck == 1, "the commit stands, only its checkpoint failed"
    with pytest.raises(Unavailable):
        await journal.append(second, expected=first.last)
    assert disk.retried_syncs == []
    await journal.open()
    await journal.append(second, expected=first.last)
    await journal.close()


async def test_a_position_that_failed_to_be_stored_is_stored_by_a_new_connection(
    tmp_path: Path, disk: FaultVfs
) -> None:
    store = SqliteCheckpoints(str(tmp_path / "positions"), vfs=disk.name)
    await store.write(Checkpoint("audit", "main", 1))
    disk.fault = Fault("sync", disk.calls["sync"] + 1)
    with pytest.raises(OutcomeUnknown):
        await store.write(Checkpoint("audit", "main", 2))
    await store.write(Checkpoint("audit", "main", 3))
    assert disk.retried_syncs == []
    images = [disk.cut(Random(seed)) for seed in range(10)]
    await store.close()
    for number, image in enumerate(images):
        folder = tmp_path / str(number)
        folder.mkdir()
        vfs = FaultVfs(image)
        found = SqliteCheckpoints(str(folder / "positions"), vfs=vfs.name)
        assert await found.slowest("main") == 3
        await found.close()
        vfs.unregister()


async def last_after(image: Image, folder: Path, number: int) -> int:
    (folder / str(number)).mkdir()
    vfs = FaultVfs(image)
    journal = SqliteJournal(
        str(folder / str(number) / "leases.db"), "main", vfs=vfs.name, log_bytes=1 << 15
    )
    await journal.open()
    head = await journal.head()
    await journal.close()
    vfs.unregister()
    return head.last
