"""Callers that wait in line on a real node, and those that leave it."""

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest

from omnirelay.lease.answers import LeaseResponse
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh import wire
from omnirelay.model.errors import StaleToken
from omnirelay.node.node import Node
from omnirelay.testing.raw_http import RawHttp
from tests.wire.real_node import WIRES, Caller, caller, node

LONG = QueueOptions(lease_duration_ms=3_600_000)
"""Nothing comes back by expiry here, only by being given back."""
COUNT = 30


def waiting(opened: Node) -> set[str | None]:
    """Request ids of those in line."""
    line = opened._engines["resourcelease"].shard._hall._leases
    return {call.request_id for call in line._waiting if not call.withdrawn}


async def in_line(opened: Node, call: Caller, name: str) -> "asyncio.Task[object]":
    """A lease call that waits when this returns."""
    request = wire.LeaseRequest(wait_ms=600_000, request_id=name)
    task: asyncio.Task[object] = asyncio.create_task(call("lease", request))
    async with asyncio.timeout(10):
        while name not in waiting(opened):
            await call.stats()
    return task


async def line_is_empty(opened: Node, call: Caller) -> None:
    async with asyncio.timeout(10):
        while waiting(opened):
            await call.stats()


async def test_whoever_waits_longest_is_served_first_whatever_the_wire() -> None:
    async with node(LONG) as opened, AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(caller(opened, over)) for over in WIRES]
        tasks = [await in_line(opened, call, str(at)) for at, call in enumerate(calls)]
        for name in "abcd":
            await calls[0].enqueue(name)
        leases = await asyncio.gather(*tasks)
    assert [lease.payload.resource_id for lease in leases] == list("abcd")  # type: ignore[attr-defined]


@pytest.mark.parametrize("over", WIRES)
async def test_who_leaves_the_line_is_given_nothing(over: str) -> None:
    async with node(LONG) as opened, caller(opened, "http") as other:
        async with caller(opened, over) as call:
            for name in "xyz":
                (await in_line(opened, call, name)).cancel()
            await line_is_empty(opened, other)
        await other.enqueue("a")
        lease = await other.lease()
    assert (lease.payload.resource_id, lease.attempt) == ("a", 1)


async def test_a_connection_that_breaks_leaves_the_line_too() -> None:
    async with node(LONG) as opened, caller(opened, "grpc") as other:
        async with RawHttp(opened.urls["http"]) as raw:
            body = b'{"waitMs":600000,"requestId":"x"}'
            head = f"POST /v1/resourcelease/lease HTTP/1.1\r\ncontent-length: {len(body)}"
            await raw.send(f"{head}\r\nhost: t\r\n\r\n".encode() + body)
            async with asyncio.timeout(10):
                while not waiting(opened):
                    await other.stats()
        await line_is_empty(opened, other)
        await other.enqueue("a")
        assert (await other.lease()).attempt == 1


@pytest.mark.parametrize("over", WIRES)
async def test_callers_that_leave_at_any_moment_lose_nothing(over: str) -> None:
    """An answer that was on its way is fetched by asking again with its request id; whatever was
    not answered is free at once, untried."""
    draw = Random(over)
    async with node(LONG) as opened, caller(opened, "http") as other:
        async with caller(opened, over) as call:
            for number in range(COUNT):
                request = wire.LeaseRequest(wait_ms=600_000, request_id=str(number))
                task = asyncio.create_task(call("lease", request))
                for _ in range(draw.randrange(8)):
                    await asyncio.sleep(0)
                await other.enqueue(str(number))
                for _ in range(draw.randrange(12)):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await line_is_empty(opened, other)
        held = [await repeated(other, str(number)) for number in range(COUNT)]
        free = await other("leaseBatch", wire.LeaseBatchRequest(max_items=COUNT))
    leases = [*(lease for lease in held if lease is not None), *free.leases]
    assert sorted(lease.sequence_id for lease in leases) == list(range(1, COUNT + 1))
    assert {lease.attempt for lease in leases} == {1}


async def repeated(call: Caller, name: str) -> LeaseResponse | None:
    """What the request was given, if it still is."""
    try:
        lease = await call("lease", wire.LeaseRequest(request_id=name))
    except StaleToken:
        return None  # it was given, and given back
    assert lease is None or isinstance(lease, LeaseResponse)
    return lease
