"""Nodes that break the protocol, break off or flood, and streams that end before their end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from omnirelay.model.errors import (
    OmniRelayError,
    OutcomeUnknown,
    Overloaded,
)
from omnirelay.rpc.meta import Response, Stream
from omnirelay.rpc.status import ErrorBody
from omnirelay.testing.transport_echo import Said
from omnirelay.transports.stream_flow import WINDOW_MESSAGES
from omnirelay.transports.stream_frames import (
    VERSION,
    CancelFrame,
    CreditFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    Hello,
    MessageFrame,
    OpenFrame,
    Ping,
    ReplyFrame,
    Welcome,
    pack,
)
from omnirelay.transports.stream_outbound import StreamOutbound
from tests.wire.stream_fake import Guest, fake_node
from tests.wire.stream_raw import CLOCK, EMPTY, ask, asking, served, soon, until


@asynccontextmanager
async def calling(url: str, **options: Any) -> AsyncGenerator[StreamOutbound]:
    outbound = StreamOutbound(url, clock=CLOCK, **options)
    try:
        yield outbound
    finally:
        await outbound.stop()


def refusal(code: str, status: str) -> ErrorBody:
    return ErrorBody("so it is", status, code)


@pytest.mark.parametrize(
    "lies",
    [
        [MessageFrame(1, b"")],
        [EndFrame(1)],
        [OpenFrame(1), OpenFrame(1)],
        [OpenFrame(1), ReplyFrame(1, EMPTY)],
        [OpenFrame(1), EndFrame(1), MessageFrame(1, b""), Welcome(VERSION)],
        [OpenFrame(1), *[MessageFrame(1, b"x")] * (WINDOW_MESSAGES + 1)],
        [CreditFrame(1, 1, 1)],
        [Welcome(VERSION)],
        [Hello(VERSION)],
        [CancelFrame(1)],
        [b"\xff\xff\xff\xff"],
        [b"\0\0\0\1\xc1"],
        [b"\0\0\0\2\x91\x63"],
    ],
    ids=repr,
)
async def test_a_node_that_breaks_the_protocol_is_left(lies: list[Frame | bytes]) -> None:
    left = asyncio.Event()

    async def lie(guest: Guest) -> None:
        await guest.call()
        await guest.send(*lies)
        await guest.gone()
        left.set()

    async with fake_node(lie) as node, calling(node.url) as outbound:
        try:
            async with asyncio.timeout(4):
                reply = await outbound(asking("say"))
                assert isinstance(reply, Stream)
                async for _ in reply.messages:
                    pass
        except OutcomeUnknown as error:
            assert "protocol" in error.message  # noqa: PT017 - some lies come after a good end
        await soon(left)


async def test_answers_to_calls_that_were_never_made_are_passed_by() -> None:
    async def chat(guest: Guest) -> None:
        call = await guest.call()
        for stranger in (77, -1, 1 << 62):
            await guest.send(
                ReplyFrame(stranger),
                OpenFrame(stranger),
                MessageFrame(stranger, b"x"),
                CreditFrame(stranger, 1 << 62, 1),
                ErrorFrame(stranger, refusal("error.internal", "INTERNAL")),
            )
        await guest.send(ReplyFrame(call.id, EMPTY))
        await guest.gone()

    async with fake_node(chat) as node, calling(node.url) as outbound:
        assert await ask(outbound, "say") == Said()


async def test_an_error_may_have_details_of_any_name() -> None:
    async def refuse(guest: Guest) -> None:
        call = await guest.call()
        details = {"message": "m", "self": 1, "error": None, "": [1, {"a": 2}]}
        await guest.send(ErrorFrame(call.id, ErrorBody("no", "NEW_STATUS", "error.new", details)))
        await guest.gone()

    async with fake_node(refuse) as node, calling(node.url) as outbound:
        with pytest.raises(OmniRelayError, match="no") as caught:
            await outbound(asking("say"))
        assert caught.value.code == "error.new"
        assert caught.value.details["message"] == "m"


async def test_pings_without_end_do_not_fill_the_caller() -> None:
    async def nag(guest: Guest) -> None:
        await guest.call()
        while True:
            await guest.send(pack(Ping(1 << 60)) * 1000)

    async with fake_node(nag) as node, calling(node.url) as outbound:
        call = asyncio.create_task(outbound(asking("say")))
        await until(lambda: outbound._connection is not None)
        connection = outbound._connection
        assert connection is not None
        await until(lambda: not connection._can_write.is_set())
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() < 1 << 20
        call.cancel()


async def test_the_bounds_of_the_welcome_are_kept() -> None:
    async def small(guest: Guest) -> None:
        await guest.next(Hello)
        await guest.send(Welcome(VERSION, body_bytes=100, calls=2))
        await guest.call()
        await guest.call()
        await guest.gone()

    async with fake_node(small) as node, calling(node.url) as outbound:
        calls = [asyncio.create_task(outbound(asking("say"))) for _ in range(2)]
        await until(lambda: outbound._connection is not None)
        with pytest.raises(Overloaded):
            await outbound(asking("say", Said("x" * 20)))
        with pytest.raises(OmniRelayError, match="limit is 100"):
            await outbound(asking("say", Said("x" * 200)))
        await outbound.stop()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(one) for one in outcomes} == {OutcomeUnknown}


# -- streams --------------------------------------------------------------------------------------


async def test_a_connection_lost_while_a_stream_is_read_is_an_error_after_what_came() -> None:
    async def break_off(guest: Guest) -> None:
        call = await guest.call()
        await guest.send(
            OpenFrame(call.id), MessageFrame(call.id, b"a"), MessageFrame(call.id, b"b")
        )

    async with fake_node(break_off) as node, calling(node.url) as outbound:
        reply = await outbound(asking("count"))
        assert isinstance(reply, Stream)
        assert [await anext(reply.messages), await anext(reply.messages)] == [b"a", b"b"]
        with pytest.raises(OutcomeUnknown):
            await anext(reply.messages)
        with pytest.raises(StopAsyncIteration):
            await anext(reply.messages)


async def test_a_stream_that_is_closed_unread_ends_at_its_source() -> None:
    async with served() as node, node.outbound() as outbound:
        reply = await outbound(asking("count", Said("stay", 3)))
        assert isinstance(reply, Stream)
        await reply.messages.aclose()
        await soon(node.echo.closed)
        assert outbound._connection is not None
        assert not outbound._connection.calls
        with pytest.raises(StopAsyncIteration):
            await anext(reply.messages)


async def test_what_a_callers_iterator_raises_is_raised_to_it_and_is_no_end() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield EMPTY
        raise LookupError("mine")

    heard: list[object] = []

    async def listen(guest: Guest) -> None:
        await guest.call()
        heard.append(await guest.next(MessageFrame))
        heard.append(await guest.next(CancelFrame))
        await guest.gone()

    async with fake_node(listen) as node, calling(node.url) as outbound:
        with pytest.raises(LookupError, match="mine"):
            await outbound(asking("sum", inbound=broken()))
        await until(lambda: len(heard) == 2)


async def test_an_iterator_that_breaks_while_the_answers_are_read() -> None:
    go_on = asyncio.Event()

    async def broken() -> AsyncIterator[bytes]:
        yield EMPTY
        await go_on.wait()
        raise TimeoutError("mine")

    async with served() as node, node.outbound() as outbound:
        reply = await outbound(asking("chat", inbound=broken()))
        assert isinstance(reply, Stream)
        await anext(reply.messages)
        go_on.set()
        with pytest.raises(TimeoutError, match="mine"):
            await anext(reply.messages)


async def test_an_answer_before_the_end_stops_what_is_still_being_sent() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield EMPTY
        finally:
            closed.set()

    async def early(guest: Guest) -> None:
        call = await guest.call()
        await guest.send(ReplyFrame(call.id, EMPTY))
        await guest.gone()

    async with fake_node(early) as node, calling(node.url) as outbound:
        assert isinstance(await outbound(asking("sum", inbound=endless())), Response)
        await soon(closed)
