"""Two nodes over one journal, and a wall clock that jumps: nothing is stolen, nothing is late."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from omnirelay.lease.answers import Accepted
from omnirelay.lease.commands import Command, Enqueue
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.calls import Call, LeaseCall, Leases, Outcome
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.items import Payload
from omnirelay.testing.disk import SimDisk, SimJournal
from omnirelay.testing.loop import SimClock, run_simulated, sim_loop
from omnirelay.testing.nodes import SHARD, SeededIds, SimRest

DAY_MS = 24 * 3_600_000
TTL_MS = 2_000
LEASE_MS = 10_000
JUMPS = (-DAY_MS, -1_500, 1_500, DAY_MS)


class Machine:
    """A node with a clock of its own, whose wall may be wrong from the beginning."""

    def __init__(self, name: str, disk: SimDisk, *, wall_off_ms: int = 0) -> None:
        loop = sim_loop()
        self.clock = SimClock(loop)
        self.clock.jump_wall(wall_off_ms)
        options = ShardOptions(
            node=name, queue=QueueOptions(lease_duration_ms=LEASE_MS), ttl_ms=TTL_MS
        )
        self.shard = Shard(
            SimJournal(SHARD, disk),
            options,
            clock=self.clock,
            ids=SeededIds(Random(name)),
            rest=SimRest(loop),
        )
        self.task = loop.create_task(self.shard.run())

    async def ask(self, command: Command) -> Outcome:
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.shard.offer(Call((command,), reply=lambda found: answer.set_result(found[0])))
        return await answer

    async def lease(self) -> Leases:
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        call = LeaseCall(max_items=1, reply=lambda found: answer.set_result(found[0]))
        self.shard.offer(call)
        found = await answer
        assert isinstance(found, Leases)
        return found

    async def die(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def serves(self) -> None:
        await until(lambda: self.shard.is_served_here)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await _a_moment()


async def _a_moment() -> None:
    await asyncio.sleep(0.01)


async def started(disk: SimDisk, wall_off_ms: int = 0) -> tuple[Machine, Machine]:
    owner = Machine("a", disk)
    await owner.serves()
    assert isinstance(await owner.ask(Enqueue(payload=Payload("table", "orders"))), Accepted)
    assert len((await owner.lease()).leases) == 1
    return owner, Machine("b", disk, wall_off_ms=wall_off_ms)


@pytest.mark.parametrize("jump_ms", JUMPS)
@pytest.mark.parametrize("whose", ["owner", "follower"])
def test_a_jump_neither_moves_a_lease_nor_the_ownership(whose: str, jump_ms: int) -> None:
    async def run() -> None:
        owner, follower = await started(SimDisk(Random(1)))
        began = owner.clock.monotonic_ms()
        await asyncio.sleep(1)
        (owner if whose == "owner" else follower).clock.jump_wall(jump_ms)
        await until(lambda: not owner.shard.state.active)
        lasted = owner.clock.monotonic_ms() - began
        # It is looked for when something else is due, an affirmation at the latest.
        assert LEASE_MS <= lasted < LEASE_MS + TTL_MS
        assert (owner.shard.state.epoch, follower.shard.state.epoch) == (1, 1)
        assert owner.shard.is_served_here
        for one in (owner, follower):
            await one.die()

    run_simulated(run, seed=1)


@pytest.mark.parametrize("off_ms", JUMPS)
def test_a_new_owner_with_another_wall_clock_gives_every_lease_its_full_time(off_ms: int) -> None:
    async def run() -> None:
        disk = SimDisk(Random(2))
        owner, heir = await started(disk, off_ms)
        at = owner.shard.state.at
        await asyncio.sleep(LEASE_MS / 2000)
        await owner.die()
        silent = heir.clock.monotonic_ms()
        await heir.serves()
        waited = heir.clock.monotonic_ms() - silent
        assert TTL_MS * 2 // 3 - 100 <= waited <= TTL_MS + 200
        assert heir.shard.state.at >= at, "the journal's time never goes back"
        began = heir.clock.monotonic_ms()
        assert heir.shard.state.active
        await until(lambda: not heir.shard.state.active)
        assert heir.clock.monotonic_ms() - began >= LEASE_MS
        assert (heir.shard.state.epoch, len(heir.shard.state.pending)) == (2, 1)
        await heir.die()

    run_simulated(run, seed=2)
