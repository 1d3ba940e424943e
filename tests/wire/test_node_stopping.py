"""A node that stops, drains or waits for its disk: who hears what, and how soon."""

import asyncio
import signal
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from omnirelay.journal.events import Event
from omnirelay.journal.format import Sealed
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh import driver, wire
from omnirelay.model.errors import OutcomeUnknown, Unavailable
from omnirelay.model.ports import set_failpoint
from omnirelay.node import build
from omnirelay.node.node import Node
from omnirelay.stores.memory import MemoryJournal
from omnirelay.stores.registry import Opened, open_address
from omnirelay.testing.raw_http import RawHttp
from tests.cli.nodes import running
from tests.wire.real_node import WIRES, Caller, caller, node, node_settings

AT_ONCE_S = 3
"""Much less than the grace of the nodes here."""
GRACE_S = 15.0


@asynccontextmanager
async def leaving() -> AsyncGenerator[Node]:
    """A node that the test itself stops in the middle; to stop it twice does nothing."""
    opened = Node(node_settings(grace_s=GRACE_S))
    await opened.__aenter__()
    try:
        yield opened
    finally:
        await opened.__aexit__(None, None, None)


async def stop(opened: Node, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        await opened.__aexit__(None, None, None)


async def blocked_lease(call: Caller) -> "asyncio.Task[object]":
    """Waiting in the hall when this returns: a later call over the same wire is answered."""
    task: asyncio.Task[object] = asyncio.create_task(
        call("lease", wire.LeaseRequest(wait_ms=600_000))
    )
    for _ in range(3):
        await call.stats()
    return task


@pytest.mark.parametrize("over", WIRES)
async def test_a_stopping_node_sends_blocked_leases_away_at_once(over: str) -> None:
    async with leaving() as opened, caller(opened, over) as call:
        leases = [await blocked_lease(call) for _ in range(3)]
        await stop(opened, AT_ONCE_S)
        for lease in leases:
            with pytest.raises(Unavailable) as refused:
                await lease
            assert not isinstance(refused.value, OutcomeUnknown)


@pytest.mark.parametrize("over", WIRES)
async def test_a_draining_node_refuses_new_work_and_takes_reports_until_it_resumes(
    over: str,
) -> None:
    async with node() as opened, caller(opened, over) as call:
        await call.enqueue("a")
        lease = await call.lease()
        waiting = await blocked_lease(call)
        opened.drain()
        with pytest.raises(Unavailable, match="draining"):
            await waiting
        for verb, request in (
            ("lease", wire.LeaseRequest()),
            ("leaseBatch", wire.LeaseBatchRequest()),
        ):
            with pytest.raises(Unavailable, match="draining"):
                await call(verb, request)
        with pytest.raises(Unavailable, match="draining"):
            await call.enqueue("b")
        token = wire.TokenRequest(lease.token)
        assert (await call("heartbeat", token)).success
        assert (await call("complete", token)).success
        opened.resume()
        await call.enqueue("b")
        assert (await call.lease()).payload.resource_id == "b"


async def test_whoever_follows_or_works_does_not_hold_a_stopping_node_up() -> None:
    async with (
        leaving() as opened,
        caller(opened, "http") as http,
        caller(opened, "grpc") as grpc,
        caller(opened, "stream") as stream,
        RawHttp(opened.urls["http"]) as watcher,
        RawHttp(opened.urls["http"]) as idle,
    ):
        await watcher.send(
            b"GET /omnirelay/control/backpressure/stream HTTP/1.1\r\nhost: t\r\n\r\n"
        )
        assert (await watcher.head()).status == 200
        assert (await idle.ask("GET", "/healthz")).status == 200
        followers = [
            await call.client.server_stream("events", wire.EventsRequest(), Event)
            for call in (http, grpc, stream)
        ]
        for events in followers:
            assert (await anext(events)).event_type == "EpochStarted"
        await stop(opened, AT_ONCE_S)
        for events in followers:  # they end, rather than break off
            async with aclosing(events), asyncio.timeout(5):
                assert [event.event_type async for event in events] == []


@pytest.fixture
def held_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """A journal that, once told, does not finish a commit until it may: (has begun, may go on).
    Turns are taken on the shard's own thread, or the test itself would be held."""
    monkeypatch.setattr(driver, "SLOW_S", -1.0)
    begun, may_go_on = threading.Event(), threading.Event()
    yield begun, may_go_on
    set_failpoint(None)
    may_go_on.set()


def hold(held: tuple[threading.Event, threading.Event]) -> None:
    begun, may_go_on = held

    def wait(name: str) -> None:
        if name == "shard.after_append":
            begun.set()
            may_go_on.wait(20)

    set_failpoint(wait)


@pytest.mark.parametrize("over", WIRES)
async def test_what_is_under_way_is_finished_and_answered(
    over: str, held_disk: tuple[threading.Event, threading.Event]
) -> None:
    begun, may_go_on = held_disk
    async with leaving() as opened, caller(opened, over) as call:
        await call.enqueue("first")
        hold(held_disk)
        under_way = asyncio.create_task(call.enqueue("second"))
        assert await asyncio.to_thread(begun.wait, 10)
        stopping = asyncio.create_task(stop(opened, AT_ONCE_S))
        await asyncio.sleep(0)
        set_failpoint(None)
        may_go_on.set()
        assert (await under_way).sequence_id == 2
        await stopping


async def test_a_call_that_does_not_end_is_cut_off_after_the_grace(
    held_disk: tuple[threading.Event, threading.Event],
) -> None:
    begun, may_go_on = held_disk
    opened = Node(node_settings(grace_s=0.3))
    await opened.__aenter__()
    async with caller(opened, "http") as call:
        await call.enqueue("first")
        hold(held_disk)
        under_way = asyncio.create_task(call.enqueue("second"))
        assert await asyncio.to_thread(begun.wait, 10)
        stopping = asyncio.create_task(stop(opened, 10))
        with pytest.raises(OutcomeUnknown):
            await under_way
        may_go_on.set()  # the journal itself is still finished, whatever it takes
        await stopping


def test_a_process_that_is_told_to_end_does_so_well_within_its_grace(tmp_path: Path) -> None:
    with running(tmp_path) as process:

        async def wait_and_end() -> tuple[int, float, int]:
            async with RawHttp(process.urls["http"], patience_s=15) as raw:
                body = b'{"waitMs":600000}'
                head = f"POST /v1/resourcelease/lease HTTP/1.1\r\ncontent-length: {len(body)}"
                await raw.send(f"{head}\r\nhost: t\r\n\r\n".encode() + body)
                async with RawHttp(process.urls["http"]) as other:
                    assert (await other.ask("GET", "/readyz")).status == 200
                began = time.monotonic()
                process.process.send_signal(signal.SIGTERM)
                answer = await raw.answer()
            ended = await asyncio.to_thread(process.process.wait, 10)
            return answer.status, time.monotonic() - began, ended

        status, took_s, code = asyncio.run(wait_and_end())
    assert (status, code) == (503, 0)
    assert took_s < 5


# -- a slow disk --------------------------------------------------------------------------------


class SlowJournal(MemoryJournal):
    """Blocks the thread that appends, as a disk does."""

    blocks = True
    delay_s = 0.0
    threads: list[int]

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        self.threads.append(threading.get_ident())
        time.sleep(self.delay_s)  # noqa: ASYNC251 - that is what a slow disk does
        await super().append(sealed, expected=expected)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowJournal:
    """The journal of the namespace `slow`."""
    journal = SlowJournal("slow")
    journal.threads = []

    def opens(url: str, shard: str) -> Opened:
        opened = open_address(url, shard)
        slow = Opened(journal, opened.checkpoints, suspends=False)
        return slow if shard == "slow" else opened

    monkeypatch.setattr(build, "open_address", opens)
    monkeypatch.setattr(driver, "BACK_AFTER_S", 0.1)
    return journal


class Ticker:
    """How long the loop was away at worst."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(0.005)
            now = loop.time()
            self.worst_s, last = max(self.worst_s, now - last), now


async def test_a_slow_disk_holds_up_neither_other_queues_nor_the_windows(slow: SlowJournal) -> None:
    async with (
        node(namespaces={}, namespace=("slow", "quick")) as opened,
        caller(opened, "stream", namespace="slow") as waits,
        caller(opened, "stream", namespace="quick") as goes_on,
        RawHttp(opened.urls["http"]) as raw,
    ):
        slow.delay_s = 0.5
        await waits.enqueue("the first slow one may be noticed")
        slow.threads.clear()
        ticker = Ticker()
        ticking = asyncio.create_task(ticker.run())
        slowed = asyncio.create_task(_several(waits, 4))
        answered = 0
        while not slowed.done():
            assert (await raw.ask("GET", "/healthz")).status == 200
            await goes_on.enqueue("x")
            answered += 1
        ticking.cancel()
        await slowed
    assert threading.get_ident() not in slow.threads
    assert ticker.worst_s < 0.5, "the loop waited for the disk"
    assert answered > 20


async def _several(call: Caller, count: int) -> None:
    for number in range(count):
        await call.enqueue(str(number))


async def test_a_disk_that_is_quick_again_is_written_by_the_loops_own_thread(
    slow: SlowJournal,
) -> None:
    async with (
        node(namespaces={}, namespace=("slow",)) as opened,
        caller(opened, "stream", namespace="slow") as call,
    ):
        await call.enqueue("quick")
        assert slow.threads[-1] == threading.get_ident()
        slow.delay_s = 0.3
        await call.enqueue("slow")
        await call.enqueue("away")
        assert slow.threads[-1] != threading.get_ident()
        slow.delay_s = 0.0
        async with asyncio.timeout(10):
            while slow.threads[-1] != threading.get_ident():
                await call.enqueue("back")


async def test_backpressure_and_a_full_queue_do_not_hold_a_stopping_node_up() -> None:
    own = QueueOptions(pending_high=1, pending_low=0, enqueue_wait_ms=600_000)
    opened = Node(node_settings(own, grace_s=GRACE_S))
    await opened.__aenter__()
    async with caller(opened, "stream") as call:
        await call.enqueue("a")
        waiting = asyncio.create_task(call.enqueue("b"))
        for _ in range(3):
            await call.stats()
        await stop(opened, AT_ONCE_S)
        with pytest.raises(Unavailable):
            await waiting
