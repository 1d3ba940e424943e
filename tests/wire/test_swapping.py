"""A worker's report in the call that asks for more, also when the node is not at its best."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import omnirelay
from omnirelay import Lease, OmniRelayError, Payload, Relay, Worker
from omnirelay.mesh import procedures, wire
from omnirelay.model.errors import InvalidArgument, Unavailable
from omnirelay.model.items import Token
from omnirelay.node.node import Node
from tests.embedded.signals import counts
from tests.wire.real_node import NAMESPACE, WIRES, Caller, caller, node

SDK_WIRES = [over for over in WIRES if over in ("http", "grpc", "stream")]


NOBODYS = Token(999, 1, "00000000-0000-0000-0000-000000000009")


@pytest.fixture
async def opened() -> AsyncIterator[Node]:
    async with node() as one:
        yield one


@pytest.fixture(params=WIRES)
async def call(opened: Node, request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    async with caller(opened, request.param) as one:
        yield one


def swap(*tokens: Token, **fields: Any) -> wire.CompleteAndLeaseRequest:
    return wire.CompleteAndLeaseRequest(tokens, **fields)


async def test_a_report_and_the_next_lease_are_one_commit(call: Caller) -> None:
    for name in ("a", "b", "c"):
        await call.enqueue(name)
    lease = await call.lease()
    before = (await call.stats()).last_sequence
    swapped = await call("completeAndLease", swap(lease.token, max_items=5, peer_id="w-2"))
    assert [result.success for result in swapped.results] == [True]
    assert [one.payload.resource_id for one in swapped.leases] == ["b", "c"]
    assert {one.owner_peer_id for one in swapped.leases} == {"w-2"}
    stats = await call.stats()
    assert (stats.stats.active_lease_count, stats.last_sequence) == (2, before + 3)
    done = await call("completeAndLease", swap(*(one.token for one in swapped.leases)))
    assert [result.success for result in done.results] == [True, True]
    assert done.leases == ()  # nothing is there, and it does not wait


async def test_a_report_that_is_refused_stops_no_lease(call: Caller) -> None:
    await call.enqueue("a")
    swapped = await call("completeAndLease", swap(NOBODYS))
    (result,), (lease,) = swapped.results, swapped.leases
    assert (result.success, result.error_status) == (False, "NOT_FOUND")
    assert lease.payload.resource_id == "a"


async def test_a_repeated_report_gets_the_same_lease(call: Caller) -> None:
    for name in ("a", "b", "c"):
        await call.enqueue(name)
    request = swap((await call.lease()).token, request_id="s-1")
    first, again = [await call("completeAndLease", request) for _ in range(2)]
    assert [result.success for result in again.results] == [True]
    assert [one.token for one in again.leases] == [one.token for one in first.leases]


@pytest.mark.parametrize(
    "request_", [swap(), swap(NOBODYS, max_items=0), swap(NOBODYS, max_items=1001)]
)
async def test_a_report_of_nothing_or_a_wish_for_too_much_is_refused(
    call: Caller, request_: wire.CompleteAndLeaseRequest
) -> None:
    await call.enqueue("a")
    with pytest.raises(InvalidArgument):
        await call("completeAndLease", request_)
    assert (await call.stats()).stats.pending_count == 1


async def leased(relay: Relay, count: int) -> list[Lease]:
    await relay.enqueue_many([Payload("table", f"t{n}") for n in range(count)])
    return await relay.lease_many(count)


@pytest.mark.parametrize("over", SDK_WIRES)
async def test_an_older_node_is_asked_in_two_calls(
    over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tuple(verb for verb in procedures._VERBS if verb.name != "completeAndLease")
    monkeypatch.setattr(procedures, "_VERBS", known)
    async with node() as opened, omnirelay.connect(opened.urls[over]) as relay:
        done = await leased(relay, 2)
        await relay.enqueue("table", "next")
        outcomes, leases = await relay.complete_and_lease(done, 5)
        assert not any(isinstance(one, OmniRelayError) for one in outcomes)
        assert [lease.resource_id for lease in leases] == ["next"]


async def test_a_node_that_drains_still_takes_the_report() -> None:
    async with node() as opened, omnirelay.connect(opened.urls["stream"]) as relay:
        done = await leased(relay, 1)
        await relay.enqueue("table", "next")
        turn_away(opened)
        outcomes, leases = await relay.complete_and_lease(done, 5)
        assert not any(isinstance(one, OmniRelayError) for one in outcomes)
        assert leases == []
        assert await counts(relay) == (1, 0)


def turn_away(opened: Node) -> None:
    opened._engines[NAMESPACE].shard.turn_away(Unavailable("this node is going away"))


async def test_a_wish_that_cannot_be_meant_is_refused_and_the_report_counts() -> None:
    async with node() as opened, omnirelay.connect(opened.urls["stream"]) as relay:
        done = await leased(relay, 1)
        with pytest.raises(InvalidArgument, match="leaseDurationMs"):
            await relay.complete_and_lease(done, 1, duration=0.001)
        assert await counts(relay) == (0, 0)


async def test_a_caller_that_goes_keeps_none_of_the_leases() -> None:
    async with node() as opened, omnirelay.connect(opened.urls["stream"]) as relay:
        done = await leased(relay, 1)
        await relay.enqueue("table", "next")
        swapping = asyncio.ensure_future(relay.complete_and_lease(done, 5))
        await asyncio.sleep(0)  # it is on its way
        swapping.cancel()
        await asyncio.wait([swapping])
        async with relay.lease(wait=10) as lease:
            assert lease.resource_id == "next"


async def test_a_worker_of_an_older_node_works_on(monkeypatch: pytest.MonkeyPatch) -> None:
    known = tuple(verb for verb in procedures._VERBS if verb.name != "completeAndLease")
    monkeypatch.setattr(procedures, "_VERBS", known)
    async with node() as opened, omnirelay.connect(opened.urls["stream"]) as relay:
        worker = Worker(relay, concurrency=2)

        @worker.handles("table")
        async def compact(lease: Lease) -> None:
            if worker.completed >= 4:
                worker.stop()

        await relay.enqueue_many([Payload("table", f"t{n}") for n in range(6)])
        await worker.run()
        assert (worker.completed, worker.lost) == (6, 0)
