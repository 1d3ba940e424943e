"""What the cluster demo does to its mesh: producers and workers of the SDK, and what they heard."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from omnirelay.cli.demo_proof import Acknowledged
from omnirelay.model.errors import NothingToLease, StaleToken
from omnirelay.sdk.client import Relay
from omnirelay.sdk.connect import Connecting, connect

PRODUCERS: Final = 2
WORKERS: Final = 4
PAUSE_S: Final = 0.01
WAIT_S: Final = 0.5


class Load:
    def __init__(self, urls: Sequence[str]) -> None:
        self.told = Acknowledged()
        self.had: dict[int, float] = {}
        """When a worker had the grant of a fence."""
        self.waits: list[tuple[float, float]] = []
        """When an enqueue was called, and how long it took."""
        self._urls = list(urls)
        self._is_enough = False
        self._is_done = False
        self._moved = asyncio.Event()

    def connect(self, first: int = 0) -> Connecting:
        """To any of the nodes, each caller in an order of its own."""
        first %= len(self._urls)
        return connect(",".join(self._urls[first:] + self._urls[:first]), retry=60.0)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Relay]:
        """Leaving the block ends the producers and waits until everything is done."""
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            relays = [await stack.enter_async_context(self.connect(n)) for n in range(WORKERS)]
            for number, relay in enumerate(relays[:PRODUCERS]):
                tasks.create_task(self._produce(relay, f"producer-{number}"))
            for number, relay in enumerate(relays):
                tasks.create_task(self._work(relay, f"worker-{number}"))
            yield relays[0]
            self._is_enough = True
            await self._reach(lambda: self.told.enqueued <= self.told.completed.keys())
            self._is_done = True

    async def more(self, items: int) -> None:
        """Until so many more are done."""
        until = len(self.told.completed) + items
        await self._reach(lambda: len(self.told.completed) >= until)

    async def _reach(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._moved.clear()
            await self._moved.wait()

    async def _produce(self, relay: Relay, name: str) -> None:
        number = 0
        while not self._is_enough:
            number += 1
            called = time.monotonic()
            accepted = await relay.enqueue(
                "table", f"{name}-{number}", request_id=f"{name}-{number}"
            )
            self.waits.append((called, time.monotonic() - called))
            self.told.enqueued.add(accepted.sequence_id)
            await asyncio.sleep(PAUSE_S)

    async def _work(self, relay: Relay, name: str) -> None:
        while not self._is_done:
            try:
                lease = await relay.lease(wait=WAIT_S, peer_id=name).take()
                self.had.setdefault(lease.fence, time.monotonic())
                await lease.complete()
            except (NothingToLease, StaleToken):
                continue
            self.told.completed[lease.sequence_id] = lease.fence
            self._moved.set()
