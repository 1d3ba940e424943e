"""What simulated seeds found in the product, each as the shortest story that shows it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import pytest

from omnirelay.journal.backend import SnapshotRef
from omnirelay.journal.bell import Bell
from omnirelay.journal.checkpoint import CheckpointingSink
from omnirelay.journal.events import Event
from omnirelay.journal.follower import Follower
from omnirelay.lease.answers import Accepted, Stats
from omnirelay.lease.commands import Command, Complete, Enqueue, Inspect, ReadStats
from omnirelay.lease.image import facts
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.calls import Call, LeaseCall, Leases, Outcome, Reply
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.mesh.recovery import recover
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.errors import DiskFull, OmniRelayError, OutcomeUnknown, Recovering
from omnirelay.model.items import Payload
from omnirelay.stores.memory_positions import MemoryCheckpoints
from omnirelay.testing.disk import LOST, SimDisk, SimJournal
from omnirelay.testing.loop import run_simulated, sim_loop
from omnirelay.testing.nodes import SeededIds, WatchedClock

Story = Callable[["Stage"], Awaitable[None]]


class Stage:
    """One shard on one simulated disk, and somebody who asks it."""

    def __init__(self, queue: QueueOptions, keep: KeepOptions) -> None:
        self.disk = SimDisk(Random(1))
        self.checkpoints = MemoryCheckpoints()
        self.clock = WatchedClock(sim_loop())
        options = ShardOptions(node="n", queue=queue, keep=keep)
        self.shard = Shard(
            SimJournal("s", self.disk),
            options,
            clock=self.clock,
            ids=SeededIds(Random(1)),
            slowest=self._slowest,
        )

    async def _slowest(self) -> int | None:
        return await self.checkpoints.slowest("s")

    def offer(self, *commands: Command) -> "asyncio.Future[Sequence[Outcome]]":
        return self._offer(lambda reply: Call(commands, reply))

    def lease(self, **wish: Any) -> "asyncio.Future[Sequence[Outcome]]":
        return self._offer(lambda reply: LeaseCall(reply, **wish))

    def _offer(
        self, make: Callable[[Reply], Call | LeaseCall]
    ) -> "asyncio.Future[Sequence[Outcome]]":
        answer: asyncio.Future[Sequence[Outcome]] = sim_loop().create_future()
        self.shard.offer(make(answer.set_result))
        return answer

    def fill_disk(self, seconds: float) -> None:
        self.disk.full_until = sim_loop().time() + seconds


def play(
    story: Story, *, queue: QueueOptions | None = None, keep: KeepOptions | None = None
) -> None:
    async def main() -> None:
        stage = Stage(queue or QueueOptions(), keep or KeepOptions())
        serving = sim_loop().create_task(stage.shard.run())
        await stage.shard.ready.wait()
        async with asyncio.timeout(60):
            await story(stage)
        stage.shard.stop()
        await serving

    run_simulated(main, seed=1)


def works(count: int) -> list[Enqueue]:
    return [Enqueue(payload=Payload("t", f"r{number}")) for number in range(count)]


def test_a_batch_that_waited_for_room_keeps_the_answers_that_are_durable() -> None:
    async def story(stage: Stage) -> None:
        asked = stage.offer(*works(4))
        await asyncio.sleep(0.1)  # two were accepted, two wait behind the high watermark
        stage.fill_disk(1.0)
        stage.lease()
        first, second, third, fourth = await asked
        assert isinstance(first, Accepted)
        assert isinstance(second, Accepted)
        assert isinstance(third, DiskFull)
        assert isinstance(fourth, DiskFull)

    play(story, queue=QueueOptions(pending_high=2, pending_low=0, enqueue_wait_ms=5_000))


async def leased(stage: Stage, **wish: Any) -> Any:
    (reply,) = await stage.lease(**wish)
    assert isinstance(reply, Leases)
    return reply.leases


def test_a_batch_that_waits_is_told_what_is_unknown_of_the_part_that_did_not() -> None:
    async def story(stage: Stage) -> None:
        stage.disk.mishaps = {LOST: 1.0}
        asked = await stage.offer(*works(4))
        assert [type(outcome) for outcome in asked] == [
            *[OutcomeUnknown] * 2,
            *[Recovering] * 2,
        ]
        stage.disk.mishaps = {}

    play(story, queue=QueueOptions(pending_high=2, pending_low=0, enqueue_wait_ms=5_000))


def test_nobody_reads_what_an_append_failed_to_write() -> None:
    async def story(stage: Stage) -> None:
        (before,) = await stage.offer(ReadStats())
        stage.fill_disk(3.0)
        failing, reading = stage.offer(*works(1)), stage.offer(ReadStats())
        await failing
        answers = [*await reading]
        while sim_loop().time() < 2.0:
            answers += await stage.offer(ReadStats())
            await asyncio.sleep(0.02)
        told = [answer for answer in answers if isinstance(answer, Stats)]
        assert told
        assert all(stats == before for stats in told)

    play(story)


def test_a_repeated_batch_lease_gets_what_is_left_of_its_leases_and_no_more() -> None:
    async def story(stage: Stage) -> None:
        await stage.offer(*works(4))
        first, second = await leased(stage, max_items=2, request_id="q")
        await stage.offer(Complete(token=first.token))
        assert await leased(stage, max_items=2, request_id="q") == (second,)

    play(story)


def test_pruning_waits_for_a_follower_that_has_applied_nothing_yet() -> None:
    async def story(stage: Stage) -> None:
        seen: list[int] = []

        async def apply(events: Sequence[Event]) -> None:
            if sim_loop().time() < 2.0:
                raise OSError("the sink is not there yet")
            seen.extend(event.sequence_number for event in events)

        sink = await CheckpointingSink.open(
            "f", "s", store=stage.checkpoints, apply=apply, clock=stage.clock
        )
        reader = SimJournal("s", stage.disk).reader()
        follower = Follower(reader, sink, bell=Bell(), clock=stage.clock)
        following = sim_loop().create_task(follower.run())
        for work in works(30):
            await stage.offer(work)
            await asyncio.sleep(0.01)
        await asyncio.sleep(20.0)
        following.cancel()
        assert seen == list(range(1, 32))

    play(story, keep=KeepOptions(snapshot_every=5, retain_ms=0))


def test_a_shard_rests_while_an_enqueue_waits_and_every_lease_call_is_gone() -> None:
    async def story(stage: Stage) -> None:
        given_up = LeaseCall(lambda outcomes: None, wait_ms=50)
        stage.shard.offer(given_up)
        await asyncio.sleep(0.01)
        given_up.withdrawn = True
        stage.offer(*works(1))
        await stage.lease(wait_ms=1_000)
        waiting = stage.offer(*works(3))
        await asyncio.sleep(0.1)  # the deadline of the call that was given up goes by
        assert not waiting.done()
        await waiting

    play(story, queue=QueueOptions(pending_high=2, pending_low=0, enqueue_wait_ms=5_000))


def test_recovery_starts_over_when_another_writer_pruned_what_it_was_reading() -> None:
    class SlowJournal(SimJournal):
        async def snapshot(self) -> SnapshotRef | None:
            found = await super().snapshot()
            await asyncio.sleep(0.5)
            return found

    async def story(stage: Stage) -> None:
        for work in works(10):
            await stage.offer(work)
        recovering = sim_loop().create_task(recover(SlowJournal("s", stage.disk)))
        for work in works(60):
            await stage.offer(work)
            await asyncio.sleep(0.01)
        recovered = await recovering
        assert facts(recovered.state) == facts(stage.shard.state)

    play(story, keep=KeepOptions(snapshot_every=5, retain_ms=0))


def test_a_bug_in_a_turn_leaves_no_call_unanswered_that_had_waited_before_it() -> None:
    async def story(stage: Stage) -> None:
        waiting = stage.lease(wait_ms=10_000)
        await asyncio.sleep(0.1)
        poison: Any = Inspect(sequence_id=[])  # type: ignore[arg-type]
        stage.offer(*works(1))
        stage.offer(poison)
        (outcome,) = await waiting
        assert isinstance(outcome, OmniRelayError | Leases)

    play(story)


@pytest.mark.parametrize("turns", range(3))
def test_an_enqueue_that_resumes_in_a_turn_with_a_bug_is_answered(turns: int) -> None:
    async def story(stage: Stage) -> None:
        asked = stage.offer(*works(3))
        await asyncio.sleep(0.1)
        poison: Any = Inspect(sequence_id=[])  # type: ignore[arg-type]
        stage.lease()
        for _ in range(turns):
            await asyncio.sleep(0)
        stage.offer(poison)
        outcomes = await asked
        assert [isinstance(outcome, Accepted) for outcome in outcomes[:2]] == [True, True]
        assert len(outcomes) == 3

    play(story, queue=QueueOptions(pending_high=2, pending_low=1, enqueue_wait_ms=5_000))
