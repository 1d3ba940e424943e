"""Blocked leases over every wire: served in the order they came, and nothing for those who left."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

import omnirelay
from omnirelay import QueueOptions, Relay, Unavailable
from omnirelay.node.node import Node
from omnirelay.testing.node_process import WIRES, node_thread, settings_of
from tests.embedded.signals import a_turn_of_the_loop, committed, counts, kinds
from tests.wire.proxies import proxied

LONG = QueueOptions(lease_duration_ms=60_000)
"""What is lost until its lease expires is lost for longer than any of these tests waits."""


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def node(wire: str) -> Iterator[Node]:
    with node_thread(settings_of((wire,), "memory:", LONG)) as node:
        yield node


@pytest.fixture
async def relay(node: Node, wire: str) -> AsyncIterator[Relay]:
    async with omnirelay.connect(node.urls[wire]) as relay:
        yield relay


def waiting_at(node: Node) -> int:
    """Callers that stand in the queue's hall and have not left."""
    hall = node._engines["resourcelease"].shard._hall
    return sum(not call.withdrawn for call in list(hall._leases._waiting))


async def until_waiting(node: Node, count: int) -> None:
    async with asyncio.timeout(10):
        while waiting_at(node) != count:
            await a_turn_of_the_loop()


async def test_those_who_wait_are_served_in_their_order_whatever_connection_they_use(
    node: Node, wire: str, relay: Relay
) -> None:
    async with AsyncExitStack() as stack:
        waiting = []
        for number in range(5):
            other = await stack.enter_async_context(omnirelay.connect(node.urls[wire]))
            waiting.append(asyncio.create_task(other.lease(wait=10).take()))
            await until_waiting(node, number + 1)
        for number in range(5):
            await relay.enqueue("table", f"t{number}")
        leases = [await task for task in waiting]
    assert [lease.resource_id for lease in leases] == [f"t{n}" for n in range(5)]


@pytest.mark.parametrize("most", [1, 3])
async def test_a_caller_that_is_cancelled_leaves_the_queue_at_once(
    node: Node, relay: Relay, most: int
) -> None:
    waiting = asyncio.create_task(relay.lease_many(most, wait=60))
    await until_waiting(node, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until_waiting(node, 0)
    await relay.enqueue("table", "a")
    assert (await relay.lease(wait=5)).attempt == 1
    assert await kinds(relay) == ["Enqueue", "LeaseGranted"]


async def test_a_caller_that_disconnects_leaves_the_queue_at_once(
    node: Node, wire: str, relay: Relay
) -> None:
    async with (
        proxied(node.urls[wire]) as proxy,
        omnirelay.connect(proxy.url, retry=0) as leaving,
    ):
        waiting = asyncio.create_task(leaving.lease_many(1, wait=60))
        await until_waiting(node, 1)
        proxy.cut()
        with pytest.raises(Unavailable):
            await waiting
        await until_waiting(node, 0)
    await relay.enqueue("table", "a")
    assert (await relay.lease(wait=5)).attempt == 1
    assert await kinds(relay) == ["Enqueue", "LeaseGranted"]


async def test_one_of_several_that_wait_together_may_leave(node: Node, relay: Relay) -> None:
    waiting = [asyncio.create_task(relay.lease(wait=10).take()) for _ in range(3)]
    await until_waiting(node, 2)  # the first went ahead at once, the others travel together
    waiting[1].cancel()
    for name in ("a", "b"):
        await relay.enqueue("table", name)
    stayed = (waiting[0], waiting[2])
    assert sorted([(await task).resource_id for task in stayed]) == ["a", "b"]
    assert await counts(relay) == (0, 2)


async def test_whoever_leaves_in_the_very_moment_of_the_grant_keeps_nothing(
    node: Node, wire: str, relay: Relay
) -> None:
    """At each of many moments between the enqueue and the arrival of the lease."""
    async with omnirelay.connect(node.urls[wire]) as leaving:
        for number in range(100):
            waiting = asyncio.create_task(leaving.lease(wait=60).take())
            await until_waiting(node, 1)
            enqueuing = asyncio.create_task(relay.enqueue("table", f"t{number}"))
            await asyncio.sleep(number % 50 * 0.0001)  # only real time passes through all of them
            waiting.cancel()
            await asyncio.wait([waiting])
            await enqueuing
            if not waiting.cancelled():
                await waiting.result().release()
            async with relay.lease(wait=5) as lease:  # released at once, not at its expiry
                assert (lease.resource_id, lease.attempt) == (f"t{number}", 1)
    assert await counts(relay) == (0, 0)


async def test_a_relay_that_closes_while_it_waits_keeps_nothing(
    node: Node, wire: str, relay: Relay
) -> None:
    for turns in range(10):
        leaving = await omnirelay.connect(node.urls[wire])
        waiting = asyncio.create_task(leaving.lease_many(2, wait=60))
        await until_waiting(node, 1)
        enqueuing = asyncio.create_task(relay.enqueue("table", f"t{turns}"))
        for _ in range(turns * 3):
            await a_turn_of_the_loop()
        await leaving.close()
        await enqueuing
        outcome = (await asyncio.gather(waiting, return_exceptions=True))[0]
        if isinstance(outcome, list):  # it came before we left, and its relay is gone
            await relay.drain(include_active=True)
            continue
        assert isinstance(outcome, omnirelay.Closed)
        async with relay.lease(wait=5) as lease:
            assert lease.resource_id == f"t{turns}"


async def test_an_interrupted_thread_keeps_nothing(
    node: Node, wire: str, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes when the lease is here and not yet in the hands of its caller."""
    from concurrent.futures import Future

    queue = await asyncio.to_thread(omnirelay.connect_sync, node.urls[wire])
    result = Future.result

    def interrupted(future: "Future[object]", timeout: float | None = None) -> object:
        result(future, timeout)
        monkeypatch.undo()
        raise KeyboardInterrupt

    def take() -> bool:
        monkeypatch.setattr(Future, "result", interrupted)
        try:
            queue.lease(wait=5).take()
        except KeyboardInterrupt:
            return True
        return False

    await relay.enqueue("table", "a")
    assert await asyncio.to_thread(take)
    assert (await relay.lease(wait=5)).attempt == 1
    await asyncio.to_thread(queue.close)
    await committed(relay, "Released")


async def test_a_wait_that_is_over_says_so_without_an_error(node: Node, relay: Relay) -> None:
    assert await relay.lease_many(3, wait=0.05) == []
    with pytest.raises(omnirelay.NothingToLease):
        await relay.lease(wait=0.05)
    await until_waiting(node, 0)
