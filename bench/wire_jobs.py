"""Our side of `bench/wire`: one node process, one client process, the jobs the peers run too.

`python -m bench.wire_jobs JOB` prints one line of JSON; `wire` runs it once a round.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

import omnirelay
from omnirelay import Payload, Relay, Worker

BODY = b"x" * 200
PAYLOAD = Payload("table", "sales.orders", body=BODY)
START_S = 20


@contextmanager
def node(folder: Path) -> Iterator[dict[str, str]]:
    """A node of its own process on free ports, its journal SQLite FULL on the real disk."""
    ready = folder / "ready"
    # The stream on a Unix socket, as the peers have it; HTTP and gRPC know only TCP.
    free = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--stream", f"unix:{folder}/socket"]
    command = [sys.executable, "-m", "omnirelay.cli", "serve", "--data", str(folder), *free]
    process = subprocess.Popen([*command, "--ready-file", str(ready)], stdout=subprocess.DEVNULL)
    with stopped_after(process):
        wait_for(ready, process)
        yield json.loads(ready.read_text())


def wait_for(file: Path, process: "subprocess.Popen[bytes]", seconds: float = START_S) -> None:
    """Until the process has made it."""
    until = time.monotonic() + seconds
    while not file.exists():
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{process.args!r} did not start: exit {process.poll()}")
        time.sleep(0.02)


@contextmanager
def stopped_after(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        process.wait(START_S)


async def cycles(relay: Relay, callers: int, seconds: float) -> float:
    """Each caller enqueues, leases and completes one item a call, over and over."""
    until = time.perf_counter() + seconds
    done = 0

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await relay.enqueue("table", "sales.orders", body=BODY)
            lease = await relay.lease(wait=10)
            await lease.complete()
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return done / (time.perf_counter() - began)


async def batches(relay: Relay, callers: int, seconds: float) -> float:
    until = time.perf_counter() + seconds
    done = 0

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await relay.enqueue_many([PAYLOAD] * 100)
            leases = await relay.lease_many(100, wait=10)
            await relay.complete_many(leases)
            done += len(leases)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return done / (time.perf_counter() - began)


async def sequential(relay: Relay, seconds: float) -> float:
    """One producer that waits for each answer, one worker with one slot."""
    worker = Worker(relay, concurrency=1)

    @worker.handles("table")
    async def nothing(lease: omnirelay.Lease) -> None:
        return None

    working = asyncio.create_task(worker.run())
    began = time.perf_counter()
    produced = 0
    while time.perf_counter() < began + seconds:
        await relay.enqueue("table", "sales.orders", body=BODY)
        produced += 1
    while worker.completed < produced:  # noqa: ASYNC110 - a worker tells nobody when it is idle
        await asyncio.sleep(0.001)
    rate = worker.completed / (time.perf_counter() - began)
    worker.stop()
    await working
    return rate


async def memory(relay: Relay, pid: int, items: int = 1_000_000) -> float:
    """Resident bytes of the node with a million items pending."""

    async def producer() -> None:
        for _ in range(items // 8000):
            for outcome in await relay.enqueue_many([PAYLOAD] * 1000):
                assert isinstance(outcome, omnirelay.Accepted), outcome

    await asyncio.gather(*(producer() for _ in range(8)))
    assert (await relay.stats()).pending_count == items
    return resident_bytes(pid)


def resident_bytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return float(resident.split()[1]) * 1024


async def wakeup(relay: Relay, url: str, samples: int = 400) -> float:
    """From the enqueue of one connection to the blocked lease of another, p50 in microseconds."""
    took: list[float] = []
    async with omnirelay.connect(url) as waiting:
        for _ in range(samples):
            leasing = asyncio.ensure_future(waiting.lease_many(1, wait=10))
            await asyncio.sleep(0.004)
            began = time.perf_counter()
            enqueued = asyncio.ensure_future(relay.enqueue("table", "a", body=BODY))
            (lease,) = await leasing
            took.append((time.perf_counter() - began) * 1e6)
            await enqueued
            await lease.complete()
    return statistics.median(took)


Job = Callable[[dict[str, str], float], Coroutine[None, None, float]]


def over(scheme: str, run: Callable[[Relay, float], Coroutine[None, None, float]]) -> Job:
    async def job(urls: dict[str, str], seconds: float) -> float:
        async with omnirelay.connect(urls[scheme]) as relay:
            return await run(relay, seconds)

    return job


async def _memory(urls: dict[str, str], seconds: float) -> float:
    async with omnirelay.connect(urls["stream"]) as relay:
        return await memory(relay, int(urls["pid"]))


async def _wakeup(urls: dict[str, str], seconds: float) -> float:
    async with omnirelay.connect(urls["stream"]) as relay:
        return await wakeup(relay, urls["stream"])


JOBS: dict[str, Job] = {
    "callers256_batches": over("stream", lambda relay, s: batches(relay, 256, s)),
    "callers256": over("stream", lambda relay, s: cycles(relay, 256, s)),
    "callers32": over("stream", lambda relay, s: cycles(relay, 32, s)),
    "batches_http": over("http", lambda relay, s: batches(relay, 256, s)),
    "batches_grpc": over("grpc", lambda relay, s: batches(relay, 256, s)),
    "sequential": over("stream", sequential),
    "wakeup": _wakeup,
    "memory": _memory,
}


def run(job: str, seconds: float) -> float:
    with (
        tempfile.TemporaryDirectory(prefix="omnirelay-bench-") as folder,
        node(Path(folder)) as urls,
    ):
        return uvloop.run(JOBS[job](urls, seconds))  # as the peers' clients do


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.wire_jobs", description=__doc__)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    figure = run(arguments.job, arguments.seconds)
    print(json.dumps({"job": arguments.job, "figure": figure, "pid": os.getpid()}))


if __name__ == "__main__":
    main()
