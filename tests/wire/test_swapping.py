"""A worker's report in the call that asks for more, when the node is not at its best."""

import asyncio

import pytest

import omnirelay
from omnirelay import Lease, OmniRelayError, Payload, Relay, Worker
from omnirelay.mesh import procedures
from omnirelay.model.errors import InvalidArgument, Unavailable
from omnirelay.node.node import Node
from tests.embedded.signals import counts
from tests.wire.real_node import NAMESPACE, WIRES, node

SDK_WIRES = [wire for wire in WIRES if wire in ("http", "grpc", "stream")]


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
