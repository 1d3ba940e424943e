"""What `omnirelay bench` does to a queue: items of its own, put in, leased and completed."""

import asyncio
import math
from array import array
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from omnirelay.cli.ending import CommandFailed
from omnirelay.model import limits
from omnirelay.model.errors import NothingToLease, OmniRelayError
from omnirelay.model.items import Payload
from omnirelay.model.ports import Ids, stopwatch
from omnirelay.sdk.client import Relay
from omnirelay.sdk.lease import Lease

T = TypeVar("T")
BODY: Final = b"x" * 200
VERBS: Final = ("enqueue", "lease", "complete")
WAIT_S: Final = 5.0
"""For an item that is there: who waits longer has had it taken away."""


class Latency(msgspec.Struct, frozen=True, rename="camel"):
    """Of one call, in milliseconds."""

    p50: float
    p99: float


class Measured(msgspec.Struct, frozen=True, rename="camel"):
    cycles: int
    """Items that were put in, leased and completed."""
    seconds: float
    cycles_per_s: float
    latency_ms: dict[str, Latency]


class Load:
    """Every item has a resource type that nobody else uses, and only that type is leased: what
    others put into the queue meanwhile is left alone."""

    def __init__(self, relay: Relay, ids: Ids, *, batch: int) -> None:
        self.resource_type = f"omnirelay-bench-{ids.lease_id()[:8]}"
        self._relay = relay
        self._batch = batch
        self._payload = Payload(self.resource_type, "item", body=BODY)
        self._times = {verb: array("d") for verb in VERBS}
        self._done = 0
        self._asked = 0

    async def check_queue(self) -> None:
        """Raises CommandFailed unless the queue is empty."""
        stats = await self._relay.stats()
        held = stats.pending_count + stats.active_lease_count + stats.delayed_count
        if held or stats.dead_letter_count:
            raise CommandFailed(
                f"the queue holds {held} items and {stats.dead_letter_count} dead letters that are "
                f"not this command's: name one of its own with --namespace"
            )

    async def run(self, *, callers: int, seconds: float, items_max: int) -> Measured:
        began = stopwatch()
        async with asyncio.timeout(seconds + 2 * WAIT_S + 30.0):
            try:
                until = began + seconds
                calling = (self._call(until, items_max) for _ in range(callers))
                await asyncio.gather(*calling)
                took = stopwatch() - began
            finally:
                await self._clear()
        return Measured(self._done, round(took, 3), round(self._done / took, 1), self._latencies())

    async def _call(self, until: float, items_max: int) -> None:
        while stopwatch() < until and self._asked + self._batch <= items_max:
            self._asked += self._batch
            if self._batch == 1:
                await self._cycle()
            else:
                await self._cycle_of_many()

    async def _cycle(self) -> None:
        relay, own = self._relay, self.resource_type
        await self._timed("enqueue", relay.enqueue(own, "item", body=BODY))
        try:
            lease = await self._timed("lease", relay.lease(wait=WAIT_S, types=[own]).take())
        except NothingToLease:
            raise _taken_away() from None
        await self._timed("complete", lease.complete())
        self._done += 1

    async def _cycle_of_many(self) -> None:
        relay, own = self._relay, [self.resource_type]
        outcomes = await self._timed("enqueue", relay.enqueue_many([self._payload] * self._batch))
        _raise_first(outcomes)
        leases = await self._timed("lease", relay.lease_many(self._batch, wait=WAIT_S, types=own))
        if not leases:
            raise _taken_away()
        await self._complete(leases)

    async def _complete(self, leases: list[Lease]) -> None:
        _raise_first(await self._timed("complete", self._relay.complete_many(leases)))
        self._done += len(leases)

    async def _timed(self, verb: str, call: Awaitable[T]) -> T:
        began = stopwatch()
        answer = await call
        self._times[verb].append(stopwatch() - began)
        return answer

    async def _clear(self) -> None:
        """What callers of batches have left to one another, or a failure has left to nobody."""
        with suppress(OmniRelayError):
            while leases := await self._relay.lease_many(
                limits.BATCH_MAX, types=[self.resource_type]
            ):
                await self._relay.complete_many(leases)

    def _latencies(self) -> dict[str, Latency]:
        return {
            verb: Latency(quantile(times, 0.5), quantile(times, 0.99))
            for verb, taken in self._times.items()
            if (times := sorted(taken))
        }


def quantile(ordered: list[float], share: float) -> float:
    """In milliseconds: the time that `share` of the calls did not pass."""
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1000, 3)


def _taken_away() -> CommandFailed:
    return CommandFailed(
        "an item that was just put in is gone: somebody else takes every type from this queue"
    )


def _raise_first(outcomes: Sequence[object]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, OmniRelayError):
            raise outcome
