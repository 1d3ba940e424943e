"""What the floors of the wire leave to a node: the bare one (`bare_node.py`) and a client without
an SDK beside the peers, in one run. A floor that these two do not reach, no node of ours can.

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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import uvloop

from bench.report import Row
from bench.wire_jobs import BODY
from bench.wire_peers import measure
from omnirelay.lease.answers import LeaseResponse
from omnirelay.mesh import wire
from omnirelay.model.items import Payload, Token
from omnirelay.rpc.codec import MSGPACK
from omnirelay.transports.stream_frames import (
    FROM_NODE,
    VERSION,
    CallFrame,
    Hello,
    ReplyFrame,
    Splitter,
    pack,
)

SECONDS = 3.0
LIMIT_S = 60
ITEM = wire.EnqueueRequest(Payload("table", "sales.orders", body=BODY))


class BareCaller(asyncio.Protocol):
    """Futures by call, frames as they are: no retries, no request ids, no heartbeats."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter(FROM_NODE)
        self._transport: asyncio.Transport
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._ids = 0
        self._together: dict[str, list[tuple[Any, asyncio.Future[Any]]]] = {}
        """By verb, what was asked in this turn of the loop. Any: each verb has its own."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(pack(Hello(VERSION)))

    def connection_lost(self, exc: Exception | None) -> None:
        for call in self._calls.values():
            if not call.done():
                call.set_exception(exc or ConnectionResetError("the bare node left"))

    def data_received(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            if isinstance(frame, ReplyFrame):
                assert frame.body is not None
                self._calls.pop(frame.id).set_result(frame.body)

    def close(self) -> None:
        self._transport.close()

    def ask(self, verb: str, request: object) -> "asyncio.Future[bytes]":
        self._ids += 1
        future = self._calls[self._ids] = self._loop.create_future()
        self._transport.write(pack(CallFrame(self._ids, verb, MSGPACK.encode(request))))
        return future

    # -- many at a time -------------------------------------------------------------------------

    async def enqueue_many(self, items: Sequence[wire.EnqueueRequest]) -> None:
        answer = await self.ask("enqueueBatch", wire.EnqueueBatchRequest(tuple(items)))
        MSGPACK.decode(answer, wire.EnqueueBatchResponse)

    async def lease_many(self, most: int) -> tuple[LeaseResponse, ...]:
        answer = await self.ask("leaseBatch", wire.LeaseBatchRequest(most))
        return MSGPACK.decode(answer, wire.LeaseBatchResponse).leases

    async def complete_many(self, tokens: Sequence[Token]) -> None:
        answer = await self.ask("completeBatch", wire.TokenBatchRequest(tuple(tokens)))
        MSGPACK.decode(answer, wire.TokenBatchResponse)

    async def complete_and_lease(self, tokens: Sequence[Token]) -> tuple[LeaseResponse, ...]:
        request = wire.CompleteAndLeaseRequest(tuple(tokens))
        answer = await self.ask("completeAndLease", request)
        return MSGPACK.decode(answer, wire.CompleteAndLeaseResponse).leases

    # -- one at a time, those of one turn together ----------------------------------------------

    def one(self, verb: str, item: Any) -> "asyncio.Future[Any]":
        asked = self._together.get(verb)
        if asked is None:
            asked = self._together[verb] = []
            self._loop.call_soon(self._leave, verb)
        future = self._loop.create_future()
        asked.append((item, future))
        return future

    def _leave(self, verb: str) -> None:
        asked = self._together.pop(verb)
        items = tuple(item for item, _ in asked)
        request: object
        if verb == "enqueueBatch":
            request = wire.EnqueueBatchRequest(items)
        elif verb == "leaseBatch":
            request = wire.LeaseBatchRequest(len(items))
        else:
            request = wire.TokenBatchRequest(items)
        self.ask(verb, request).add_done_callback(lambda done: self._hand_out(verb, asked, done))

    def _hand_out(
        self,
        verb: str,
        asked: list[tuple[Any, "asyncio.Future[Any]"]],
        done: "asyncio.Future[bytes]",
    ) -> None:
        found: Sequence[Any]
        if verb == "enqueueBatch":
            found = MSGPACK.decode(done.result(), wire.EnqueueBatchResponse).results
        elif verb == "leaseBatch":
            found = MSGPACK.decode(done.result(), wire.LeaseBatchResponse).leases
            for item, future in asked[len(found) :]:  # who got none asks again
                self._together.setdefault(verb, []).append((item, future))
            if len(found) < len(asked):
                self._loop.call_soon(self._leave, verb)
        else:
            found = MSGPACK.decode(done.result(), wire.TokenBatchResponse).results
        for (_, future), one in zip(asked, found, strict=False):
            future.set_result(one)


Work = Callable[[BareCaller], Coroutine[None, None, int]]


async def _timed(callers: int, seconds: float, once: Work, line: BareCaller) -> float:
    until = time.perf_counter() + seconds
    done = 0

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < until:
            came = await once(line)  # apart: the sum is looked up when the wait is over
            done += came

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return done / (time.perf_counter() - began)


async def _batch(line: BareCaller) -> int:
    await line.enqueue_many([ITEM] * 100)
    leases = await line.lease_many(100)
    await line.complete_many([lease.token for lease in leases])
    return len(leases)


async def _single(line: BareCaller) -> int:
    await line.one("enqueueBatch", ITEM)
    lease = await line.one("leaseBatch", None)
    await line.one("completeBatch", lease.token)
    return 1


async def _sequential(line: BareCaller, seconds: float) -> float:
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


async def _wakeup(line: BareCaller, path: str, samples: int = 400) -> float:
    took: list[float] = []
    async with _connected(path) as waiting:
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
async def _connected(path: str) -> AsyncIterator[BareCaller]:
    loop = asyncio.get_running_loop()
    _, caller = await loop.create_unix_connection(BareCaller, path)
    try:
        yield caller
    finally:
        caller.close()


async def _job(name: str, path: str, seconds: float) -> float:
    async with _connected(path) as line:
        if name == "sequential":
            return await _sequential(line, seconds)
        if name == "wakeup":
            return await _wakeup(line, path)
        if name == "callers32":
            return await _timed(32, seconds, _single, line)
        return await _timed(256, seconds, _batch, line)


@contextmanager
def _node(folder: Path) -> Iterator[str]:
    path = folder / "socket"
    command = [sys.executable, "-m", "bench.bare_node", str(path), str(folder / "blobs.db")]
    process = subprocess.Popen(command)
    try:
        until = time.monotonic() + LIMIT_S
        while not path.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the bare node did not start: exit {process.poll()}")
            time.sleep(0.02)
        yield str(path)
    finally:
        process.terminate()
        process.wait(LIMIT_S)


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
        _node(Path(folder)) as path,
    ):
        figure = uvloop.run(_job(arguments.job, path, arguments.seconds))
    print(json.dumps({"job": arguments.job, "figure": figure}))


if __name__ == "__main__":
    main()
