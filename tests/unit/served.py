"""A shard on the test's own loop, a clock that is moved by hand, and mixed traffic."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

from omnirelay.journal.backend import JournalBackend
from omnirelay.lease.answers import DrainPage
from omnirelay.lease.commands import (
    Command,
    Complete,
    Drain,
    Enqueue,
    Fail,
    Heartbeat,
    Purge,
    Redrive,
    Release,
    Restore,
)
from omnirelay.mesh.calls import Call, LeaseCall, Leases, Outcome
from omnirelay.mesh.keeper import Slowest, nobody
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.items import Payload, Token
from omnirelay.model.ports import Ids
from omnirelay.testing.clock import HandClock


class CountedIds(Ids):
    def __init__(self) -> None:
        self.count = 0

    def lease_id(self) -> str:
        self.count += 1
        return f"{self.count:08x}-0000-4000-8000-000000000000"


class Served:
    """A running shard; `ask` waits for the outcomes of one call."""

    def __init__(self, shard: Shard, running: "asyncio.Task[None]") -> None:
        self.shard = shard
        self.running = running

    async def ask(self, *commands: Command) -> Sequence[Outcome]:
        answered: asyncio.Future[Sequence[Outcome]] = asyncio.get_running_loop().create_future()
        self.shard.offer(Call(commands, answered.set_result, wait_ms=0))
        return await answered

    async def lease(self, most: int = 1) -> list[Token]:
        answered: asyncio.Future[Sequence[Outcome]] = asyncio.get_running_loop().create_future()
        self.shard.offer(LeaseCall(answered.set_result, max_items=most))
        (reply,) = await answered
        return [leased.token for leased in reply.leases] if isinstance(reply, Leases) else []


@asynccontextmanager
async def serving(
    backend: JournalBackend,
    options: ShardOptions | None = None,
    *,
    clock: HandClock | None = None,
    slowest: Slowest = nobody,
) -> AsyncIterator[Served]:
    shard = Shard(
        backend,
        options or ShardOptions(node="node-1"),
        clock=clock or HandClock(),
        ids=CountedIds(),
        slowest=slowest,
    )
    running = asyncio.create_task(shard.run())
    ready = asyncio.create_task(shard.ready.wait())
    await asyncio.wait([ready, running], return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if running.done():
        running.result()
    try:
        yield Served(shard, running)
    finally:
        shard.stop()
        await running


class Traffic:
    """Every kind of call, in an order drawn from a seed."""

    def __init__(self, served: Served, clock: HandClock, seed: int) -> None:
        self._served = served
        self._clock = clock
        self._chance = Random(seed)
        self._tokens: list[Token] = []
        self._pages: list[DrainPage] = []

    async def run(self, calls: int) -> None:
        for _ in range(calls):
            self._clock.now_ms += self._chance.choice((0, 1, 40, 400))
            await self._call()

    async def _call(self) -> None:
        kind = self._chance.randrange(12)
        if kind < 4:
            await self._served.ask(*(self._enqueue() for _ in range(self._chance.randint(1, 4))))
        elif kind < 7:
            self._tokens += await self._served.lease(self._chance.randint(1, 3))
        elif kind < 10 and self._tokens:
            await self._served.ask(self._end())
        elif kind == 10:
            await self._served.ask(self._on_the_dead())
        else:
            await self._move()

    def _enqueue(self) -> Enqueue:
        number = self._chance.randrange(40)
        payload = Payload("table", f"t{number}", request_id=f"r{number}" if number % 3 else None)
        delay_ms = self._chance.choice((0, 0, 500))
        return Enqueue(payload=payload, delay_ms=delay_ms, priority=number % 3, max_attempts=2)

    def _end(self) -> Command:
        token = self._tokens.pop(self._chance.randrange(len(self._tokens)))
        match self._chance.randrange(5):
            case 0 | 1:
                return Complete(token=token)
            case 2:
                return Fail(token=token, reason="no luck", requeue=self._chance.random() < 0.7)
            case 3:
                return Release(token=token)
        self._tokens.append(token)
        return Heartbeat(tokens=tuple(self._tokens))

    def _on_the_dead(self) -> Command:
        if self._chance.random() < 0.7:
            return Redrive(max_items=2)
        return Purge(max_items=1)

    async def _move(self) -> None:
        if self._pages:
            await self._served.ask(Restore(items=self._pages.pop().items))
            return
        drain = Drain(max_items=3, include_active=self._chance.random() < 0.3, include_dead=True)
        (page,) = await self._served.ask(drain)
        if isinstance(page, DrainPage) and page.items:
            self._pages.append(page)
