"""Bytes that no caller should send to the stream port. Each gets a clear refusal or a goodbye that
says why, and the node answers the next caller as if nothing had been."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest

from omnirelay.model import limits
from omnirelay.rpc.codec import MSGPACK
from omnirelay.rpc.status import ErrorBody
from omnirelay.testing import figures
from omnirelay.testing.transport_echo import Said
from omnirelay.transports.stream_frames import (
    LENGTH_BYTES,
    OVERHEAD_BYTES,
    VERSION,
    CallFrame,
    CancelFrame,
    CreditFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    Goodbye,
    Hello,
    MessageFrame,
    OpenFrame,
    Ping,
    Pong,
    ReplyFrame,
    Welcome,
    pack,
)
from tests.wire.stream_raw import EMPTY, HELLO, Again, RawStream, Served, served

WAIT = CallFrame(1, "echo::wait", EMPTY)
SUM = CallFrame(1, "echo::sum", EMPTY)
NO = ErrorBody("no", "INTERNAL", "error.internal")
INVALID = "error.invalid_argument"
TOO_LARGE = "error.body_too_large"


@pytest.fixture
async def node() -> AsyncGenerator[Served]:
    async with served() as running:
        yield running
        await running.still_serves()


def count(tried: int = 1, *, failed: int = 0, accepted: int = 0) -> None:
    figures.record("inputs", tried=tried, server_errors=failed, wrongly_accepted=accepted)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_BYTES) + body


def frame_of(*parts: object) -> bytes:
    return framed(msgspec.msgpack.encode(parts))


def map_of(size: int) -> dict[str, str]:
    return {f"x-{number}": "v" for number in range(size)}


WITHOUT_HELLO = {
    "a header twice": (pack(Hello(VERSION, {Again("x"): "a", Again("x"): "b"})), INVALID),
    "a call first": (pack(CallFrame(1, "echo::say", EMPTY)), INVALID),
    "a ping first": (pack(Ping(1)), INVALID),
    "a message first": (pack(MessageFrame(1, b"")), INVALID),
    "a welcome first": (pack(Welcome(VERSION)), INVALID),
    "http": (b"POST /v1/echo/say HTTP/1.1\r\nhost: here\r\n\r\n", TOO_LARGE),
    "http/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", TOO_LARGE),
    "tls on the plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", TOO_LARGE),
    "noise": (bytes(range(255, 0, -1)) * 20, TOO_LARGE),
    "text": (b"\0\0\0\5hello", INVALID),
    "length 0": (b"\0\0\0\0", INVALID),
    "length 2^32 - 1": (b"\xff\xff\xff\xff", TOO_LARGE),
    "a hello beyond its limit": ((OVERHEAD_BYTES + 1).to_bytes(4) + b"x", TOO_LARGE),
    "version 0": (pack(Hello(0)), INVALID),
    "version 2": (pack(Hello(2)), INVALID),
    "version -1": (pack(Hello(-1)), INVALID),
    "version of text": (frame_of(0, "1"), INVALID),
    "version missing": (frame_of(0), INVALID),
    "headers of numbers": (frame_of(0, 1, {1: 2}), INVALID),
    "headers as a list": (frame_of(0, 1, ["a", "b"]), INVALID),
    "101 headers": (pack(Hello(VERSION, map_of(101))), TOO_LARGE),
    "1,001 headers": (pack(Hello(VERSION, map_of(1001))), INVALID),
    "33 kB of headers": (pack(Hello(VERSION, {"x": "v" * (33 << 10)})), TOO_LARGE),
    "nul in a header": (pack(Hello(VERSION, {"x": "a\0b"})), INVALID),
    "line end in a header": (pack(Hello(VERSION, {"x": "a\r\nb: c"})), INVALID),
    "line end in a name": (pack(Hello(VERSION, {"x\n": "a"})), INVALID),
    "header not utf-8": (framed(b"\x93\x00\x01\x81\xa1x\xa2\xff\xfe"), INVALID),
    "long peer id": (pack(Hello(VERSION, {"x-peer-id": "p" * 600})), INVALID),
    "time-to-live for all": (pack(Hello(VERSION, {"rpc-ttl-ms": "5"})), INVALID),
    "deadline for all": (
        pack(Hello(VERSION, {"rpc-deadline": "2030-01-01T00:00:00Z"})),
        INVALID,
    ),
}

DEEP = b"\x91" * 100_000
AFTER_HELLO = {
    "a second hello": (HELLO, INVALID),
    "length 0": (b"\0\0\0\0", INVALID),
    "length 2^32 - 1": (b"\xff\xff\xff\xff" + bytes(1 << 16), TOO_LARGE),
    "a byte too long": (
        (limits.MESSAGE_BYTES_MAX + OVERHEAD_BYTES + 1).to_bytes(4) + b"x",
        TOO_LARGE,
    ),
    "no MessagePack": (framed(b"\xc1"), INVALID),
    "cut off inside": (framed(b"\x94\x02\x01\xa9echo"), INVALID),
    "bytes behind": (framed(msgspec.msgpack.encode((9, 1)) + b"\x01"), INVALID),
    "a map": (framed(b"\x81\x00\x01"), INVALID),
    "a number": (framed(b"\x09"), INVALID),
    "nil": (framed(b"\xc0"), INVALID),
    "an empty list": (framed(b"\x90"), INVALID),
    "unknown kind": (frame_of(77, 1), INVALID),
    "negative kind": (frame_of(-1, 1), INVALID),
    "kind of text": (frame_of("2", 1), INVALID),
    "welcome": (pack(Welcome(VERSION)), INVALID),
    "reply": (pack(ReplyFrame(1, b"")), INVALID),
    "error": (pack(ErrorFrame(1, NO)), INVALID),
    "error with details": (frame_of(4, 1, {"details": {"a": [[]] * 1000}}), INVALID),
    "goodbye": (pack(Goodbye()), INVALID),
    "open": (pack(OpenFrame(1)), INVALID),
    "a call without a body": (frame_of(2, 1, "echo::say"), INVALID),
    "a call with a text for a body": (frame_of(2, 1, "echo::say", "{}"), INVALID),
    "a call with a number for a name": (frame_of(2, 1, 5, b""), INVALID),
    "a call with a half for an id": (frame_of(2, 1.5, "echo::say", b""), INVALID),
    "an id beyond 64 bits": (framed(b"\x92\x09\xcf" + b"\xff" * 8 + b"\xff"), INVALID),
    "a name not utf-8": (framed(b"\x94\x02\x01\xa2\xff\xfe\xc4\x00"), INVALID),
    "a length beyond the frame": (framed(b"\x94\x02\x01\xc6\xff\xff\xff\xff"), INVALID),
    "a list beyond the frame": (framed(b"\xdd\xff\xff\xff\xff\x02"), INVALID),
    "a map beyond the frame": (
        framed(b"\x96\x02\x01\xa1x\xc4\x00\xc0\xdf\xff\xff\xff\xff"),
        INVALID,
    ),
    "10,000 headers": (
        pack(CallFrame(1, "echo::say", EMPTY, None, map_of(10_000))),
        INVALID,
    ),
    "deep nesting": (framed(b"\x95\x02\x01\xa1x\xc4\x00" + DEEP + b"\xc0"), INVALID),
    "deep nesting behind": (framed(b"\x93\x09\x01" + DEEP + b"\xc0"), INVALID),
    "the same id twice": (pack(WAIT) + pack(WAIT), INVALID),
    "an id gone by": (pack(CallFrame(7, "echo::wait", EMPTY)) + pack(WAIT), INVALID),
    "a message where none belongs": (pack(WAIT) + pack(MessageFrame(1, b"")), INVALID),
    "an end where none belongs": (pack(WAIT) + pack(EndFrame(1)), INVALID),
    "credit where none belongs": (pack(WAIT) + pack(CreditFrame(1, 1, 1)), INVALID),
    "a message after the end": (
        pack(SUM) + pack(EndFrame(1)) + pack(MessageFrame(1, b"")),
        INVALID,
    ),
    "messages beyond the window": (
        pack(SUM) + pack(MessageFrame(1, EMPTY)) * (limits.STREAM_WINDOW_MESSAGES_MAX + 1),
        INVALID,
    ),
}


@pytest.mark.parametrize("kind", WITHOUT_HELLO)
async def test_who_does_not_say_hello_hears_why_and_is_let_go(node: Served, kind: str) -> None:
    sent, code = WITHOUT_HELLO[kind]
    async with RawStream(node.url) as raw:
        await raw.send(sent)
        frames = await raw.ending()
    count(accepted=sum(isinstance(frame, Welcome) for frame in frames))
    assert len(frames) == 1
    assert isinstance(frames[0], Goodbye)
    assert frames[0].error is not None
    assert frames[0].error.code == code


@pytest.mark.parametrize("kind", AFTER_HELLO)
async def test_what_breaks_the_protocol_ends_its_connection_in_words(
    node: Served, kind: str
) -> None:
    sent, code = AFTER_HELLO[kind]
    async with RawStream(node.url) as raw:
        await raw.greet()
        await raw.send(sent)
        assert await raw.farewell() == code
    count()


CALLS = {
    "unknown procedure": (CallFrame(1, "echo::sing", EMPTY), "error.unimplemented"),
    "no name": (CallFrame(1, "", EMPTY), "error.unimplemented"),
    "a megabyte of name": (CallFrame(1, "x" * (1 << 20), EMPTY), "error.unimplemented"),
    "name with nul": (CallFrame(1, "echo::say\0", EMPTY), "error.unimplemented"),
    "no body": (CallFrame(1, "echo::say", b"\xc1"), INVALID),
    "body cut off": (CallFrame(1, "echo::say", b"\x81\xa4text"), INVALID),
    "body of another shape": (CallFrame(1, "echo::say", b"\x90"), INVALID),
    "deep body": (CallFrame(1, "echo::say", DEEP + b"\xc0"), INVALID),
    "deep body, ignored": (CallFrame(1, "echo::say", b"\x81\xa1z" + DEEP + b"\xc0"), INVALID),
    "body of another encoding": (CallFrame(1, "echo::say", b'{"text":"a"}'), INVALID),
    "unknown encoding": (
        CallFrame(1, "echo::say", EMPTY, None, {"rpc-encoding": "xml"}),
        INVALID,
    ),
    "a body over the limit": (
        CallFrame(1, "echo::say", bytes(limits.MESSAGE_BYTES_MAX + 1)),
        TOO_LARGE,
    ),
    "101 headers": (CallFrame(1, "echo::say", EMPTY, None, map_of(101)), TOO_LARGE),
    "33 kB of header": (
        CallFrame(1, "echo::say", EMPTY, None, {"x": "v" * (33 << 10)}),
        TOO_LARGE,
    ),
    "nul in a header": (CallFrame(1, "echo::say", EMPTY, None, {"x": "a\0"}), INVALID),
    "line end in a header": (CallFrame(1, "echo::say", EMPTY, None, {"x": "a\r\nb"}), INVALID),
    "a header twice": (
        CallFrame(1, "echo::say", EMPTY, None, {Again("x"): "a", Again("x"): "b"}),
        INVALID,
    ),
    "a header twice among many": (
        CallFrame(1, "echo::say", EMPTY, None, {**map_of(40), Again("x"): "a", Again("x"): "b"}),
        INVALID,
    ),
    "time-to-live below nothing": (CallFrame(1, "echo::say", EMPTY, -1), INVALID),
    "time-to-live of years": (CallFrame(1, "echo::say", EMPTY, 1 << 62), INVALID),
    "time-to-live nonsense": (
        CallFrame(1, "echo::say", EMPTY, None, {"rpc-ttl-ms": "soon"}),
        INVALID,
    ),
    "deadline nonsense": (
        CallFrame(1, "echo::say", EMPTY, None, {"rpc-deadline": "tomorrow"}),
        INVALID,
    ),
    "no time left": (CallFrame(1, "echo::say", EMPTY, 0), "error.deadline_exceeded"),
    "no time left by header": (
        CallFrame(1, "echo::say", EMPTY, 9000, {"rpc-ttl-ms": "0"}),
        "error.deadline_exceeded",
    ),
    "long shard key": (
        CallFrame(1, "echo::say", EMPTY, None, {"rpc-shard-key": "k" * 600}),
        INVALID,
    ),
}


@pytest.mark.parametrize("kind", CALLS)
async def test_a_bad_call_is_refused_and_the_connection_goes_on(node: Served, kind: str) -> None:
    call, code = CALLS[kind]
    async with RawStream(node.url) as raw:
        await raw.greet()
        await raw.send(call)
        refusal = await raw.next(ErrorFrame)
        count(failed=int(refusal.error.status == "INTERNAL"))
        assert (refusal.id, refusal.error.code) == (1, code)
        await raw.send(CallFrame(2, "echo::say", EMPTY))
        assert (await raw.next(ReplyFrame)).id == 2


async def test_a_bad_message_of_a_stream_ends_that_call_alone(node: Served) -> None:
    async with RawStream(node.url) as raw:
        await raw.greet()
        await raw.send(WAIT, CallFrame(2, "echo::sum", EMPTY), MessageFrame(2, b"\xc1"))
        refusal = await raw.next(ErrorFrame)
        assert (refusal.id, refusal.error.code) == (2, INVALID)
        await raw.send(MessageFrame(2, EMPTY), EndFrame(2))  # too late, and no harm
        node.echo.go_on.set()
        assert (await raw.next(ReplyFrame)).id == 1
    count()


@pytest.mark.parametrize(
    "late",
    [MessageFrame(5, b"x"), EndFrame(5), CancelFrame(5), CreditFrame(5, 1 << 60, 1), Pong(9)],
    ids=lambda frame: type(frame).__name__,
)
async def test_what_is_said_to_a_call_that_is_over_is_passed_by(node: Served, late: Frame) -> None:
    async with RawStream(node.url) as raw:
        await raw.greet()
        await raw.send(late, CallFrame(9, "echo::say", EMPTY))
        assert (await raw.next(ReplyFrame)).id == 9
    count()


@pytest.mark.parametrize(
    ("messages", "size"), [(1, 1), (1 << 62, 1), (1, 1 << 62), (-1, 5), (0, 1)]
)
async def test_more_credit_than_the_window_ends_the_connection(
    node: Served, messages: int, size: int
) -> None:
    async with RawStream(node.url) as raw:
        await raw.greet()
        await raw.send(CallFrame(1, "echo::count", MSGPACK.encode(Said("stay"))))
        await raw.next(OpenFrame)
        await raw.send(CreditFrame(1, messages, size))
        assert await raw.farewell() == INVALID
    count()


async def test_ten_thousand_calls_at_once_are_answered_or_refused(node: Served) -> None:
    calls = 10_000
    async with RawStream(node.url) as raw:
        await raw.greet()
        sending = asyncio.create_task(
            raw.send(*(CallFrame(n, "echo::wait", EMPTY) for n in range(calls)))
        )
        refused = [
            await raw.next(ErrorFrame) for _ in range(calls - limits.CALLS_PER_CONNECTION_MAX)
        ]
        await sending
        assert {one.error.code for one in refused} == {"error.overloaded"}
        node.echo.go_on.set()
        answered = {(await raw.next(ReplyFrame)).id for _ in range(limits.CALLS_PER_CONNECTION_MAX)}
    assert len(answered) == limits.CALLS_PER_CONNECTION_MAX
    count(calls - len(answered))


async def test_a_body_at_the_limit_is_taken(node: Served) -> None:
    body = bytes(limits.MESSAGE_BYTES_MAX - 100)
    async with RawStream(node.url) as raw:
        await raw.greet()
        await raw.send(CallFrame(1, "echo::say", MSGPACK.encode(Said(body=body))))
        assert len((await raw.next(ReplyFrame)).body or b"") > len(body)
