"""Snapshots and pruning go on beside the work, and never take what somebody still needs."""

import pytest

from omnirelay.journal.backend import SnapshotRef
from omnirelay.lease.commands import Enqueue
from omnirelay.lease.image import facts
from omnirelay.mesh.keeper import Keeper, KeepOptions, nobody
from omnirelay.mesh.recovery import recover
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model import limits
from omnirelay.model.items import Payload
from omnirelay.stores.memory import MemoryJournal, MemoryMedium
from omnirelay.testing.clock import HandClock
from omnirelay.testing.envelopes import Scribe
from tests.unit.served import Served, Traffic, serving

SHARD = "orders"
DAY_MS = 24 * 3600 * 1000


class WatchedJournal(MemoryJournal):
    """Notes the ends of its snapshots, in order."""

    def __init__(self, medium: MemoryMedium) -> None:
        super().__init__(SHARD, medium)
        self.snapshots: list[SnapshotRef] = []

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        await super().finish_snapshot(ref)
        self.snapshots.append(ref)


@pytest.fixture
def journal() -> WatchedJournal:
    return WatchedJournal(MemoryMedium())


def options(*, every: int = 10, retain_ms: int = 0) -> ShardOptions:
    return ShardOptions(node="node-1", keep=KeepOptions(snapshot_every=every, retain_ms=retain_ms))


async def enqueue(served: Served, times: int) -> None:
    for _ in range(times):
        await served.ask(Enqueue(payload=Payload("table", "x")))


async def settle(served: Served) -> None:
    """Call until the keeper, which takes a step after each turn, has nothing left to do."""
    while (term := served.shard._term) is not None and term.keeper.is_busy:
        await enqueue(served, 1)


# -- snapshots ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_snapshots_are_taken_under_load_and_a_restart_uses_the_last(
    journal: WatchedJournal, seed: int
) -> None:
    clock, kept = HandClock(), options(every=25, retain_ms=DAY_MS)
    async with serving(journal, kept, clock=clock) as served:
        await Traffic(served, clock, seed=seed).run(150)
        left = facts(served.shard.state)
    assert len(journal.snapshots) > 2
    found = await recover(journal)
    assert found.snapshot_sequence == journal.snapshots[-1].sequence
    assert 0 < found.records < found.state.sequence / 2
    assert facts(found.state) == left
    async with serving(journal, kept, clock=clock) as served:
        assert served.shard.state.sequence == found.state.sequence + 1


async def test_every_call_is_answered_while_a_snapshot_is_written(
    journal: WatchedJournal,
) -> None:
    """A snapshot of many parts goes on one part a turn, and the turns go on."""
    async with serving(journal, options(every=500)) as served:
        for _ in range(12):
            work = [Enqueue(payload=Payload("table", "x")) for _ in range(200)]
            assert len(await served.ask(*work)) == 200
        await settle(served)
    assert journal.snapshots[0].parts > 2
    assert (await recover(journal)).state.last_id >= 12 * 200


async def test_a_state_larger_than_the_step_waits_longer_for_its_snapshot(
    journal: WatchedJournal,
) -> None:
    async with serving(journal, options(every=10)) as served:
        for _ in range(10):
            await served.ask(*[Enqueue(payload=Payload("t", "x")) for _ in range(100)])
        await settle(served)
    # Every ten records would be a hundred snapshots of ever more items.
    assert len(journal.snapshots) < 15
    steps = [ref.sequence for ref in journal.snapshots]
    assert steps == sorted(steps)


async def test_the_snapshot_is_of_the_moment_it_began_whatever_is_done_meanwhile(
    journal: WatchedJournal,
) -> None:
    clock = HandClock()
    async with serving(journal, options(every=10_000, retain_ms=DAY_MS), clock=clock) as served:
        traffic = Traffic(served, clock, seed=5)
        await traffic.run(60)
        state = served.shard.state
        keeper = Keeper(journal, KeepOptions(), nobody)
        head = await journal.head()
        keeper.start(state, head.checksum)
        began = facts(state)
        while not journal.snapshots:
            await keeper.step(0)
            await traffic.run(3)
    await truncate(journal.medium, head.last)
    found = await recover(journal)
    assert found.records == 0
    assert facts(found.state) == began


async def truncate(medium: MemoryMedium, last: int) -> None:
    at = medium.lasts.index(last) + 1
    del medium.envelopes[at:], medium.lasts[at:]


# -- pruning ------------------------------------------------------------------------------------


async def test_without_followers_pruning_goes_up_to_the_snapshot(journal: WatchedJournal) -> None:
    async with serving(journal, options()) as served:
        await enqueue(served, 40)
        await settle(served)
        assert await journal.first() == journal.snapshots[-1].sequence + 1


@pytest.mark.parametrize("position", [0, 1, 7, 20])
async def test_pruning_never_passes_the_slowest_checkpoint(
    journal: WatchedJournal, position: int
) -> None:
    async def slowest() -> int | None:
        return position

    async with serving(journal, options(), slowest=slowest) as served:
        await enqueue(served, 60)
        await settle(served)
    assert journal.snapshots[-1].sequence > 20
    assert await journal.first() == position + 1
    assert await journal.read(position, 1)


async def test_pruning_follows_a_checkpoint_that_moves_and_is_asked_every_time(
    journal: WatchedJournal,
) -> None:
    positions = iter(range(1, 1_000))
    asked: list[int] = []

    async def slowest() -> int | None:
        asked.append(next(positions))
        return asked[-1]

    async with serving(journal, options(every=5), slowest=slowest) as served:
        for _ in range(80):
            await enqueue(served, 1)
            assert await journal.first() <= (asked[-1] if asked else 0) + 1
    assert len(asked) > 3
    assert 1 < await journal.first() <= asked[-1] + 1


async def test_pruning_never_passes_the_retention(journal: WatchedJournal) -> None:
    clock = HandClock()
    ends = {0: 0, 1: clock.now_ms}
    async with serving(journal, options(retain_ms=1_000), clock=clock) as served:
        for _ in range(60):
            clock.now_ms += 100
            await enqueue(served, 1)
            head = await journal.head()
            ends[head.last] = head.time
            assert ends[(await journal.first()) - 1] <= clock.now_ms - 1_000
    assert await journal.first() > 20


async def test_what_is_younger_than_the_retention_stays_though_a_snapshot_covers_it(
    journal: WatchedJournal,
) -> None:
    async with serving(journal, options(retain_ms=DAY_MS)) as served:
        await enqueue(served, 60)
        await settle(served)
    assert len(journal.snapshots) > 2
    assert await journal.first() == 1


async def test_a_long_pruning_goes_in_steps_and_to_its_end(journal: WatchedJournal) -> None:
    most = limits.PRUNE_ENVELOPES_MAX
    scribe = Scribe(SHARD)
    for _ in range(2 * most + 50):
        sealed = scribe.seal()
        await journal.append(sealed, expected=sealed.first - 1)
    keeper = Keeper(journal, KeepOptions(retain_ms=0), nobody)
    keeper.start((await recover(journal)).state, scribe.link)
    while not journal.snapshots:
        await keeper.step(scribe.time)
    firsts = []
    while keeper.is_busy:
        await keeper.step(scribe.time)
        firsts.append(await journal.first())
    assert firsts == [most + 1, 2 * most + 1, scribe.last]
    assert (await recover(journal)).state.sequence == scribe.last
