"""A node that follows another's journal says whether it is close behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from omnirelay.mesh.office import NEVER
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model import limits
from omnirelay.model.errors import NotOwner, OmniRelayError, Recovering
from omnirelay.stores.memory import MemoryJournal, MemoryMedium
from omnirelay.testing.clock import HandClock
from omnirelay.testing.envelopes import Scribe
from tests.unit.served import CountedIds

SHARD = "orders"


class PausedJournal(MemoryJournal):
    """Its reader can be stopped, as a process can, and notes what its node says at every look."""

    def __init__(self, medium: MemoryMedium) -> None:
        super().__init__(SHARD, medium)
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.follower: Shard | None = None
        self.said: list[type[OmniRelayError]] = []

    async def read(self, after: int, limit: int) -> list[bytes]:
        await self.goes_on.wait()
        if self.follower is not None:
            assert self.follower.failure is not None
            self.said.append(type(self.follower.failure))
        return await super().read(after, limit)


@asynccontextmanager
async def following(
    journal: PausedJournal, clock: HandClock | None = None
) -> AsyncIterator[asyncio.Semaphore]:
    """Released whenever it says that it follows."""
    follows = asyncio.Semaphore(0)
    shard = Shard(
        journal,
        ShardOptions(node="follower", ttl_ms=1_000),
        clock=clock or HandClock(),
        ids=CountedIds(),
        rank=lambda: NEVER,
        on_ready=follows.release,
    )
    journal.follower = shard
    running = asyncio.create_task(shard.run())
    yield follows
    shard.stop()
    await asyncio.wait([running])


async def write(medium: MemoryMedium, scribe: Scribe, envelopes: int) -> None:
    journal = MemoryJournal(SHARD, medium)
    for _ in range(envelopes):
        sealed = scribe.seal()
        await journal.append(sealed, expected=sealed.first - 1)


@pytest.mark.parametrize(
    ("missed", "said"), [(40, {NotOwner, Recovering}), (4, {NotOwner})], ids=["much", "little"]
)
async def test_a_follower_that_comes_back_is_not_ready_while_it_has_much_to_read(
    missed: int, said: set[type[OmniRelayError]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READ_ENVELOPES_MAX", 2)
    monkeypatch.setattr(limits, "CLOSE_BEHIND_EVENTS", 10)
    medium, scribe = MemoryMedium(), Scribe(SHARD)
    await write(medium, scribe, 3)
    journal = PausedJournal(medium)
    async with following(journal) as follows:
        await follows.acquire()
        journal.goes_on.clear()
        journal.said.clear()
        await write(medium, scribe, missed)
        journal.goes_on.set()
        while journal.follower is not None and journal.follower.state.sequence < scribe.last:
            await follows.acquire()
        assert set(journal.said) == said
        assert journal.said[0] is NotOwner
        assert isinstance(journal.follower and journal.follower.failure, NotOwner)


class BusyJournal(PausedJournal):
    """Its owner has always written once more before a look at it is over; a look takes 100 ms."""

    def __init__(self, medium: MemoryMedium, clock: HandClock) -> None:
        super().__init__(medium)
        self._medium, self._clock, self._scribe = medium, clock, Scribe(SHARD)

    async def read(self, after: int, limit: int) -> list[bytes]:
        found = await super().read(after, limit)
        await asyncio.sleep(0)
        self._clock.advance(100)
        await write(self._medium, self._scribe, 1)
        return found


async def test_a_follower_of_an_owner_that_writes_without_a_rest_is_ready_and_stops() -> None:
    clock = HandClock()
    journal = BusyJournal(MemoryMedium(), clock)
    async with asyncio.timeout(5), following(journal, clock) as follows:
        await follows.acquire()
        await follows.acquire()
    assert journal.follower is not None
    assert not journal.follower.is_served_here
