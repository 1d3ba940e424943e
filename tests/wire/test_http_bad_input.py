"""Bytes that no client should send. Each gets a clear refusal or a closed connection, and the node
answers the next caller as if nothing had been."""

import asyncio
import resource
from collections import Counter
from collections.abc import AsyncGenerator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnirelay.testing import figures
from omnirelay.testing.raw_http import RawHttp, request_of
from omnirelay.transports.http_options import HttpOptions
from tests.wire.http_echo import Served, served

POST = b"POST /v1/echo/say HTTP/1.1\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
OPTIONS = HttpOptions(linger_s=0.2, body_bytes_max=1 << 20)


@pytest.fixture
async def node() -> AsyncGenerator[Served]:
    async with served(options=OPTIONS) as running:
        yield running
        async with RawHttp(running.url) as raw:
            answer = await raw.ask("POST", "/v1/echo/say", b'{"text":"still here"}')
            assert answer.status == 200


def count(status: int) -> None:
    is_accepted, is_fault = status < 400, status >= 500
    figures.record(
        "inputs", tried=1, server_errors=int(is_fault), wrongly_accepted=int(is_accepted)
    )


REFUSED = {
    "no http": (b"hello\r\n\r\n", 400),
    "tls on the plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "http/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "unknown method": (b"BREW / HTTP/1.1\r\n\r\n", 400),
    "connect": (b"CONNECT a.example:80 HTTP/1.1\r\n\r\n", 404),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\n\r\n", 404),
    "address of no page": (b"GET ftp://a.example/docs HTTP/1.1\r\n\r\n", 404),
    "nul in a header": (POST + b"x: a\0b\r\n\r\n", 400),
    "bare cr in a header": (POST + b"x: a\rb\r\n\r\n", 400),
    "folded header": (POST + b"x: a\r\n b\r\n\r\n", 400),
    "space before colon": (POST + b"content-length : 2\r\n\r\n{}", 400),
    "no colon": (POST + b"nonsense\r\n\r\n", 400),
    "negative length": (POST + b"content-length: -1\r\n\r\n", 400),
    "no number as length": (POST + b"content-length: 0x2\r\n\r\n{}", 400),
    "huge number as length": (POST + b"content-length: " + b"9" * 40 + b"\r\n\r\n", 400),
    "two lengths": (POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", 400),
    "length and chunks": (POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n", 400),
    "unknown transfer": (POST + b"transfer-encoding: gzip\r\n\r\n", 400),
    "upgrade with chunks": (
        POST + b"connection: upgrade\r\nupgrade: x\r\ntransfer-encoding: chunked\r\n\r\n",
        400,
    ),
    "chunk size nonsense": (CHUNKED + b"zz\r\n", 400),
    "chunk longer than said": (CHUNKED + b"1\r\nab\r\n0\r\n\r\n", 400),
    "chunk size overflow": (CHUNKED + b"f" * 20 + b"\r\n", 400),
    "announced too large": (POST + b"content-length: 104857600\r\n\r\n", 413),
    "compressed": (POST + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\n\x1f\x8b\x08", 415),
    "compressed, odd case": (POST + b"Content-Encoding: Br\r\ncontent-length: 0\r\n\r\n", 415),
    "10,000 headers": (POST + b"a:b\r\n" * 10_000 + b"\r\n", 431),
    "101 headers": (POST + b"".join(b"x%d: 1\r\n" % n for n in range(101)) + b"\r\n", 431),
    "40 kB header": (POST + b"x: " + b"a" * 40_000 + b"\r\n\r\n", 431),
    "endless header": (POST + b"x: " + b"a" * 200_000, 431),
    "endless header name": (POST + b"a" * 200_000, 431),
    "endless path": (b"POST /" + b"a" * 200_000, 431),
    "endless trailer": (CHUNKED + b"2\r\n{}\r\n0\r\nx: " + b"a" * 400_000, 431),
    "endless chunk extension": (CHUNKED + b"2;" + b"a" * 400_000, 431),
    "encoding unknown": (POST + b"rpc-encoding: xml\r\ncontent-length: 2\r\n\r\n{}", 400),
    "ttl nonsense": (POST + b"rpc-ttl-ms: soon\r\ncontent-length: 2\r\n\r\n{}", 400),
    "ttl not finite": (POST + b"rpc-ttl-ms: nan\r\ncontent-length: 2\r\n\r\n{}", 400),
    "deadline without zone": (
        POST + b"rpc-deadline: 2030-01-01T00:00:00\r\ncontent-length: 2\r\n\r\n{}",
        400,
    ),
    "long name": (POST + b"rpc-shard-key: " + b"k" * 600 + b"\r\ncontent-length: 2\r\n\r\n{}", 400),
    "path with nul": (b"POST /v1/echo/%00 HTTP/1.1\r\n\r\n", 404),
    "path with line end": (b"POST /v1/echo/a%0d%0ax: 1 HTTP/1.1\r\n\r\n", 400),
    "path not utf-8": (b"POST /v1/echo/%ff%fe HTTP/1.1\r\n\r\n", 404),
    "path traversal": (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", 404),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_a_bad_request_gets_a_clear_refusal(node: Served, kind: str) -> None:
    sent, status = REFUSED[kind]
    async with RawHttp(node.url) as raw:
        await raw.send(sent)
        answer = await raw.answer()
    count(answer.status)
    assert answer.status == status
    body = answer.json()
    assert body["message"]
    assert body["code"]
    assert body["status"]


BODIES = {
    "empty text": b'""',
    "cut off": b'{"text":"a',
    "trailing": b"{} {}",
    "not utf-8": b'{"text":"\xff\xfe"}',
    "nul": b"\0",
    "lone surrogate": b'{"text":"\\ud800"}',
    "wrong type": b'{"text":1}',
    "not an object": b"[]",
    "huge number": b'{"count":1e999}',
    "beyond 64 bits": b'{"count":%b}' % (b"9" * 5000),
    "deep lists": b'{"inner":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    "deep objects": b'{"inner":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
}


@pytest.mark.parametrize("kind", BODIES)
async def test_a_malformed_body_is_an_invalid_argument(node: Served, kind: str) -> None:
    async with RawHttp(node.url) as raw:
        answer = await raw.ask("POST", "/v1/echo/say", BODIES[kind])
        count(answer.status)
        assert answer.status == 400
        assert answer.json()["status"] == "INVALID_ARGUMENT"
        assert (await raw.ask("POST", "/v1/echo/say", b"{}")).status == 200, "it goes on"


async def test_a_body_is_counted_while_it_comes(node: Served) -> None:
    """Without a length said beforehand; the answer comes long before the body would end."""
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    sent = 0
    async with RawHttp(node.url) as raw:
        await raw.send(CHUNKED)
        answering = asyncio.create_task(raw.answer())
        while not answering.done() and sent < 100 << 20:
            await raw.send(chunk)
            sent += 65536
        answer = await answering
    assert answer.status == 413
    assert answer.json()["code"] == "error.body_too_large"
    assert sent < 20 << 20


async def test_a_line_of_a_stream_has_a_bound_too(node: Served) -> None:
    async with RawHttp(node.url) as raw:
        await raw.send(b"POST /v1/echo/sum HTTP/1.1\r\ncontent-length: 104857600\r\n\r\n")
        await raw.send(b"x" * (2 << 20))
        assert (await raw.answer()).status == 413


async def test_thousands_of_requests_at_once_are_answered_one_by_one(node: Served) -> None:
    async with RawHttp(node.url) as raw:
        sending = asyncio.create_task(raw.send(b"GET /docs HTTP/1.1\r\n\r\n" * 5000))
        statuses = Counter([(await raw.answer()).status for _ in range(5000)])
        await sending
    assert statuses == {200: 5000}


async def test_pipelining_behind_a_waiting_call_stays_in_bounds(node: Served) -> None:
    async with RawHttp(node.url) as raw:
        await raw.send(request_of("POST", "/v1/echo/wait", b"{}"))
        more = request_of("POST", "/v1/echo/say", b'{"text":"%b"}' % (b"x" * 1000))
        sending = asyncio.create_task(raw.send(more * 20_000))
        done, _ = await asyncio.wait([sending], timeout=0.3)
        assert not done, "who sends ahead is held back"
        sending.cancel()


async def test_a_bad_request_behind_good_ones_takes_nothing_from_them(node: Served) -> None:
    good = request_of("POST", "/v1/echo/say", b"{}")
    async with RawHttp(node.url) as raw:
        await raw.send(good + good + b"nonsense\r\n\r\n" + good)
        assert [(await raw.answer()).status for _ in range(3)] == [200, 200, 400]
        assert await raw.ending() == b""


async def test_what_comes_after_a_farewell_is_not_looked_at(node: Served) -> None:
    good = request_of("POST", "/v1/echo/say", b"{}", connection="close")
    async with RawHttp(node.url) as raw:
        await raw.send(good + good)
        assert (await raw.answer()).status == 200
        assert await raw.ending() == b""
    assert len(node.echo.metas) == 1


_pieces = st.sampled_from(
    [
        b"POST /v1/echo/say HTTP/1.1\r\n",
        b"GET /v1/echo/count HTTP/1.1\r\n",
        b"POST /v1/echo/sum HTTP/1.1\r\n",
        b"content-length: 2\r\n",
        b"transfer-encoding: chunked\r\n",
        b"expect: 100-continue\r\n",
        b"connection: upgrade\r\nupgrade: h2c\r\n",
        b"connection: close\r\n",
        b"rpc-encoding: msgpack\r\n",
        b"\r\n",
        b"{}",
        b"2\r\n{}\r\n",
        b"0\r\n\r\n",
        b"\0\xff",
    ]
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(_pieces | st.binary(max_size=40), max_size=12).map(b"".join), max_size=40))
def test_no_sequence_of_bytes_brings_a_500_or_the_end(inputs: list[bytes]) -> None:
    statuses = asyncio.run(_tried(inputs))
    failed = sum(times for status, times in statuses.items() if status >= 500)
    figures.record("inputs", tried=len(inputs), server_errors=failed, wrongly_accepted=0)
    assert not [status for status in statuses if status >= 500], statuses


async def _tried(inputs: list[bytes]) -> Counter[int]:
    statuses: Counter[int] = Counter()
    options = HttpOptions(head_s=0.1, body_s=0.1, idle_s=0.1, linger_s=0.02)
    async with served(options=options) as node:
        answers = await asyncio.gather(*(_try(node.url, sent) for sent in inputs))
        for received in answers:
            for part in received.split(b"HTTP/1.1 ")[1:]:
                statuses[int(part[:3])] += 1
        async with RawHttp(node.url) as raw:
            assert (await raw.ask("POST", "/v1/echo/say", b"{}")).status == 200
    return statuses


async def _try(url: str, sent: bytes) -> bytes:
    async with RawHttp(url) as raw:
        await raw.send(sent)
        return await raw.ending()


async def test_bad_input_costs_no_memory(node: Served) -> None:
    async def storm() -> None:
        for kind in ("endless header", "endless trailer", "endless path"):
            await asyncio.gather(*(_try(node.url, REFUSED[kind][0]) for _ in range(10)))

    await storm()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await storm()
    await storm()
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 32 << 10
