"""A lease call that says only when its caller stops listening waits until just before."""

import asyncio

import pytest

from omnirelay.lease.answers import LeaseResponse
from omnirelay.mesh import wire
from omnirelay.rpc.meta import Request, RequestMeta, Response
from tests.wire.real_node import CLOCK, NAMESPACE, WIRES, Caller, caller, node


async def asked(call: Caller, verb: str, message: object, ttl_ms: int) -> Response:
    codec = call.outbound.codec
    meta = RequestMeta(
        procedure=f"{NAMESPACE}::{verb}",
        transport=call.outbound.name,
        encoding=codec.name,
        expires_ms=CLOCK.monotonic_ms() + ttl_ms,
    )
    reply = await call.outbound(Request(meta, codec.encode(message), codec))
    assert isinstance(reply, Response)
    return reply


@pytest.mark.parametrize("over", WIRES)
async def test_without_a_wait_of_its_own_a_lease_waits_for_work_until_its_deadline(
    over: str,
) -> None:
    async with node() as opened, caller(opened, over) as call, caller(opened, over) as other:
        early = await asked(call, "lease", wire.LeaseRequest(wait_ms=0), 10_000)
        assert early.empty
        waiting = asyncio.create_task(asked(call, "lease", wire.LeaseRequest(), 10_000))
        await other.stats()  # it stands in line by now
        await other.enqueue("a")
        leased = call.outbound.codec.decode((await waiting).body, LeaseResponse)
        assert leased.payload.resource_id == "a"


@pytest.mark.parametrize("over", WIRES)
async def test_one_that_waited_in_vain_is_told_so_before_its_deadline(over: str) -> None:
    async with node() as opened, caller(opened, over) as call:
        one, many = await asyncio.gather(
            asked(call, "lease", wire.LeaseRequest(), 2_000),
            asked(call, "leaseBatch", wire.LeaseBatchRequest(max_items=2), 2_000),
        )
        assert one.empty
        batch = call.outbound.codec.decode(many.body, wire.LeaseBatchResponse)
        assert batch.leases == ()
