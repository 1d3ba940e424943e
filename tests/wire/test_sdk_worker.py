"""A worker of a node: takes ahead, keeps its leases, hands back, says how it is."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

import omnirelay
from omnirelay import Lease, Payload, QueueOptions, Relay, Worker
from omnirelay.cli.free_ports import free_ports
from omnirelay.node.node import Node
from omnirelay.sdk import worker as worker_module
from omnirelay.testing.node_process import WIRES, NodeProcess, node_thread, settings_of
from tests.embedded.signals import a_turn_of_the_loop, committed, counts, kinds
from tests.embedded.worker_program import PROGRAM

SHORT = QueueOptions(lease_duration_ms=300, requeue_delay_ms=0)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def node(wire: str) -> Iterator[Node]:
    with node_thread(settings_of((wire,), "memory:", SHORT)) as node:
        yield node


@pytest.fixture
async def relay(node: Node, wire: str) -> AsyncIterator[Relay]:
    async with omnirelay.connect(node.urls[wire]) as relay:
        yield relay


@asynccontextmanager
async def at_work(worker: Worker, port: int | None = None) -> AsyncIterator[None]:
    running = asyncio.create_task(worker.run(health_port=port))
    try:
        yield
    finally:
        worker.stop()
        await running


async def fill(relay: Relay, count: int) -> None:
    await relay.enqueue_many([Payload("table", f"t{n}") for n in range(count)])


async def test_short_work_is_taken_ahead_and_handed_back_when_it_is_not_begun(
    relay: Relay,
) -> None:
    worker = Worker(relay, concurrency=1, prefetch=8)
    may_end, slow = asyncio.Event(), asyncio.Event()
    done = 0

    @worker.handles("table")
    async def handle(lease: Lease) -> None:
        nonlocal done
        done += 1
        if done == 20:
            slow.set()
            await may_end.wait()

    await fill(relay, 40)
    async with at_work(worker):
        await slow.wait()
        async with asyncio.timeout(10):
            while (await counts(relay))[1] < 2:  # the one in hand, and those behind it
                await a_turn_of_the_loop()
        may_end.set()
        worker.stop()
    assert worker.completed == done == 20
    async with asyncio.timeout(5):  # one that was on its way when we stopped goes back by itself
        while await counts(relay) != (20, 0):
            await a_turn_of_the_loop()
    assert (await relay.lease(wait=5)).attempt == 1


async def test_a_handler_that_blocks_the_loop_longer_than_its_lease_keeps_it(
    relay: Relay, node: Node, wire: str
) -> None:
    """Heartbeats come from a thread and over a connection of their own."""
    worker = Worker(relay)

    @worker.handles("table")
    async def handle(lease: Lease) -> None:
        # Three lease times without one turn of the loop: only real time can show this.
        time.sleep(1.0)  # noqa: ASYNC251

    await relay.enqueue("table", "a")
    async with at_work(worker):
        await committed(relay, "Completed")
    assert (worker.completed, worker.lost) == (1, 0)
    found = await kinds(relay)
    assert found.count("Heartbeat") >= 3
    assert "Expired" not in found


async def test_a_handler_whose_lease_was_taken_from_it_is_cancelled(relay: Relay) -> None:
    worker = Worker(relay)
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @worker.handles("table")
    async def handle(lease: Lease) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await relay.enqueue("table", "a")
    async with at_work(worker):
        await begun.wait()
        await relay.drain(include_active=True)
        await cancelled.wait()
    assert (worker.lost, worker.completed, worker.failed) == (1, 0, 0)


async def test_a_retry_policy_decides_the_delay_and_a_broken_one_decides_nothing(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    delays: dict[str, object] = {"a": 0.01, "b": -5, "c": float("nan"), "d": "soon", "e": None}

    def policy(lease: Lease, error: Exception) -> float | None:
        return delays[lease.resource_id]  # type: ignore[return-value]

    worker = Worker(relay, retry=policy)

    @worker.handles("table")
    async def handle(lease: Lease) -> None:
        if lease.attempt == 1:
            raise _Wordless

    for name in delays:
        await relay.enqueue("table", name)
    async with at_work(worker):
        await committed(relay, "Completed", count=5)
    assert (worker.failed, worker.completed, worker.lost) == (5, 5, 0)
    failed = await committed(relay, "Failed")
    assert failed.error is not None
    assert "_Wordless" in failed.error.message


class _Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


# -- health -------------------------------------------------------------------------------------


async def ask(port: int, request: bytes = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    if not request.endswith(b"\r\n\r\n"):
        writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_worker_whose_poll_loop_stands_still_says_so(
    omnirelay_node: NodeProcess, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    monkeypatch.setattr(worker_module, "SLACK_S", 0.5)
    (port,) = free_ports(1)
    async with omnirelay.connect(omnirelay_node.url(wire)) as relay:
        worker = Worker(relay, poll=0.1, stop_timeout=1)

        @worker.handles("table")
        async def handle(lease: Lease) -> None:
            return None

        async with at_work(worker, port):
            await until_answers(port, b"200 OK")
            omnirelay_node.pause()  # it neither answers nor hangs up
            await until_answers(port, b"503 Service Unavailable")
            omnirelay_node.resume()
            await until_answers(port, b"200 OK")


async def until_answers(port: int, status: bytes) -> None:
    async with asyncio.timeout(10):
        while status not in await ask_or_nothing(port):
            await a_turn_of_the_loop()


async def ask_or_nothing(port: int) -> bytes:
    try:
        return await ask(port)
    except ConnectionError:
        return b""  # not open yet


async def test_health_answers_only_what_it_is_asked(relay: Relay) -> None:
    (port,) = free_ports(1)
    worker = Worker(relay)

    @worker.handles("table")
    async def handle(lease: Lease) -> None:
        return None

    async with at_work(worker, port):
        await until_answers(port, b"200 OK")
        assert b"404" in await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"404" in await ask(port, b"POST /healthz HTTP/1.1\r\n\r\n")
        assert await ask(port, b"GET /healthz") == b""
        assert await ask(port, b"x" * 10_000) == b""
        with pytest.raises(omnirelay.Unavailable, match=str(port)):
            await worker.run(health_port=port)
    with pytest.raises(ConnectionError):
        await ask(port)


# -- a process ----------------------------------------------------------------------------------


@contextmanager
def working(url: str, stop_timeout_s: float) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", PROGRAM, url, str(stop_timeout_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "holding\n"
            yield child
        finally:
            child.kill()


def end(child: "subprocess.Popen[str]", number: signal.Signals) -> tuple[int, str]:
    os.kill(child.pid, number)
    said, _ = child.communicate(timeout=15)
    return child.returncode, said


@pytest.mark.parametrize(("kind", "ended"), [("quick", "Completed"), ("slow", "Released")])
def test_on_sigterm_a_worker_finishes_or_hands_back_what_it_has_in_hand(
    node: Node, wire: str, kind: str, ended: str
) -> None:
    url = node.urls[wire]
    with omnirelay.connect_sync(url) as relay:
        relay.enqueue(kind, "a")
        relay.enqueue(kind, "b")
        with working(url, 10 if kind == "quick" else 0.01) as child:
            assert end(child, signal.SIGTERM) == (0, "ended\n")
        types = [event.event_type for event in relay.events()]
        assert types[-1] == ended
        stats = relay.stats()
        left = 1 if ended == "Completed" else 2
        assert (stats.pending_count, stats.active_lease_count) == (left, 0)
