"""A mirror has the same envelopes under the same numbers, waits for nobody and stops alone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from omnirelay.journal.backend import SnapshotRef
from omnirelay.journal.bell import Bell
from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.journal.copying import PRIMARY
from omnirelay.journal.events import events_of
from omnirelay.journal.format import Sealed, checksum
from omnirelay.journal.mirror import Mirror, MirrorOptions, Place
from omnirelay.model.errors import SequenceTaken, Unavailable
from omnirelay.stores.memory import MemoryJournal, MemoryMedium
from omnirelay.stores.memory_positions import MemoryCheckpoints
from omnirelay.testing.clock import HandClock
from omnirelay.testing.envelopes import Scribe, scan

SHARD = "orders"
Rival = tuple[int, str]
NAME = "mirror:there"
OPTIONS = MirrorOptions(beat_ms=5, keep_ms=5, hold_ms=60_000, retain_ms=0)


class MovingClock(HandClock):
    """Every look at it takes a millisecond, so that what is due comes."""

    def monotonic_ms(self) -> int:
        self.now_ms += 1
        return self.now_ms


class Door(MemoryJournal):
    """A target that may be out of reach."""

    is_shut = False

    async def open(self) -> None:
        if self.is_shut:
            raise Unavailable("the mirror's server is down")

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        await self.open()
        await super().append(sealed, expected=expected)


class Pair:
    def __init__(self) -> None:
        self.scribe = Scribe(SHARD)
        self.journal = MemoryJournal(SHARD, MemoryMedium())
        self.target = Door(SHARD, MemoryMedium())
        self.positions, self.there = MemoryCheckpoints(), MemoryCheckpoints()
        self.bell = self.journal.medium.bell
        self.clock = MovingClock()
        self.is_ours = True
        self.rivals: list[Rival] = []
        self.mirror = self.another()

    def another(self) -> Mirror:
        return Mirror(
            "there",
            self.journal.reader,
            self.positions,
            Place(self.target, self.there),
            bell=Bell(),
            clock=self.clock,
            is_ours=lambda: self.is_ours,
            on_rival=lambda one: self.rivals.append((one.epoch, one.node)),
            options=OPTIONS,
        )

    async def write(self, times: int = 1) -> None:
        for _ in range(times):
            sealed = self.scribe.seal(2)
            await self.journal.append(sealed, expected=sealed.first - 1)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_so():  # noqa: ASYNC110 - a mirror tells nobody when it is level
                await asyncio.sleep(0.001)

    async def until_level(self) -> None:
        head = await self.journal.head()
        await self.until(lambda: self.target.medium.lasts[-1:] == [head.last])
        assert await scan(self.target, SHARD, after=await self.target.first() - 1) == await scan(
            self.journal, SHARD, after=await self.target.first() - 1
        )

    def position(self) -> Checkpoint | None:
        return self.positions._stored.get((NAME, SHARD))


@asynccontextmanager
async def running(mirror: Mirror) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(mirror.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def pair() -> Pair:
    return Pair()


async def test_a_mirror_gets_what_was_and_what_comes_under_the_same_numbers(pair: Pair) -> None:
    await pair.write(3)
    async with running(pair.mirror):
        await pair.until_level()
        await pair.write(2)
        await pair.until_level()
        status = await pair.mirror.status()
        assert (status.name, status.position, status.sequence_lag) == (NAME, 10, 0)
        events = [
            event for envelope in await scan(pair.target, SHARD) for event in events_of(envelope)
        ]
    assert {event.metadata["shard.id"] for event in events} == {SHARD}
    assert [event.sequence_number for event in events] == list(range(1, 11))


async def test_a_mirror_that_is_down_holds_up_nothing_and_catches_up_by_itself(pair: Pair) -> None:
    async with running(pair.mirror):
        await pair.write(1)
        await pair.until_level()
        pair.target.is_shut = True
        await pair.write(4)
        await pair.until(lambda: pair.mirror._trouble.failures > 0)
        status = await pair.mirror.status()
        assert (status.position, status.sequence_lag) == (2, 8)
        assert status.lag_ms > 0
        assert "the mirror's server is down" in (status.last_error or "")
        assert (await pair.positions.slowest(SHARD)) == 2, "pruning waits for it"
        pair.target.is_shut = False
        await pair.until_level()
        await pair.until(lambda: pair.mirror._trouble.last_error is None)


async def test_a_mirror_goes_on_where_it_was_in_an_earlier_process(pair: Pair) -> None:
    await pair.write(3)
    async with running(pair.mirror):
        await pair.until_level()
    await pair.write(3)
    async with running(pair.another()):
        await pair.until_level()


async def test_two_writers_of_one_mirror_do_it_no_harm(pair: Pair) -> None:
    async with running(pair.mirror), running(pair.another()):
        for _ in range(30):
            await pair.write()
            await asyncio.sleep(0)
        await pair.until_level()
    assert pair.mirror.stopped is None


async def test_only_the_journal_s_writer_mirrors_it(pair: Pair) -> None:
    pair.is_ours = False
    await pair.write(3)
    async with running(pair.mirror):
        await asyncio.sleep(0.05)
        assert pair.target.medium.lasts == []
        pair.is_ours = True
        await pair.until_level()


async def test_a_newer_epoch_in_the_mirror_stops_it_and_nothing_else(pair: Pair) -> None:
    await pair.write(3)
    async with running(pair.mirror) as task:
        await pair.until_level()
        promoted = pair.scribe.rival(epoch=2)
        theirs = promoted.seal(1)
        await pair.target.append(theirs, expected=theirs.first - 1)
        await asyncio.wait_for(task, 10)
        await pair.write(2)
    assert pair.mirror.stopped is not None
    status = await pair.mirror.status()
    assert "stopped: shard orders: another journal is there" in (status.last_error or "")
    assert "epoch 2" in (status.last_error or "")
    assert pair.target.medium.lasts[-1] == theirs.last, "nothing was written over it"
    assert pair.rivals == [(2, "node-2")]
    assert (await _stopped(pair)).rivals[1:] == pair.rivals[:1], "the next owner learns it too"


async def test_a_region_that_went_on_alone_learns_that_its_mirror_was_promoted(pair: Pair) -> None:
    """Both have begun an epoch of the same number since, as a restart does."""
    await pair.write(3)
    async with running(pair.mirror):
        await pair.until_level()
        await pair.until(lambda: (at := pair.position()) is not None and at.position == 6)
    promoted, own = pair.scribe.rival(epoch=2), pair.scribe.rival(epoch=2)
    for journal, scribe, count in ((pair.target, promoted, 1), (pair.journal, own, 4)):
        sealed = scribe.seal(count)
        await journal.append(sealed, expected=sealed.first - 1)
    assert (await _stopped(pair)).rivals == [(2, "node-2")]


async def test_a_target_that_was_never_this_mirrors_takes_no_queue_away(pair: Pair) -> None:
    await pair.write(3)
    async with running(pair.mirror):
        await pair.until_level()
    other = Scribe(SHARD, epoch=9, time=77)
    pair.target.medium = MemoryMedium()
    foreign = other.seal(20)
    await pair.target.append(foreign, expected=0)
    assert (await _stopped(pair)).rivals == []
    assert pair.position() is None, "pruning does not wait for it"


async def _stopped(pair: Pair) -> Pair:
    """A mirror of the next process has stopped by itself."""
    async with running(pair.another()) as task:
        await asyncio.wait_for(task, 10)
    return pair


async def test_a_target_with_another_journal_is_refused(pair: Pair) -> None:
    other = Scribe(SHARD, time=77)
    foreign = other.seal(2)
    await pair.target.append(foreign, expected=0)
    await pair.write(3)
    async with running(pair.mirror) as task:
        await asyncio.wait_for(task, 10)
    assert pair.target.medium.envelopes == [foreign]
    assert pair.mirror.stopped is not None


async def test_pruning_waits_for_a_mirror_for_so_long_and_no_longer(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.target.is_shut = True
    await pair.write(3)
    async with running(pair.mirror):
        await pair.until(lambda: pair.position() is not None)
        assert await pair.positions.slowest(SHARD) == 0
        pair.clock.now_ms += OPTIONS.hold_ms + 1
        await pair.until(lambda: pair.position() is None)
        assert "pruning waits for it no more" in caplog.text
        assert "pruning waits for it no more" in ((await pair.mirror.status()).last_error or "")
        pair.target.is_shut = False
        await pair.until_level()
        await pair.until(lambda: pair.position() is not None)


async def test_an_empty_mirror_of_a_pruned_journal_begins_there_with_its_snapshot(
    pair: Pair,
) -> None:
    await pair.write(4)
    link = pair.journal.medium.envelopes[1].checksum
    await pair.journal.write_part(4, 0, b"part")
    await pair.journal.finish_snapshot(SnapshotRef(4, 1, link, 1, 1, checksum(b"part")))
    assert await pair.journal.prune(4, before_ms=1 << 50, limit=9) == 2
    async with running(pair.mirror):
        await pair.until_level()
        await pair.until(lambda: pair.target.medium.snapshot is not None)
        assert await pair.target.first() == 5
        assert await pair.target.read_part(4, 0) == b"part"


async def test_a_mirror_tells_its_target_how_far_the_journal_is(pair: Pair) -> None:
    await pair.write(3)
    async with running(pair.mirror):
        await pair.until_level()
        await pair.until(lambda: (PRIMARY, SHARD) in pair.there._stored)
        known = await pair.there.read(PRIMARY, SHARD)
    assert known is not None
    assert (known.position, known.peers["time"]) == (6, pair.scribe.time)


async def test_what_was_pruned_before_it_arrived_is_said_and_an_emptied_mirror_goes_on(
    pair: Pair,
) -> None:
    await pair.write(1)
    async with running(pair.mirror):
        await pair.until_level()
    await pair.write(3)
    await pair.journal.prune(6, before_ms=1 << 50, limit=9)
    async with running(pair.another()) as task:
        await pair.until(lambda: not task.done())
        await asyncio.sleep(0.1)
        with pytest.raises(SequenceTaken):
            await pair.target.begin(pair.journal.medium.envelopes[0])
        pair.target.medium.envelopes.clear()
        pair.target.medium.lasts.clear()
        await pair.until_level()
    assert await pair.target.first() == 7
