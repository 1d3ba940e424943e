"""Callers that go away, callers that are slow, and a node that stops."""

import asyncio

import pytest

from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.testing.raw_http import RawHttp, request_of
from omnirelay.transports.http_options import HttpOptions
from tests.wire.http_echo import served, soon

HASTY = HttpOptions(head_s=0.3, body_s=0.3, idle_s=0.3, write_s=0.3, linger_s=0.2)
WAIT = request_of("POST", "/v1/echo/wait", b"{}")


@pytest.mark.parametrize("behind", [b"", WAIT, b"POST /v1/echo/say HT"], ids=["", "call", "part"])
async def test_a_caller_that_goes_away_ends_its_call(behind: bytes) -> None:
    async with served() as node, RawHttp(node.url) as raw:
        await raw.send(WAIT + behind)
        await soon(node.echo.waiting)
        raw.leave()
        await soon(node.echo.cancelled)


async def test_a_caller_that_goes_away_in_its_body_leaves_nothing() -> None:
    async with served() as node:
        async with RawHttp(node.url) as raw:
            await raw.send(b"POST /v1/echo/sum HTTP/1.1\r\ncontent-length: 100\r\n\r\n")
            await raw.send(b'{"text":"a"}\n')
            await soon(node.echo.waiting)
        async with RawHttp(node.url) as raw:
            assert (await raw.ask("POST", "/v1/echo/say", b"{}")).status == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /v1/echo/say HTTP/1.1\r\nx: ", 408),
        (b"POST /v1/echo/say HTTP/1.1\r\ncontent-length: 9\r\n\r\n{", 408),
        (b"POST /v1/echo/sum HTTP/1.1\r\ncontent-length: 9\r\n\r\n{", 408),
        (b"POST /v1/echo/say HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n", 408),
    ],
    ids=["head", "body", "stream", "chunks"],
)
async def test_a_slow_caller_is_told_so_and_cut_off(sent: bytes, status: int) -> None:
    async with served(options=HASTY) as node, RawHttp(node.url) as raw:
        await raw.send(sent)
        answer = await raw.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert answer.json()["code"] == "error.request_too_slow"
        assert await raw.ending() == b""


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with served(options=HASTY) as node, RawHttp(node.url) as raw:
        assert await raw.ending() == b""


async def test_a_connection_without_a_next_request_is_closed() -> None:
    async with served(options=HASTY) as node, RawHttp(node.url) as raw:
        assert (await raw.ask("POST", "/v1/echo/say", b"{}")).status == 200
        assert await raw.ending() == b""


async def test_a_call_may_take_longer_than_any_deadline_of_its_connection() -> None:
    async with served(options=HASTY) as node, RawHttp(node.url) as raw:
        await raw.send(WAIT)
        await soon(node.echo.waiting)
        async with RawHttp(node.url) as silent:
            await silent.ending()  # by now the deadlines have passed
        node.echo.go_on.set()
        assert (await raw.answer()).status == 200


async def test_a_reader_that_takes_nothing_is_cut_off() -> None:
    async with served(options=HASTY) as node, RawHttp(node.url) as raw:
        await raw.send(b"GET /v1/echo/flood HTTP/1.1\r\n\r\n")
        await soon(node.echo.closed)
        assert len(node.echo.heard) < 50_000, "a source waits for its reader"


async def test_one_connection_too_many_is_refused() -> None:
    options = HttpOptions(connections_max=1)
    async with served(options=options) as node, RawHttp(node.url) as one, RawHttp(node.url) as two:
        assert (await one.ask("POST", "/v1/echo/say", b"{}")).status == 200
        refused = await two.answer()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert (await one.ask("POST", "/v1/echo/say", b"{}")).status == 200


async def test_who_comes_in_as_the_door_shuts_hears_to_go_elsewhere() -> None:
    """The loop may have taken a connection in before it closed the door."""
    async with served() as node:
        node.inbound._traffic.is_draining = True
        async with RawHttp(node.url) as late:
            refused = await late.answer()
            assert (refused.status, refused.headers["rpc-status"]) == (503, "UNAVAILABLE")


async def test_one_call_too_many_is_refused() -> None:
    options = HttpOptions(calls_max=1)
    async with served(options=options) as node, RawHttp(node.url) as one, RawHttp(node.url) as two:
        await one.send(WAIT)
        await soon(node.echo.waiting)
        assert (await two.ask("POST", "/v1/echo/say", b"{}")).status == 429
        node.echo.go_on.set()
        assert (await one.answer()).status == 200
        assert (await two.ask("POST", "/v1/echo/say", b"{}")).status == 200


