"""Streams of a real node: events to follow, and `work`, where credits go up and leases down."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest

from omnirelay.journal.events import Event
from omnirelay.lease.answers import LeaseResponse
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh import wire
from omnirelay.model.errors import DeadlineExceeded, InvalidArgument, OmniRelayError, Unavailable
from omnirelay.model.items import Token
from omnirelay.node.node import Node
from omnirelay.rpc.meta import Request, RequestMeta, Stream
from tests.wire.grpc_served import raw_channel
from tests.wire.real_node import CLOCK, DUPLEX_WIRES, NAMESPACE, WIRES, Caller, caller, node

OPTIONS = QueueOptions(requeue_delay_ms=0, lease_duration_ms=600_000)
NOBODYS = Token(999, 1, "00000000-0000-0000-0000-000000000009")


class Shift:
    """A worker's side of `work`."""

    def __init__(self, call: Caller) -> None:
        self._call = call
        self._up: asyncio.Queue[wire.WorkRequest | None] = asyncio.Queue()
        self._down: AsyncGenerator[wire.WorkResponse]

    async def _messages(self) -> AsyncIterator[wire.WorkRequest]:
        while (message := await self._up.get()) is not None:
            yield message

    def say(self, **fields: Any) -> None:
        """Any: of the request."""
        self._up.put_nowait(wire.WorkRequest(**fields))

    def end(self) -> None:
        self._up.put_nowait(None)

    async def hear(self) -> wire.WorkResponse:
        async with asyncio.timeout(10):
            return await anext(self._down)

    async def leases(self, count: int) -> list[LeaseResponse]:
        found: list[LeaseResponse] = []
        while len(found) < count:
            found += (await self.hear()).leases
        return found

    async def hear_all(self) -> list[wire.WorkResponse]:
        async with asyncio.timeout(10):
            return [response async for response in self._down]

    @asynccontextmanager
    async def open(self) -> AsyncGenerator["Shift"]:
        self._down = await self._call.client.duplex("work", self._messages(), wire.WorkResponse)
        async with aclosing(self._down):
            yield self


@pytest.fixture
async def opened() -> AsyncIterator[Node]:
    async with node(OPTIONS) as one:
        yield one


