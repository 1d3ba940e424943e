"""The caller's side of HTTP, against a real inbound and against servers that misbehave."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from omnirelay.model import limits
from omnirelay.model.errors import (
    DeadlineExceeded,
    InvalidArgument,
    InvalidOption,
    OmniRelayError,
    OutcomeUnknown,
    StaleToken,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.codec import MSGPACK
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response, Stream
from omnirelay.transports.http_outbound import HttpOutbound
from tests.wire.http_echo import Served, served, soon

CLOCK = SystemClock()
SAY = b'{"text":"hello"}'


def asked(verb: str, body: bytes = b"{}", **meta: object) -> Request:
    described = RequestMeta(procedure=f"echo::{verb}", transport="http", **meta)  # type: ignore[arg-type]
    return Request(meta=described, body=body)


def answered(reply: Reply) -> Response:
    assert isinstance(reply, Response)
    return reply


def streamed(reply: Reply) -> AsyncGenerator[bytes]:
    assert isinstance(reply, Stream)
    return reply.messages


@asynccontextmanager
async def calling(url: str, **options: object) -> AsyncGenerator[HttpOutbound]:
    outbound = HttpOutbound(url, clock=CLOCK, **options)  # type: ignore[arg-type]
    await outbound.start()
    try:
        yield outbound
    finally:
        await outbound.stop()


@pytest.fixture
async def node() -> AsyncGenerator[Served]:
    async with served() as running:
        yield running


@pytest.fixture
async def call(node: Served) -> AsyncGenerator[HttpOutbound]:
    async with calling(node.url) as outbound:
        yield outbound


async def test_a_call_goes_out_with_its_meta_and_comes_back(
    node: Served, call: HttpOutbound
) -> None:
    expires_ms = CLOCK.monotonic_ms() + 60_000
    trace = {"traceparent": "00-1-2-01", "authorization": "Bearer of another caller"}
    request = asked(
        "say",
        SAY,
        caller="me",
        shard_key="schlüssel",
        routing_key="r",
        routing_delegate="d",
        peer_id="p",
        expires_ms=expires_ms,
        headers=trace,
    )
    assert answered(await call(request)).body == SAY
    (meta,) = node.echo.metas
    assert (meta.caller, meta.shard_key, meta.peer_id) == ("me", "schlüssel", "p")
    assert (meta.routing_key, meta.routing_delegate) == ("r", "d")
    assert meta.expires_ms is not None
    assert abs(meta.expires_ms - expires_ms) < 5_000
    assert meta.headers["traceparent"] == "00-1-2-01"
    assert "authorization" not in meta.headers, "what came with one call is not passed on unasked"


async def test_headers_of_the_outbound_go_with_every_call(node: Served) -> None:
    async with calling(node.url, headers={"authorization": "Bearer mine"}) as call:
        await call(asked("say"))
    assert node.echo.metas[0].headers["authorization"] == "Bearer mine"


async def test_msgpack_goes_too(node: Served) -> None:
    async with calling(node.url, codec=MSGPACK) as call:
        body = MSGPACK.encode({"text": "hello"})
        request = Request(meta=asked("say").meta, body=body, codec=MSGPACK)
        assert MSGPACK.decode(answered(await call(request)).body, dict) == {"text": "hello"}


async def test_empty_and_oneway_answers_are_empty(call: HttpOutbound) -> None:
    assert answered(await call(asked("nothing"))).empty
    assert answered(await call(asked("tell"))).empty


async def test_an_error_comes_back_as_the_class_it_was(call: HttpOutbound) -> None:
    with pytest.raises(StaleToken, match="ünlucky") as refused:
        await call(asked("stale"))
    assert refused.value.current_fence == 12
    with pytest.raises(Unimplemented):
        await call(asked("unknown"))
    with pytest.raises(InvalidArgument):
        await call(asked("say", b"{"))


async def test_a_stream_comes_message_by_message(call: HttpOutbound) -> None:
    messages = streamed(await call(asked("count", b'{"from":1,"upto":500}')))
    read = [message async for message in messages]
    assert len(read) == 500
    assert read[0] == b'{"sequenceNumber":1,"text":""}'


async def test_a_stream_that_breaks_raises_the_same_error(call: HttpOutbound) -> None:
    with pytest.raises(StaleToken):
        await call(asked("breaks", b'{"upto":0}'))
    messages = streamed(await call(asked("breaks", b'{"upto":2}')))
    assert [await anext(messages), await anext(messages)]
    with pytest.raises(StaleToken):
        await anext(messages)


@pytest.mark.parametrize("is_read", [True, False])
async def test_closing_a_stream_ends_it_on_the_other_side(
    node: Served, call: HttpOutbound, is_read: bool
) -> None:
    messages = streamed(await call(asked("follow")))
    if is_read:
        await anext(messages)
    await messages.aclose()
    await soon(node.echo.closed)


async def test_a_client_stream_goes_out_line_by_line(call: HttpOutbound) -> None:
    async def some() -> AsyncIterator[bytes]:
        for text in "abc":
            yield b'{"text":"%b"}' % text.encode()

    request = Request(meta=asked("sum").meta, inbound=some())
    assert answered(await call(request)).body == b'{"text":"a+b+c","count":3}'


async def test_an_endless_client_stream_ends_with_its_answer(call: HttpOutbound) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"nonsense"
        await asyncio.Event().wait()

    request = Request(meta=asked("sum").meta, inbound=endless())
    with pytest.raises(InvalidArgument):
        await call(request)


async def test_a_duplex_call_is_refused(call: HttpOutbound) -> None:
    async def none() -> AsyncIterator[bytes]:
        return
        yield b""

    with pytest.raises(Unimplemented, match="HTTP"):
        await call(Request(meta=asked("talk").meta, inbound=none()))


async def test_a_cancelled_call_is_ended_on_the_other_side(
    node: Served, call: HttpOutbound
) -> None:
    waiting = asyncio.ensure_future(call(asked("wait")))
    await soon(node.echo.waiting)
    waiting.cancel()
    await soon(node.echo.cancelled)


async def test_a_deadline_is_kept_on_this_side_too(node: Served) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async with misbehaving(silent) as url, calling(url) as call:
        with pytest.raises(DeadlineExceeded):
            await call(asked("say", expires_ms=CLOCK.monotonic_ms() + 50))


async def test_a_name_with_a_line_end_goes_nowhere(node: Served, call: HttpOutbound) -> None:
    with pytest.raises(InvalidArgument):
        await call(asked("say", caller="a\r\nx-peer-id: b"))
    assert not node.echo.metas


@pytest.mark.parametrize("url", ["", "ftp://a", "http://", "http://a:port", "localhost:7400"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption):
        HttpOutbound(url, clock=CLOCK)


# -- servers that misbehave ----------------------------------------------------------------------

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def misbehaving(serve: Serve) -> AsyncGenerator[str]:
    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def saying(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    return serve


async def test_who_is_not_there_was_not_asked() -> None:
    async with misbehaving(saying(b"")) as url:
        gone = url
    async with calling(gone) as call:
        with pytest.raises(Unavailable) as refused:
            await call(asked("say"))
    assert not isinstance(refused.value, OutcomeUnknown)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", OutcomeUnknown),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", OutcomeUnknown),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{", OutcomeUnknown),
        (b"nonsense\r\n\r\n", OutcomeUnknown),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\n<p>!", OutcomeUnknown),
        (b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", OutcomeUnknown),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", Unavailable),
        (b"HTTP/1.1 401 Who\r\ncontent-length: 2\r\n\r\n{}", Unauthenticated),
        (b"HTTP/1.1 404 No\r\ncontent-length: 2\r\n\r\n\xff{", Unimplemented),
    ],
)
async def test_an_answer_that_is_none_says_what_is_known(
    answer: bytes, kind: type[OmniRelayError]
) -> None:
    async with misbehaving(saying(answer)) as url, calling(url) as call:
        with pytest.raises(OmniRelayError) as refused:
            await call(asked("say"))
    assert type(refused.value) is kind


async def test_an_answer_without_end_is_not_kept() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        sent = 0
        try:
            while sent < 4 * limits.MESSAGE_BYTES_MAX:
                writer.write(b"x" * 65536)
                sent += 65536
                await writer.drain()
        except ConnectionError:
            return

    async with misbehaving(endless) as url, calling(url) as call:
        with pytest.raises(TooLarge):
            await call(asked("say"))


async def test_a_stream_that_is_cut_off_is_not_taken_for_ended() -> None:
    cut = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        b"c\r\ndata: {}\n\nda\r\n"
    )
    async with misbehaving(saying(cut)) as url, calling(url) as call:
        messages = streamed(await call(asked("count")))
        assert await anext(messages) == b"{}"
        with pytest.raises(OutcomeUnknown):
            await anext(messages)
