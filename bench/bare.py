"""How near the floors of the wire a node comes that does nothing else (`bare_node.py`), with a
client that does nothing else, beside the peers and ours in one run.

`python -m bench.bare JOB` prints one line of JSON.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import uvloop

from bench.bare_caller import BareCaller
from bench.report import Row
from bench.wire_jobs import BODY, stopped_after, wait_for
from bench.wire_peers import measure
from omnirelay.mesh import wire
from omnirelay.model.items import Payload

if TYPE_CHECKING:
    from omnirelay.lease.answers import LeaseResponse

SECONDS = 3.0
LIMIT_S = 60
ITEM = wire.EnqueueRequest(Payload("table", "sales.orders", body=BODY))


Work = Callable[[BareCaller], Coroutine[None, None, int]]


async def timed(callers: int, seconds: float, once: Work, line: BareCaller) -> tuple[float, float]:
    """Items a second, and the seconds."""
    until = time.perf_counter() + seconds
    done = 0

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < until:
            came = await once(line)  # apart: the sum is looked up when the wait is over
            done += came

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    took = time.perf_counter() - began
    return done / took, took


async def batch(line: BareCaller) -> int:
    await line.enqueue_many([ITEM] * 100)
    leases = await line.lease_many(100)
    await line.complete_many([lease.token for lease in leases])
    return len(leases)


async def single(line: BareCaller) -> int:
    await line.one("enqueueBatch", ITEM)
    lease = await line.one("leaseBatch", None)
    await line.one("completeBatch", lease.token)
    return 1


async def sequential(line: BareCaller, seconds: float) -> float:
    """One producer; one worker that reports and asks in one call."""
    produced = completed = 0
    is_over = False

    async def work() -> None:
        nonlocal completed
        held: tuple[LeaseResponse, ...] = ()
        while not is_over or completed < produced:
            if held:
                again = await line.complete_and_lease([lease.token for lease in held])
                completed += len(held)
                held = again
            else:
                held = await line.lease_many(1)

    working = asyncio.ensure_future(work())
    began = time.perf_counter()
    while not is_over:
        is_over = time.perf_counter() - began >= seconds
        produced += 1
        await line.enqueue_many([ITEM])
    await working
    return completed / (time.perf_counter() - began)


async def wakeup(line: BareCaller, path: str, samples: int = 400) -> float:
    took: list[float] = []
    async with connected(path) as waiting:
        for _ in range(samples):
            leasing = asyncio.ensure_future(waiting.lease_many(1))
            await asyncio.sleep(0.004)
            began = time.perf_counter()
            enqueued = asyncio.ensure_future(line.enqueue_many([ITEM]))
            (lease,) = await leasing
            took.append((time.perf_counter() - began) * 1e6)
            await enqueued
            await waiting.complete_many([lease.token])
    return statistics.median(took)


@asynccontextmanager
async def connected(path: str) -> AsyncIterator[BareCaller]:
    loop = asyncio.get_running_loop()
    _, caller = await loop.create_unix_connection(BareCaller, path)
    try:
        yield caller
    finally:
        caller.close()


async def _job(name: str, path: str, seconds: float) -> float:
    async with connected(path) as line:
        if name == "sequential":
            return await sequential(line, seconds)
        if name == "wakeup":
            return await wakeup(line, path)
        if name == "callers32":
            return (await timed(32, seconds, single, line))[0]
        return (await timed(256, seconds, batch, line))[0]


@contextmanager
def node(folder: Path) -> Iterator[str]:
    path = folder / "socket"
    command = [sys.executable, "-m", "bench.bare_node", str(path), str(folder / "blobs.db")]
    process = subprocess.Popen(command)
    with stopped_after(process):
        wait_for(path, process)
        yield str(path)


class Line(NamedTuple):
    """One of the wire's: our job of it, and the peers it is measured by, with their floors."""

    metric: str
    ours: str
    beside: tuple[tuple[str, str, float], ...]
    is_time: bool = False


LINES = {
    "batches": Line(
        "cycles_per_s_256_callers_batches", "callers256_batches", (("redis", "batched", 1.5),)
    ),
    "callers32": Line(
        "cycles_per_s_32_callers",
        "callers32",
        (
            ("redis", "concurrent32", 2.5),
            ("beanstalkd", "concurrent32", 4.0),
            ("postgres", "concurrent32", 4.0),
        ),
    ),
    "sequential": Line(
        "items_per_s_sequential", "sequential", (("beanstalkd", "sequential", 0.7),)
    ),
    "wakeup": Line("wakeup_p50_us", "wakeup", (("beanstalkd", "wakeup", 1 / 1.2),), True),
}


def rows(rounds: int) -> list[Row]:
    """Bare, ours and the peers take turns."""
    return [row for job, line in LINES.items() for row in _of_line(job, line, rounds)]


def _of_line(job: str, line: Line, rounds: int) -> Iterator[Row]:
    bare: list[float] = []
    ours: list[float] = []
    theirs: dict[str, list[float]] = {peer: [] for peer, _, _ in line.beside}
    for _ in range(rounds):
        bare.append(_figure("bench.bare", job))
        ours.append(_figure("bench.wire_jobs", line.ours))
        for peer, name, _ in line.beside:
            one = measure(peer, name, SECONDS)
            figure = one.items_per_s or one.p50_us
            if figure is not None:
                theirs[peer].append(figure)
            print(
                f"{job}: bare {bare[-1]:,.0f}, ours {ours[-1]:,.0f}, {peer} {one.error or figure}"
            )
    mine = statistics.median(bare)
    for peer, name, floor in line.beside:
        if theirs[peer]:
            reference = statistics.median(theirs[peer])
            called = f"{line.metric}_vs_{peer}"
            yield Row("bare", called, mine, reference, f"{peer} {name}", floor, line.is_time)
    own = statistics.median(ours)
    yield Row("bare", f"{line.metric}_of_ours", own, mine, "bare", None, line.is_time)


def _figure(module: str, job: str) -> float:
    command = [sys.executable, "-m", module, job, "--seconds", str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{module} {job} failed:\n{done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1])["figure"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.bare", description=__doc__)
    parser.add_argument("job", choices=LINES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="omnirelay-bench-") as folder,
        node(Path(folder)) as path,
    ):
        figure = uvloop.run(_job(arguments.job, path, arguments.seconds))
    print(json.dumps({"job": arguments.job, "figure": figure}))


if __name__ == "__main__":
    main()
