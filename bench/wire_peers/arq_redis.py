"""arq on Redis, for orientation: a worker in the client's loop, jobs that do nothing and keep no
result. It polls; asked every millisecond instead of its half second, or that is all one sees."""

import asyncio
import logging
import statistics
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import arq  # type: ignore[import-not-found,unused-ignore]
import uvloop  # type: ignore[import-not-found,unused-ignore]
from arq.connections import RedisSettings  # type: ignore[import-not-found,unused-ignore]

from bench.wire_peers import Measured, jobs
from bench.wire_peers.jobs import BODY, CALLERS, SAMPLES, SETTLE_S, Outcome
from bench.wire_peers.redis_streams import find_any, serving
from bench.wire_peers.servers import CannotStart

POLL_S = 0.001
READ_AHEAD = 1000


class Arrivals:
    """What the worker ran."""

    def __init__(self) -> None:
        self.count = 0
        self.changed = asyncio.Condition()

    async def note(self, _context: dict[str, Any], _body: bytes) -> None:
        async with self.changed:
            self.count += 1
            self.changed.notify_all()

    async def wait(self, count: int) -> None:
        async with self.changed, asyncio.timeout(60):
            await self.changed.wait_for(lambda: self.count >= count)


async def rate(pool: Any, arrivals: Arrivals, *, producers: int, seconds: float) -> Outcome:
    start = time.perf_counter()

    async def produce() -> int:
        made = 0
        while time.perf_counter() - start < seconds:
            await pool.enqueue_job("note", BODY)
            made += 1
        return made

    made = sum(await asyncio.gather(*(produce() for _ in range(producers))))
    await arrivals.wait(made)
    elapsed = time.perf_counter() - start
    return Outcome(made / elapsed, made, elapsed)


async def wakeup(pool: Any, arrivals: Arrivals, *, seconds: float) -> Outcome:
    samples: list[float] = []
    start = time.perf_counter()
    while len(samples) < SAMPLES and time.perf_counter() - start < seconds:
        await asyncio.sleep(SETTLE_S)
        began = time.perf_counter()
        await pool.enqueue_job("note", BODY)
        await arrivals.wait(len(samples) + 1)
        samples.append(time.perf_counter() - began)
    return Outcome(statistics.median(samples) * 1e6, len(samples), time.perf_counter() - start)


async def work(address: Path, job: str, seconds: float) -> Outcome:
    many = CALLERS if job == "concurrent32" else 1
    arrivals = Arrivals()
    pool = await arq.create_pool(RedisSettings(unix_socket_path=str(address)))
    worker = arq.Worker(
        functions=[arq.func(arrivals.note, name="note", keep_result=0)],
        redis_pool=await arq.create_pool(RedisSettings(unix_socket_path=str(address))),
        max_jobs=many,
        poll_delay=POLL_S,
        queue_read_limit=READ_AHEAD,
        handle_signals=False,
    )
    working = asyncio.ensure_future(worker.async_run())
    try:
        if job == "wakeup":
            return await wakeup(pool, arrivals, seconds=seconds)
        return await rate(pool, arrivals, producers=many, seconds=seconds)
    finally:
        # It may not have acknowledged the last yet, and leaves badly when it is cut off there.
        await asyncio.gather(*worker.tasks.values(), return_exceptions=True)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await worker.close()
        await pool.aclose()


def run(peer: str, job: str, seconds: float, folder: Path) -> Measured:
    if job == "batched":
        raise CannotStart("it has no batches")
    logging.disable(logging.CRITICAL)
    binary = find_any()
    version = f"arq {metadata.version('arq')} on {binary.path.name} {binary.version()}"
    with serving(binary, folder) as address:
        outcome = uvloop.run(work(address, job, seconds))
    return jobs.measured(peer, job, outcome, version)