async def test_bodies_have_a_bound_together() -> None:
    options = HttpOptions(bodies_bytes_max=1000)
    async with served(options=options) as node:
        async with RawHttp(node.url) as one, RawHttp(node.url) as two:
            await one.send(request_of("POST", "/v1/echo/wait", b'{"text":"%b"}' % (b"x" * 800)))
            await soon(node.echo.waiting)
            large = b'{"text":"%b"}' % (b"x" * 500)
            refused = await two.ask("POST", "/v1/echo/say", large)
            assert refused.json()["code"] == "error.overloaded"
            node.echo.go_on.set()
            assert (await one.answer()).status == 200
        async with RawHttp(node.url) as two:
            assert (await two.ask("POST", "/v1/echo/say", large)).status == 200


async def test_callers_that_leave_at_any_point_leave_nothing_behind() -> None:
    """If any of their bodies were still counted, the last call would be one too many."""
    options = HttpOptions(bodies_bytes_max=5000)
    body = b'{"text":"%b"}' % (b"x" * 2000)
    pipelined = request_of("POST", "/v1/echo/wait", body) + request_of("POST", "/v1/echo/say", body)
    async with served(options=options) as node:
        for cut in range(1, len(pipelined), 97):
            async with RawHttp(node.url) as raw:
                await raw.send(pipelined[:cut])
        async with asyncio.timeout(8):
            while node.inbound.connection_count:  # noqa: ASYNC110 -- nothing signals an absence
                await asyncio.sleep(0)
        async with RawHttp(node.url) as raw:
            assert (await raw.ask("POST", "/v1/echo/say", body + b" " * 2500)).status == 200


async def test_a_stopping_node_finishes_what_is_under_way_and_takes_nothing_new() -> None:
    async with served() as node, RawHttp(node.url) as under_way, RawHttp(node.url) as kept:
        assert (await kept.ask("POST", "/v1/echo/say", b"{}")).status == 200
        await under_way.send(WAIT)
        await soon(node.echo.waiting)
        stopping = asyncio.create_task(node.inbound.stop(grace_s=8))
        await asyncio.sleep(0)
        refused = await kept.ask("POST", "/v1/echo/say", b"{}")
        assert (refused.status, refused.headers["connection"]) == (503, "close")
        with pytest.raises(OSError, match=r"."):
            await RawHttp(node.url).__aenter__()
        node.echo.go_on.set()
        finished = await under_way.answer()
        assert (finished.status, finished.headers["connection"]) == (200, "close")
        await stopping


async def test_after_the_grace_a_call_is_cut_off() -> None:
    async with served() as node, RawHttp(node.url) as raw, RawHttp(node.url) as idle:
        await raw.send(WAIT)
        await soon(node.echo.waiting)
        await node.inbound.stop(grace_s=0.05)
        assert node.echo.cancelled.is_set()
        assert await raw.ending() == b""
        assert await idle.ending() == b""


async def test_a_stream_is_told_that_the_node_stops() -> None:
    async with served() as node, RawHttp(node.url) as raw:
        await raw.send(b"GET /v1/echo/follow HTTP/1.1\r\n\r\n")
        await raw.head()
        await raw.chunk()
        await node.inbound.stop(grace_s=0)
        assert node.echo.closed.is_set()
        said = await raw.ending()
        assert b"event: error" in said
        assert b"UNAVAILABLE" in said
        assert said.endswith(b"0\r\n\r\n"), "a whole answer"


async def test_to_stop_twice_or_before_the_start_does_nothing() -> None:
    async with served() as node:
        await node.inbound.stop(1)
        await node.inbound.stop(1)


async def test_a_taken_port_is_said_so() -> None:
    async with served() as node:
        port = int(node.url.rpartition(":")[2])
        with pytest.raises(Unavailable, match="taken"):
            async with served(port=port):
                raise AssertionError("both listen")


@pytest.mark.parametrize("address", [{"port": 70000}, {"host": "256.1.1.1"}, {"host": "no such"}])
async def test_an_address_that_cannot_be_one_is_refused(address: dict[str, object]) -> None:
    with pytest.raises(InvalidOption):
        async with served(**address):
            raise AssertionError("it listens")
