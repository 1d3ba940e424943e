"""Our side of `bench/engines`: nodes over the journal of an engine, one client process.

`python -m bench.engine_jobs JOB --journal postgres` prints one line of JSON.
"""

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop

import omnirelay
from bench.wire_jobs import BODY, batches, wait_for
from bench.wire_jobs import cycles as one_by_one
from bench.wire_peers.jobs import CALLERS
from omnirelay import OmniRelayError
from omnirelay.cli.free_ports import free_port
from omnirelay.testing.servers_nats import nats_servers
from omnirelay.testing.servers_postgres import postgres_server

START_S = 60
LANES = 64
"""Batches under way at a time, ours; the peers have four (`wire_peers/jobs.py`), which suits them
best: with 16 or 64 both were far slower. With four we had about half of what we have."""
EPOCH_S = 2.0
KILLS = 20
NODES = 3

Figures = dict[str, float]


@contextmanager
def journal(name: str) -> Iterator[str]:
    if name == "postgres":
        with postgres_server({"shared_buffers": "256MB", "max_wal_size": "4GB"}) as server:
            yield server.url("bench")
    else:
        count = 3 if name == "nats3" else 1
        with nats_servers(count) as servers:
            yield servers.url("BENCH", f"&replicas={count}")


class Mesh:
    """Nodes of one journal, on ports they keep."""

    def __init__(self, folder: Path, url: str, nodes: int) -> None:
        self._folder = folder
        self._journal = url
        self._ports = [free_port() for _ in range(nodes)]
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def urls(self) -> list[str]:
        return [f"stream://127.0.0.1:{port}" for port in self._ports]

    def start(self, number: int) -> None:
        folder = self._folder / f"n{number}"
        folder.mkdir(exist_ok=True)
        ready = folder / "ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "omnirelay.cli", "serve", "--data", str(folder)]
        command += ["--journal", self._journal, "--node-id", f"n{number}"]
        command += ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--ready-file", str(ready)]
        command += ["--stream", f"127.0.0.1:{self._ports[number]}", "--epoch-s", str(EPOCH_S)]
        for url in self.urls:
            command += ["--peer", url]
        process = self._running[number] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_for(ready, process, START_S)

    def kill(self, number: int) -> None:
        process = self._running.pop(number)
        process.send_signal(signal.SIGKILL)
        process.wait(START_S)

    def close(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait(START_S)


@contextmanager
def mesh(journal_name: str, nodes: int) -> Iterator[Mesh]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="omnirelay-bench-"))
        found = Mesh(Path(folder), stack.enter_context(journal(journal_name)), nodes)
        stack.callback(found.close)
        for number in range(nodes):
            found.start(number)
        yield found


async def _owner(found: Mesh) -> int:
    """The number of the node that serves the queue."""
    async with omnirelay.connect(",".join(found.urls)) as relay:
        return int((await relay.stats()).leader.removeprefix("n"))


def cycles(name: str, seconds: float) -> Figures:
    """Batches of 100, `LANES` at a time."""
    return _of_one_node(name, lambda relay: batches(relay, LANES, seconds))


def singles(name: str, seconds: float) -> Figures:
    """One item a call, as many callers as the peers have."""
    return _of_one_node(name, lambda relay: one_by_one(relay, CALLERS, seconds))


def _of_one_node(name: str, work: Callable[[omnirelay.Relay], Awaitable[float]]) -> Figures:
    async def run(url: str) -> float:
        async with omnirelay.connect(url) as relay:
            return await work(relay)

    with mesh(name, 1) as found:
        return {"figure": uvloop.run(run(found.urls[0]))}


def forwarding(name: str, seconds: float) -> Figures:
    """The same through the node that does not own the queue, and through the one that does."""

    async def run(found: Mesh) -> Figures:
        owner = await _owner(found)
        rates = []
        for number in (1 - owner, owner):
            async with omnirelay.connect(found.urls[number]) as relay:
                rates.append(await batches(relay, LANES, seconds))
        return {"figure": rates[0], "direct": rates[1]}

    with mesh(name, 2) as found:
        return uvloop.run(run(found))


def failover(name: str, seconds: float) -> Figures:
    """From kill -9 of the owner to the first grant by the next, as a client of all nodes sees it;
    the killed node comes back before the next kill."""

    async def granted(relay: omnirelay.Relay) -> None:
        while True:
            try:
                await relay.enqueue("table", "sales.orders", body=BODY)
                (lease,) = await relay.lease_many(1, wait=10)
                await lease.complete()
            except OmniRelayError:
                await asyncio.sleep(0.01)
            else:
                return

    async def once(found: Mesh) -> float:
        owner = await _owner(found)
        async with omnirelay.connect(",".join(found.urls)) as relay:
            await granted(relay)
            began = time.perf_counter()
            found.kill(owner)
            await granted(relay)
            took = time.perf_counter() - began
        await asyncio.to_thread(found.start, owner)
        return took

    async def run(found: Mesh) -> Figures:
        took = [await once(found) for _ in range(KILLS)]
        return {"figure": statistics.median(took), "worst": max(took)}

    with mesh(name, NODES) as found:
        return uvloop.run(run(found))


Job = Callable[[str, float], Figures]
JOBS: dict[str, Job] = {
    "cycles": cycles,
    "singles": singles,
    "forwarding": forwarding,
    "failover": failover,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.engine_jobs", description=__doc__)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--journal", choices=["postgres", "nats", "nats3"], default="postgres")
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    print(json.dumps(JOBS[arguments.job](arguments.journal, arguments.seconds)))


if __name__ == "__main__":
    main()
