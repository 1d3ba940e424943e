"""Nodes of two versions over one journal: the owner writes what all can read, and says so in it."""

import asyncio
from random import Random

from omnirelay.journal.format import Chain, Envelope
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.errors import TooNew
from omnirelay.testing.disk import SimDisk, SimJournal
from omnirelay.testing.loop import SimClock, run_simulated, sim_loop
from omnirelay.testing.nodes import SHARD, SeededIds, SimRest

OLD, NEW = 1, 2


async def written(disk: SimDisk) -> list[Envelope]:
    bodies = await SimJournal(SHARD, disk, is_writer=False).read(0, 10_000)
    return list(Chain(SHARD).accept_all(bodies))


class Machine:
    """A node that reads records up to a format, and knows what the others read."""

    def __init__(self, name: str, disk: SimDisk, *, reads: int, others: int) -> None:
        loop = sim_loop()
        options = ShardOptions(node=name, ttl_ms=1_000, format=reads)
        self.shard = Shard(
            SimJournal(SHARD, disk),
            options,
            clock=SimClock(loop),
            ids=SeededIds(Random(name)),
            rest=SimRest(loop),
            read_by_all=lambda: others,
        )
        self.task = loop.create_task(self.shard.run())

    async def die(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def serves(self) -> int:
        """Returns the format of its epoch."""
        while not self.shard.is_served_here:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.01)
        return self.shard.state.rules.format


def test_a_new_format_begins_when_the_last_old_node_is_gone_and_never_ends() -> None:
    async def run() -> None:
        disk = SimDisk(Random(1))
        first = Machine("a", disk, reads=NEW, others=OLD)
        assert await first.serves() == OLD
        await first.die()
        second = Machine("b", disk, reads=NEW, others=NEW)
        assert await second.serves() == NEW
        await second.die()
        third = Machine("c", disk, reads=NEW, others=OLD)
        assert await third.serves() == NEW, "what is written stays written"
        await third.die()

    run_simulated(run, seed=1)


def test_an_old_node_stops_before_it_misreads_anything() -> None:
    async def run() -> None:
        disk = SimDisk(Random(2))
        first = Machine("a", disk, reads=NEW, others=OLD)
        await first.serves()
        old = Machine("old", disk, reads=OLD, others=NEW)
        await asyncio.sleep(0.5)
        assert not old.task.done()
        await first.die()
        await old.serves()  # it may own the queue as long as nobody has gone ahead
        await old.die()
        second = Machine("b", disk, reads=NEW, others=NEW)
        await second.serves()
        for name in ("cold", "cold again"):
            late = Machine(name, disk, reads=OLD, others=NEW)
            await asyncio.wait([late.task])
            error = late.task.exception()
            assert isinstance(error, TooNew)
            assert (error.details["written"], error.details["known"]) == (NEW, OLD)
            assert "upgrade" in error.message
        assert second.shard.is_served_here
        assert {one.node for one in await written(disk)} == {"a", "old", "b"}
        await second.die()

    run_simulated(run, seed=2)
