"""A reply that gets lost: the caller asks again and learns what became of its call."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

import omnirelay
from omnirelay import Accepted, OutcomeUnknown, Payload, QueueOptions, Relay
from omnirelay.lease.answers import Returned
from omnirelay.node.node import Node
from omnirelay.testing.node_process import WIRES, node_thread, settings_of
from tests.embedded.signals import committed, kinds
from tests.wire.proxies import Proxy, proxied


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def node(wire: str) -> Iterator[Node]:
    with node_thread(settings_of((wire,), "memory:", QueueOptions(requeue_delay_ms=0))) as node:
        yield node


@pytest.fixture
async def direct(node: Node, wire: str) -> AsyncIterator[Relay]:
    """Another caller, whose connection is a good one."""
    async with omnirelay.connect(node.urls[wire]) as relay:
        yield relay


@pytest.fixture
async def proxy(node: Node, wire: str) -> AsyncIterator[Proxy]:
    async with proxied(node.urls[wire]) as proxy:
        yield proxy


@pytest.fixture
async def relay(proxy: Proxy) -> AsyncIterator[Relay]:
    async with omnirelay.connect(proxy.url) as relay:
        await relay.stats()  # the connection is open
        yield relay


async def losing_the_reply(
    proxy: Proxy, call: Awaitable[object], happened: Callable[[], Awaitable[object]]
) -> object:
    """Make the call, let it happen, cut the connection before its reply arrives."""
    proxy.hold_back()
    calling = asyncio.ensure_future(call)
    await happened()
    assert not calling.done()
    proxy.cut()
    return await calling


async def test_an_enqueue_without_a_request_id_makes_one_item(
    proxy: Proxy, relay: Relay, direct: Relay
) -> None:
    accepted = await losing_the_reply(
        proxy, relay.enqueue("table", "a"), lambda: committed(direct, "Enqueue")
    )
    assert isinstance(accepted, Accepted)
    assert (accepted.sequence_id, accepted.duplicate) == (1, False)
    assert await kinds(direct) == ["Enqueue"]


async def test_a_batch_makes_each_of_its_items_once(
    proxy: Proxy, relay: Relay, direct: Relay
) -> None:
    outcomes = await losing_the_reply(
        proxy,
        relay.enqueue_many([Payload("table", f"t{n}") for n in range(5)]),
        lambda: committed(direct, "Enqueue", count=5),
    )
    assert isinstance(outcomes, list)
    assert [one.sequence_id for one in outcomes] == [1, 2, 3, 4, 5]
    assert await kinds(direct) == ["Enqueue"] * 5


async def test_a_lease_is_the_one_that_was_granted_the_first_time(
    proxy: Proxy, relay: Relay, direct: Relay
) -> None:
    await direct.enqueue_many([Payload("table", "a"), Payload("table", "b")])
    lease = await losing_the_reply(
        proxy, relay.lease(wait=5).take(), lambda: committed(direct, "LeaseGranted")
    )
    assert isinstance(lease, omnirelay.Lease)
    await lease.complete()
    assert await kinds(direct) == ["Enqueue", "Enqueue", "LeaseGranted", "Completed"]


async def test_a_lease_whose_time_ran_out_before_its_reply_came_is_taken_anew(
    proxy: Proxy, relay: Relay, direct: Relay
) -> None:
    await direct.enqueue("table", "a")
    lease = await losing_the_reply(
        proxy, relay.lease(wait=5, duration=0.1).take(), lambda: committed(direct, "Expired")
    )
    assert isinstance(lease, omnirelay.Lease)
    assert lease.attempt == 2


async def test_a_completion_succeeds_once(proxy: Proxy, relay: Relay, direct: Relay) -> None:
    await direct.enqueue("table", "a")
    lease = await relay.lease()
    await losing_the_reply(proxy, lease.complete(), lambda: committed(direct, "Completed"))
    assert not lease.lost.is_set()
    assert (await kinds(direct)).count("Completed") == 1


async def test_a_failure_is_reported_once_and_says_what_became_of_the_item(
    proxy: Proxy, relay: Relay, direct: Relay
) -> None:
    await direct.enqueue("table", "a")
    lease = await relay.lease()
    returned = await losing_the_reply(
        proxy, lease.fail("broken", requeue=False), lambda: committed(direct, "Failed")
    )
    assert isinstance(returned, Returned)
    assert (returned.disposition, returned.attempt) == ("deadLettered", 1)
    assert (await kinds(direct)).count("Failed") == 1


async def test_a_release_is_one_though_the_next_holder_has_it_by_then(
    proxy: Proxy, relay: Relay, direct: Relay
) -> None:
    await direct.enqueue("table", "a")
    lease = await relay.lease()
    await losing_the_reply(proxy, lease.release(), lambda: direct.lease(wait=5).take())
    assert not lease.lost.is_set()
    assert (await kinds(direct)).count("Released") == 1


@pytest.mark.parametrize("verb", ["drain", "redrive", "purge"])
async def test_what_would_do_more_the_second_time_is_left_to_its_caller(
    proxy: Proxy, relay: Relay, direct: Relay, verb: str
) -> None:
    """A page that was drained twice would be a page that nobody has."""
    await direct.enqueue_many([Payload("table", "a"), Payload("table", "b")])
    if verb != "drain":
        for lease in await direct.lease_many(2):
            await lease.fail("broken", requeue=False)
    event = {"drain": "DrainSnapshot", "redrive": "Redriven", "purge": "Purged"}[verb]
    call = relay.drain(1) if verb == "drain" else getattr(relay, verb)(max_items=1)
    with pytest.raises(OutcomeUnknown):
        await losing_the_reply(proxy, call, lambda: committed(direct, event))
    assert (await kinds(direct)).count(event) == 1


async def test_a_reader_of_events_goes_on_where_it_was(
    proxy: Proxy, relay: Relay, direct: Relay
) -> None:
    events = relay.events(0)
    assert (await anext(events)).sequence_number == 1
    for _ in range(3):
        proxy.cut()
        await direct.enqueue("table", "a")
    assert [(await anext(events)).sequence_number for _ in range(3)] == [2, 3, 4]


async def test_a_caller_that_does_not_repeat_hears_that_nothing_is_known(
    proxy: Proxy, direct: Relay
) -> None:
    async with omnirelay.connect(proxy.url, retry=0) as relay:
        await relay.stats()
        with pytest.raises(OutcomeUnknown):
            await losing_the_reply(
                proxy, relay.enqueue("table", "a"), lambda: committed(direct, "Enqueue")
            )


async def test_threads_ask_again_too(proxy: Proxy, direct: Relay) -> None:
    queue = await asyncio.to_thread(omnirelay.connect_sync, proxy.url)
    try:
        await asyncio.to_thread(queue.stats)
        accepted = await losing_the_reply(
            proxy,
            asyncio.to_thread(queue.enqueue, "table", "a"),
            lambda: committed(direct, "Enqueue"),
        )
        assert isinstance(accepted, Accepted)
        assert not accepted.duplicate
    finally:
        await asyncio.to_thread(queue.close)
    assert await kinds(direct) == ["Enqueue"]
