"""Whoever takes over has followed the journal: it reads what it has not read yet, and no more."""

import asyncio
from random import Random

from omnirelay.lease.commands import Enqueue
from omnirelay.mesh.calls import Call
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.items import Payload
from omnirelay.testing.disk import SimDisk, SimJournal
from omnirelay.testing.loop import SimClock, run_simulated, sim_loop
from omnirelay.testing.nodes import SHARD, SeededIds, SimRest

ITEMS = 400
KEEP = KeepOptions(snapshot_every=50)


class CountedJournal(SimJournal):
    """Counts what its node is given to read."""

    envelopes = 0
    parts = 0

    async def read(self, after: int, limit: int) -> list[bytes]:
        bodies = await super().read(after, limit)
        self.envelopes += len(bodies)
        return bodies

    async def read_part(self, sequence: int, part: int) -> bytes:
        self.parts += 1
        return await super().read_part(sequence, part)


class Machine:
    def __init__(self, name: str, disk: SimDisk) -> None:
        loop = sim_loop()
        self.journal = CountedJournal(SHARD, disk)
        self.shard = Shard(
            self.journal,
            ShardOptions(node=name, ttl_ms=1_000, keep=KEEP),
            clock=SimClock(loop),
            ids=SeededIds(Random(name)),
            rest=SimRest(loop),
        )
        self.task = loop.create_task(self.shard.run())

    async def die(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def enqueue(self, name: str) -> None:
        done = asyncio.Event()
        work = Enqueue(payload=Payload("table", name))
        self.shard.offer(Call((work,), lambda outcomes: done.set()))
        await done.wait()

    async def serves(self) -> None:
        while not self.shard.is_served_here:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.01)

    async def has_read(self, last: int) -> None:
        while self.shard.state.sequence < last:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.01)


def test_a_hot_follower_takes_over_by_reading_the_tail_alone() -> None:
    async def run() -> None:
        disk = SimDisk(Random(1))
        owner = Machine("a", disk)
        await owner.serves()
        for number in range(ITEMS):
            await owner.enqueue(f"t{number}")
        late = Machine("b", disk)
        await late.has_read(owner.shard.state.sequence)
        assert late.journal.parts, "it began with a snapshot"
        envelopes, parts = late.journal.envelopes, late.journal.parts
        for number in range(3):
            await owner.enqueue(f"tail-{number}")
        await owner.die()
        await late.serves()
        assert len(late.shard.state.pending) == ITEMS + 3
        assert late.journal.parts == parts, "no snapshot is read again"
        assert late.journal.envelopes - envelopes == 3, "each of the tail once"
        await late.die()

    run_simulated(run, seed=1)
