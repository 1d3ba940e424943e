"""Any node takes any call: what a follower is asked, the owner answers."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from omnirelay.journal.events import Event
from omnirelay.mesh import wire
from omnirelay.model.errors import InvalidPayload, NotOwner, StaleToken, UnknownToken
from omnirelay.model.items import Payload, Token
from omnirelay.node.node import Node
from omnirelay.rpc.headers import FORWARDED
from omnirelay.testing.raw_http import RawHttp
from omnirelay.transports.stream_inbound import StreamInbound
from tests.cluster.pairs import pair, roles, until
from tests.wire.real_node import DUPLEX_WIRES, JSON, WIRES, Caller, caller, post, said
from tests.wire.test_contract_streams import Shift

NOBODYS = Token(999, 1, "00000000-0000-0000-0000-000000000009")


async def kinds(call: Caller, count: int) -> list[str]:
    """Of the first so many events, as the node that is asked has them."""
    events = await call.client.server_stream("events", wire.EventsRequest(), Event)
    found: list[str] = []
    async with aclosing(events), asyncio.timeout(10):
        async for event in events:
            found.append(event.event_type)
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("over", WIRES)
async def test_a_follower_answers_as_the_owner_would(tmp_path: Path, over: str) -> None:
    async with pair(tmp_path) as nodes, caller(nodes.follower, over) as call:
        await call.enqueue("a")
        items = (wire.EnqueueRequest(payload=Payload("table", "b")),)
        many = await call("enqueueBatch", wire.EnqueueBatchRequest(items=items))
        assert [result.sequence_id for result in many.results] == [2]
        lease = await call.lease(peer_id="w-1")
        token = wire.TokenRequest(lease.token)
        assert (await call("heartbeat", token)).success
        assert (await call("complete", token)).success
        other = await call.lease(wait_ms=100)
        assert (await call("release", wire.TokenRequest(other.token))).success
        with pytest.raises(StaleToken):
            await call("heartbeat", wire.TokenRequest(other.token))
        with pytest.raises(UnknownToken):
            await call("complete", wire.TokenRequest(NOBODYS))
        with pytest.raises(InvalidPayload):
            await call("enqueue", wire.EnqueueRequest(payload=Payload("table", " ")))
        view = await call("inspect", wire.InspectRequest(sequence_id=2))
        assert (view.state, len(view.history)) == ("ready", 3)
        drained = await call("drain", wire.DrainRequest())
        back = await call("restore", wire.RestoreRequest(items=drained.items))
        assert back.restored_count == 1
        stats = await call.stats()
        assert (stats.leader, stats.epoch, stats.stats.pending_count) == ("a", 1, 1)
        told = await kinds(call, 8)
    assert told[0] == "EpochStarted"
    assert told.count("LeaseGranted") == 2


async def test_nothing_to_lease_is_an_empty_answer_through_a_follower_too(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes:
        answer = await post(nodes.follower, "/v1/resourcelease/lease", {"waitMs": 20})
    assert answer.status == 204


@pytest.mark.parametrize("over", DUPLEX_WIRES)
async def test_a_shift_is_worked_through_a_follower(tmp_path: Path, over: str) -> None:
    async with pair(tmp_path) as nodes, caller(nodes.follower, over) as call:
        for name in "abc":
            await call.enqueue(name)
        async with Shift(call).open() as shift:
            shift.say(credits=2, peer_id="w-1")
            leases = await shift.leases(2)
            assert [lease.payload.resource_id for lease in leases] == ["a", "b"]
            shift.say(complete=tuple(lease.token for lease in leases))
            (response,) = [await shift.hear()]
            assert [result.result.success for result in response.results] == [True, True]
            shift.end()
            await shift.hear_all()
        assert (await call.stats()).stats.pending_count == 1


async def test_what_was_passed_on_once_is_not_passed_on_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes:
        async with caller(nodes.follower, "stream", headers={FORWARDED: "1"}) as call:
            with pytest.raises(NotOwner):
                await call.enqueue("a")
        async with caller(nodes.owner, "stream", headers={FORWARDED: "1"}) as call:
            assert (await call.enqueue("a")).sequence_id == 1


async def test_a_node_that_drains_hands_its_queues_over_first(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes, caller(nodes.owner, "http") as call:
        await call.enqueue("a")
        waiting = asyncio.create_task(call.lease(wait_ms=10_000, resource_types=("saga",)))
        await call.stats()  # by now it waits
        answer = await post(nodes.owner, "/omnirelay/control/upgrade/drain", {}, **JSON)
        assert said(answer)["state"] == "draining"
        await until(lambda: roles(nodes) == ["follower", "owner"])
        assert nodes.owner.trouble == "the node is draining"
        # What comes to it nevertheless is passed on, and whoever waited waits on.
        saga = wire.EnqueueRequest(payload=Payload("saga", "s"))
        assert (await call("enqueue", saga)).sequence_id == 2
        assert (await waiting).payload.resource_id == "s"
        await post(nodes.owner, "/omnirelay/control/upgrade/resume", {}, **JSON)
        assert nodes.owner.trouble is None
        await post(nodes.follower, "/omnirelay/control/upgrade/drain", {}, **JSON)
        assert (await call.stats()).leader == "a"


async def test_the_windows_show_who_owns_and_who_follows(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes, caller(nodes.owner, "stream") as call:
        for name in "abcdef":
            await call.enqueue(name)
        (checkpoint,) = (await shown(nodes.owner, "replication/checkpoint"))["shards"]
        others = (await shown(nodes.follower, "peers"))["nodes"]
        (row,) = (await shown(nodes.follower, "shards"))["shards"]
    assert (checkpoint["leader"], checkpoint["epoch"]) == ("a", 1)
    assert [sink["name"] for sink in checkpoint["sinks"]] == ["node:b"]
    assert (row["role"], row["leader"], row["isReady"]) == ("follower", "a", True)
    assert [(one["nodeId"], one["isAnswering"]) for one in others] == [("a", True)]


async def shown(opened: Node, name: str) -> Any:
    """Any: JSON."""
    async with RawHttp(opened.urls["http"]) as raw:
        return said(await raw.ask("GET", f"/omnirelay/control/{name}"))


async def test_calls_that_are_passed_on_share_one_connection_to_the_owner(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes, caller(nodes.follower, "stream") as call:
        (door,) = (one for one in nodes.owner._inbounds if isinstance(one, StreamInbound))
        before = len(door.traffic.members)  # the other node's questions have one of their own
        await call.enqueue("first")
        with_one = set(door.traffic.members)
        await asyncio.gather(*(call.enqueue(f"t{number}") for number in range(20)))
        await call.enqueue("last")
        assert len(with_one) == before + 1
        assert door.traffic.members == with_one
