"""The four jobs, the same for every peer: one client process, 200-byte bodies, bounded by time.

An item counts when its acknowledgement was answered. Callers have a connection each.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from bench.wire_peers import Measured

BODY = b"x" * 200
CALLERS = 32
BATCH = 100
LANES = 4  # batches under way at a time; more did not help any peer on two cores
WIDE_LANES = 64  # as many as our nodes over engines are given
SAMPLES = 300
# Long enough that a consumer which was told to wait does wait at its server.
SETTLE_S = 0.003


class Link(Protocol):
    """One connection. A handle is whatever the peer wants back to acknowledge."""

    async def put(self, body: bytes) -> None: ...
    async def take(self) -> Any:
        """The handle of one item; waits until there is one."""

    async def ack(self, handle: Any) -> None: ...
    async def put_many(self, bodies: list[bytes]) -> None: ...
    async def take_many(self, count: int) -> list[Any]:
        """Up to `count`, possibly none."""

    async def ack_many(self, handles: list[Any]) -> None: ...
    async def close(self) -> None: ...


Connect = Callable[[], Awaitable[Link]]


class Outcome(NamedTuple):
    value: float
    items: int
    seconds: float


async def sequential(connect: Connect, seconds: float) -> Outcome:
    """One producer, one consumer, each with one call under way. The consumer drains what is left
    when the producer stops, so no peer pays for items it is not given."""
    producer, consumer = await connect(), await connect()
    made, is_last = 0, False
    start = time.perf_counter()

    async def produce() -> None:
        nonlocal made, is_last
        while not is_last:
            # Told before the last item is put: the consumer must not wait for another.
            is_last = time.perf_counter() - start >= seconds
            made += 1
            await producer.put(BODY)

    producing = asyncio.ensure_future(produce())
    done = 0
    while not (is_last and done == made):
        await consumer.ack(await consumer.take())
        done += 1
    elapsed = time.perf_counter() - start
    await producing
    await _close(producer, consumer)
    return Outcome(done / elapsed, done, elapsed)


async def concurrent32(connect: Connect, seconds: float) -> Outcome:
    """32 callers, each putting, taking and acknowledging one item a call."""

    async def caller(link: Link, end: float) -> int:
        done = 0
        while time.perf_counter() < end:
            await link.put(BODY)
            await link.ack(await link.take())
            done += 1
        return done

    return await _together(connect, seconds, callers=CALLERS, caller=caller)


async def batched(connect: Connect, seconds: float) -> Outcome:
    """The peer's own way to move a hundred items, several hundreds at a time."""
    return await _in_lanes(connect, seconds, LANES)


async def batched64(connect: Connect, seconds: float) -> Outcome:
    """The same with as many batches under way as ours."""
    return await _in_lanes(connect, seconds, WIDE_LANES)


async def _in_lanes(connect: Connect, seconds: float, lanes: int) -> Outcome:
    bodies = [BODY] * BATCH

    async def caller(link: Link, end: float) -> int:
        done = 0
        while time.perf_counter() < end:
            await link.put_many(bodies)
            left = BATCH
            while left > 0 and (handles := await link.take_many(left)):
                await link.ack_many(handles)
                left -= len(handles)
            done += BATCH - left
        return done

    return await _together(connect, seconds, callers=lanes, caller=caller)


async def _together(
    connect: Connect,
    seconds: float,
    *,
    callers: int,
    caller: Callable[[Link, float], Awaitable[int]],
) -> Outcome:
    links = [await connect() for _ in range(callers)]
    start = time.perf_counter()
    counts = await asyncio.gather(*(caller(link, start + seconds) for link in links))
    elapsed = time.perf_counter() - start
    await _close(*links)
    return Outcome(sum(counts) / elapsed, sum(counts), elapsed)


async def wakeup(connect: Connect, seconds: float) -> Outcome:
    """From the call that puts an item to a waiting consumer holding it: the median, in us."""
    producer, consumer = await connect(), await connect()
    samples: list[float] = []
    start = time.perf_counter()

    async def receive() -> tuple[Any, float]:
        handle = await consumer.take()
        return handle, time.perf_counter()

    while len(samples) < SAMPLES and time.perf_counter() - start < seconds:
        receiving = asyncio.ensure_future(receive())
        await asyncio.sleep(SETTLE_S)
        began = time.perf_counter()
        await producer.put(BODY)
        handle, came = await receiving
        samples.append(came - began)
        await consumer.ack(handle)
    elapsed = time.perf_counter() - start
    await _close(producer, consumer)
    return Outcome(statistics.median(samples) * 1e6, len(samples), elapsed)


async def _close(*links: Link) -> None:
    for link in links:
        await link.close()


JOBS = {
    "sequential": sequential,
    "concurrent32": concurrent32,
    "batched": batched,
    "batched64": batched64,
    "wakeup": wakeup,
}


def run(peer: str, job: str, seconds: float, *, connect: Connect, version: str) -> Measured:
    # Only .venv-peers has it: it makes every one of these clients faster.
    import uvloop  # type: ignore[import-not-found,unused-ignore]

    outcome: Outcome = uvloop.run(JOBS[job](connect, seconds))
    return measured(peer, job, outcome, version)


def measured(peer: str, job: str, outcome: Outcome, version: str) -> Measured:
    value = round(outcome.value, 1)
    rated = job != "wakeup"
    return Measured(
        peer,
        job,
        items_per_s=value if rated else None,
        p50_us=None if rated else value,
        items=outcome.items,
        seconds=round(outcome.seconds, 3),
        version=version,
    )