@pytest.fixture(params=DUPLEX_WIRES)
async def call(opened: Node, request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    async with caller(opened, request.param) as one:
        yield one


async def fill(call: Caller, names: str) -> None:
    for name in names:
        await call.enqueue(name)


async def depths(call: Caller) -> tuple[int, int]:
    stats = (await call.stats()).stats
    return stats.pending_count, stats.active_lease_count


async def committed(call: Caller, kind: str, count: int) -> None:
    """Returns when the journal has so many events of that kind; they are its signal."""
    events = await call.client.server_stream("events", wire.EventsRequest(), Event)
    async with aclosing(events), asyncio.timeout(10):
        async for event in events:
            count -= event.event_type == kind
            if not count:
                return


# -- work ---------------------------------------------------------------------------------------


async def test_as_many_leases_come_as_there_are_credits(call: Caller) -> None:
    await fill(call, "abcde")
    async with Shift(call).open() as shift:
        shift.say(credits=2, peer_id="w-1")
        first = await shift.leases(2)
        assert [lease.payload.resource_id for lease in first] == ["a", "b"]
        assert {lease.owner_peer_id for lease in first} == {"w-1"}
        assert await depths(call) == (3, 2)
        shift.say(credits=1)
        (third,) = await shift.leases(1)
        assert third.owner_peer_id == "w-1"
        assert await depths(call) == (2, 3)


async def test_everything_that_goes_up_is_answered(call: Caller) -> None:
    await fill(call, "abcd")
    async with Shift(call).open() as shift:
        shift.say(credits=4)
        a, b, c, d = [lease.token for lease in await shift.leases(4)]
        shift.say(
            complete=(a, NOBODYS),
            release=(b,),
            heartbeat=(c,),
            fail=(wire.FailRequest(d, reason="no", requeue=False),),
        )
        results = (await shift.hear()).results
    assert [result.ownership_token for result in results] == [a, NOBODYS, b, c, d]
    assert [result.result.success for result in results] == [True, False, True, True, True]
    assert results[1].result.error_code == "error.resourcelease.unknown_token"
    assert results[3].result.remaining_ms is not None
    assert (await call.stats()).dead_letter_count == 1


async def test_a_blocked_worker_is_sent_work_when_it_comes(call: Caller) -> None:
    async with Shift(call).open() as shift:
        shift.say(credits=1, resource_types=("table",))
        await call.stats()
        await fill(call, "a")
        (lease,) = await shift.leases(1)
    assert lease.payload.resource_id == "a"


async def test_who_has_said_the_last_hears_the_rest(call: Caller) -> None:
    await fill(call, "a")
    async with Shift(call).open() as shift:
        shift.say(credits=1)
        (lease,) = await shift.leases(1)
        shift.say(complete=(lease.token,))
        shift.end()
        rest = await shift.hear_all()
    assert [result.result.success for one in rest for result in one.results] == [True]
    assert await depths(call) == (0, 0)


async def test_a_caller_that_leaves_keeps_what_it_was_sent_and_waits_for_nothing(
    opened: Node, call: Caller
) -> None:
    await fill(call, "a")
    async with Shift(call).open() as shift:
        shift.say(credits=5)
        await shift.leases(1)
    await call.enqueue("b")
    assert (await call.lease()).payload.resource_id == "b"


async def test_bad_wishes_end_the_stream_in_words(call: Caller) -> None:
    async with Shift(call).open() as shift:
        shift.say(credits=1, lease_duration_ms=1)
        with pytest.raises(InvalidArgument, match="leaseDurationMs"):
            await shift.hear()


async def test_a_node_that_drains_sends_workers_away_and_takes_their_reports(
    opened: Node, call: Caller
) -> None:
    await fill(call, "a")
    async with Shift(call).open() as shift:
        shift.say(credits=2)
        (lease,) = await shift.leases(1)
        opened.drain()
        with pytest.raises(Unavailable):
            await shift.hear()
    assert (await call("complete", wire.TokenRequest(lease.token))).success


@pytest.mark.parametrize("over", DUPLEX_WIRES)
async def test_what_was_leased_for_a_caller_that_does_not_read_goes_back_when_it_leaves(
    over: str,
) -> None:
    """More than any window holds is granted, so some of it was never sent."""
    async with node(OPTIONS) as opened, caller(opened, "stream") as other:
        for number in range(40):
            await other.enqueue(f"{number}", body=bytes(1_000_000))
        async with caller(opened, over) as call, Shift(call).open() as shift:
            shift.say(credits=40)
            sent = (await shift.hear()).leases
            assert (await depths(other))[1] < 40  # who reads slowly is not granted everything
        await committed(other, "Released", 4)
        pending, active = await depths(other)
        assert pending + active == 40
        assert active >= len(sent)


async def test_a_caller_that_only_talks_is_not_listened_to_for_ever(call: Caller) -> None:
    """Its answers are not read, so at some point neither are its messages: memory stays bounded."""
    await fill(call, "a")
    lease = await call.lease()
    async with Shift(call).open() as shift:
        for _ in range(2_000):
            shift.say(heartbeat=(lease.token,))
        shift.end()
        answers = await shift.hear_all()
    assert sum(len(answer.results) for answer in answers) == 2_000


# -- events -------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", WIRES)
async def test_events_are_followed_over_every_wire(opened: Node, over: str) -> None:
    async with caller(opened, over) as call:
        await fill(call, "a")
        events = await call.client.server_stream("events", wire.EventsRequest(from_=2), Event)
        async with aclosing(events), asyncio.timeout(10):
            first = await anext(events)
            lease = await call.lease(peer_id="w")
            second = await anext(events)
    assert (first.sequence_number, first.event_type) == (2, "Enqueue")
    assert (second.sequence_number, second.event_type) == (3, "LeaseGranted")
    assert (second.fence, second.peer_id, second.principal) == (lease.fence, "w", "anonymous")


@pytest.mark.parametrize("over", WIRES)
async def test_events_may_end_at_their_end(opened: Node, over: str) -> None:
    async with caller(opened, over) as call:
        await fill(call, "ab")
        events = await call.client.server_stream(
            "events", wire.EventsRequest(from_=0, follow=False), Event
        )
        async with asyncio.timeout(10):
            kinds = [event.event_type async for event in events]
    assert kinds == ["EpochStarted", "Enqueue", "Enqueue"]


@pytest.mark.parametrize("over", WIRES)
async def test_a_stream_ends_at_its_deadline(opened: Node, over: str) -> None:
    async with caller(opened, over) as call:
        codec = call.outbound.codec
        meta = RequestMeta(
            procedure=f"{NAMESPACE}::events",
            transport=call.outbound.name,
            encoding=codec.name,
            expires_ms=CLOCK.monotonic_ms() + 150,
        )
        request = Request(meta, codec.encode(wire.EventsRequest()), codec)
        with pytest.raises(DeadlineExceeded):
            await read_to_the_end(call, request)


async def read_to_the_end(call: Caller, request: Request) -> None:
    reply = await call.outbound(request)
    assert isinstance(reply, Stream)
    async with aclosing(reply.messages) as messages, asyncio.timeout(10):
        async for _ in messages:
            continue


# -- gRPC by hand -------------------------------------------------------------------------------

REFUSED: list[tuple[str, object, grpc.StatusCode, str]] = [
    ("enqueue", {}, grpc.StatusCode.INVALID_ARGUMENT, "resourcelease.payload.required"),
    ("enqueue", b"{", grpc.StatusCode.INVALID_ARGUMENT, "error.invalid_argument"),
    (
        "complete",
        {"ownershipToken": msgspec.to_builtins(NOBODYS)},
        grpc.StatusCode.NOT_FOUND,
        "error.resourcelease.unknown_token",
    ),
    ("explode", {}, grpc.StatusCode.UNIMPLEMENTED, "error.unimplemented"),
]


@pytest.mark.parametrize(("verb", "body", "status", "code"), REFUSED)
async def test_a_refusal_over_grpc_keeps_status_and_code(
    opened: Node, verb: str, body: object, status: grpc.StatusCode, code: str
) -> None:
    """G33: neither is lost on the way, nor replaced by the other's name."""
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    async with raw_channel(opened.urls["grpc"].removeprefix("grpc://")) as channel:
        method: Any = channel.unary_unary(f"/{NAMESPACE}/{verb}")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await method(encoded, timeout=8)
    trailers = dict(refused.value.trailing_metadata())
    assert refused.value.code() is status
    assert msgspec.json.decode(trailers["rpc-error-bin"])["code"] == code
    assert trailers["rpc-error-code"] == code


async def test_a_stale_token_over_grpc_carries_the_fence(opened: Node) -> None:
    async with caller(opened, "grpc") as call:
        await fill(call, "a")
        old = (await call.lease()).token
        await call("release", wire.TokenRequest(old))
        new = await call.lease()
        with pytest.raises(OmniRelayError) as refused:
            await call("complete", wire.TokenRequest(old))
    assert refused.value.details["currentFence"] == new.fence
    assert refused.value.status == "FAILED_PRECONDITION"
