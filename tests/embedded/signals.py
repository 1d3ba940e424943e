"""What these tests wait for: committed events, failpoints, a fellow worker. Never the clock."""

import asyncio
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import omnirelay
from omnirelay import Event, QueueOptions, Relay

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = QueueOptions(requeue_delay_ms=0)
"""A failed item is free again at once."""
SHORT_S = 0.1
"""The shortest lease there is, for tests that need one to run out."""


async def committed(relay: Relay, kind: str, *, count: int = 1) -> Event:
    """The `count`th event of this kind, as soon as it is committed."""
    async for event in relay.events(0):
        if event.event_type == kind:
            count -= 1
            if count == 0:
                return event
    raise AssertionError(f"the journal ended before the {kind}")


async def kinds(relay: Relay) -> list[str]:
    """Types of all events so far, in order, but for the epoch that opened the queue."""
    found = [event.event_type async for event in relay.events(0, follow=False)]
    assert found[0] == "EpochStarted"
    return found[1:]


async def counts(relay: Relay) -> tuple[int, int]:
    stats = await relay.stats()
    return stats.pending_count, stats.active_lease_count


async def next_item(relay: Relay) -> omnirelay.Lease:
    return await relay.lease(wait=10)


async def a_turn_of_the_loop() -> None:
    """Everything that is ready now runs once."""
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done


class Failpoints:
    """Notes on which thread each named place was passed, and runs what a test planted there."""

    def __init__(self) -> None:
        self.threads: dict[str, set[int]] = defaultdict(set)
        self.passed: Counter[str] = Counter()
        self.plans: dict[str, Callable[[], object]] = {}

    def hit(self, name: str) -> None:
        self.threads[name].add(threading.get_ident())
        self.passed[name] += 1
        plan = self.plans.pop(name, None)
        if plan is not None:
            plan()
