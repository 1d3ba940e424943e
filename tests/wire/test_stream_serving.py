"""The stream port as its callers find it: TCP, TLS and Unix sockets, bugs, bounds and its end."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import pytest

from omnirelay.model.errors import (
    InvalidOption,
    OmniRelayError,
    OutcomeUnknown,
    Overloaded,
    Unauthenticated,
    Unavailable,
)
from omnirelay.rpc.codec import MSGPACK
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.meta import Certificate, Reply, Request, RequestMeta, Response, Stream
from omnirelay.testing.transport_echo import Said
from omnirelay.transports.stream_frames import (
    CallFrame,
    CancelFrame,
    ErrorFrame,
    Goodbye,
    Ping,
    Pong,
    ReplyFrame,
)
from omnirelay.transports.stream_inbound import StreamInbound
from omnirelay.transports.stream_outbound import StreamOutbound
from tests.wire.authority import Authority, read
from tests.wire.stream_raw import (
    CLOCK,
    EMPTY,
    HELLO,
    RawStream,
    ask,
    asking,
    served,
    soon,
    until,
)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def revoked(der: bytes) -> Certificate:
    raise Unauthenticated("the certificate was revoked")


# -- TLS ------------------------------------------------------------------------------------------


async def test_a_call_over_tls(authority: Authority) -> None:
    async with served(tls=authority.node()) as node:
        assert node.url.startswith("streams://")
        async with node.outbound(tls=authority.caller) as outbound:
            body = Said(body=bytes(3 << 20))
            assert await ask(outbound, "say", body) == body
    assert node.echo.metas[0].certificate is None


async def test_the_certificate_of_a_caller_reaches_its_calls(authority: Authority) -> None:
    async with served(tls=authority.node(asks=True), read_certificate=read) as node:
        async with node.outbound(tls=partial(authority.caller, "worker")) as outbound:
            await ask(outbound, "say")
        async with node.outbound(tls=authority.caller) as outbound:
            with pytest.raises(Unavailable):
                await ask(outbound, "say")
    certificate = node.echo.metas[0].certificate
    assert certificate is not None
    assert len(certificate.thumbprint) == 64


async def test_a_certificate_that_is_refused_ends_the_connection(authority: Authority) -> None:
    """It must not go on as a caller without one."""
    async with served(tls=authority.node(asks=True), read_certificate=revoked) as node:
        async with node.outbound(tls=partial(authority.caller, "worker")) as outbound:
            with pytest.raises(Unauthenticated, match="revoked"):
                await ask(outbound, "say")
        assert node.echo.metas == []


async def test_a_caller_that_trusts_another_authority_does_not_call(authority: Authority) -> None:
    async with (
        served(tls=authority.node()) as node,
        node.outbound(tls=Authority().caller) as outbound,
    ):
        with pytest.raises(Unavailable, match="cannot be reached"):
            await ask(outbound, "say")


@pytest.mark.parametrize("said", [HELLO, b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100])
async def test_plain_bytes_on_the_tls_port_end_their_connection(
    authority: Authority, said: bytes
) -> None:
    async with served(tls=authority.node()) as node:
        async with RawStream(node.url) as raw:
            await raw.send(said)
            assert b"\x92" not in await raw.some(1 << 16)  # an alert of TLS, no frame
        async with node.outbound(tls=authority.caller) as outbound:
            await ask(outbound, "say")


async def test_who_stops_in_the_middle_of_a_handshake_is_let_go(authority: Authority) -> None:
    async with served(tls=authority.node(), hello_s=0.1) as node, RawStream(node.url) as raw:
        await raw.send(b"\x16\x03\x01\x02\x00")
        assert await raw.some(10) == b""


async def test_tls_to_the_plain_port_is_unavailable(authority: Authority) -> None:
    async with served() as node:
        secure = node.url.replace("stream:", "streams:")
        outbound = StreamOutbound(secure, clock=CLOCK, tls=authority.caller, connect_s=2)
        with pytest.raises(Unavailable):
            await ask(outbound, "say")
        await outbound.stop()
        await node.still_serves()


# -- Unix sockets ---------------------------------------------------------------------------------


async def test_a_call_over_a_unix_socket(tmp_path: Path, authority: Authority) -> None:
    path = tmp_path / "s"
    async with served(path=path, tls=authority.node()) as node, node.outbound() as outbound:
        assert node.url == f"stream+unix://{path}"
        assert await ask(outbound, "say", Said("local")) == Said("local")
        assert node.echo.metas[0].address == ""
        await node.still_serves()
    assert not path.exists()


async def test_a_path_that_another_node_serves_is_not_taken_from_it(tmp_path: Path) -> None:
    async with served(path=tmp_path / "s") as node:
        with pytest.raises(Unavailable, match="another process"):
            async with served(path=tmp_path / "s"):
                pass
        await node.still_serves()


async def test_a_path_left_behind_by_a_kill_is_taken_over(tmp_path: Path) -> None:
    server = await asyncio.start_unix_server(lambda _r, _w: None, tmp_path / "s")
    server.close()
    await server.wait_closed()
    assert (tmp_path / "s").exists()
    async with served(path=tmp_path / "s") as node:
        await node.still_serves()


async def test_an_address_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    for options in ({"path": tmp_path / ("s" * 200)}, {"port": 99_999}):
        with pytest.raises(InvalidOption):
            async with served(**options):
                pass
    async with served() as node:
        with pytest.raises(Unavailable):
            async with served(port=int(node.url.rpartition(":")[2])):
                pass


# -- calls ----------------------------------------------------------------------------------------


class Hooks:
    """A handler without the middleware that would catch what it does."""

    async def __call__(self, request: Request) -> Reply:
        match request.meta.verb:
            case "bug":
                raise RuntimeError("a secret")
            case "unspeakable":
                raise OmniRelayError("no", number=1 << 70)
            case "cancelled":
                raise asyncio.CancelledError
            case "stream":
                return Stream(self._stream())
            case "swell":
                return Response(bytes(9 << 20))
            case _:
                return Response(request.body)

    async def _stream(self) -> AsyncGenerator[bytes]:
        yield b"one"
        raise RuntimeError("a secret")


@pytest.mark.parametrize("verb", ["bug", "unspeakable", "stream"])
async def test_a_bug_is_told_without_its_text(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    async with served() as node:
        node.inbound.handler = Hooks()
        async with RawStream(node.url) as raw:
            await raw.greet()
            await raw.send(CallFrame(1, f"x::{verb}", b""))
            frame: object = None
            while not isinstance(frame, ErrorFrame):
                frame = await raw.next(object)
            assert (frame.error.code, frame.error.message) == ("error.internal", "internal error")


async def test_a_call_cancelled_by_the_node_itself_is_answered() -> None:
    async with served() as node, node.outbound() as outbound:
        node.inbound.handler = Hooks()
        request = Request(RequestMeta(procedure="x::cancelled", transport="stream"), b"", MSGPACK)
        with pytest.raises(OutcomeUnknown):
            await outbound(request)


async def test_an_answer_too_large_for_a_frame_is_refused() -> None:
    async with served() as node, node.outbound() as outbound:
        node.inbound.handler = Hooks()
        request = Request(RequestMeta(procedure="x::swell", transport="stream"), b"", MSGPACK)
        with pytest.raises(OmniRelayError, match="the answer has"):
            await outbound(request)


async def test_a_cancelled_call_gets_no_answer_and_its_id_is_spent() -> None:
    async with served() as node, RawStream(node.url) as raw:
        await raw.greet()
        await raw.send(CallFrame(1, "echo::wait", EMPTY))
        await soon(node.echo.waiting)
        await raw.send(CancelFrame(1), CancelFrame(1))
        await soon(node.echo.cancelled)
        await raw.send(Ping(5))
        assert (await raw.next(Pong)).number == 5
        await raw.send(CallFrame(1, "echo::say", EMPTY))
        assert await raw.farewell() == "error.invalid_argument"


async def test_headers_of_the_hello_hold_for_every_call_and_those_of_a_call_for_it() -> None:
    async with served() as node, RawStream(node.url) as raw:
        await raw.greet(**{"X-Peer-Id": "w-1", "rpc-caller": "me"})
        await raw.send(CallFrame(1, "echo::say", EMPTY))
        await raw.send(CallFrame(2, "echo::say", EMPTY, 5000, {"x-peer-id": "w-2"}))
        await raw.send(CallFrame(3, "echo::say", EMPTY, None, {"A": "1", "a": "2"}))
        for _ in range(3):
            await raw.next(ReplyFrame)
    one, two, three = node.echo.metas
    assert (one.peer_id, one.caller, one.expires_ms) == ("w-1", "me", None)
    assert (two.peer_id, two.caller) == ("w-2", "me")
    assert two.expires_ms is not None
    assert three.doubled == {"a"}
    assert three.address == "127.0.0.1"


# -- many, silent and at the end ------------------------------------------------------------------


async def test_one_connection_too_many_hears_so_and_the_others_go_on() -> None:
    async with served(connections_max=2) as node:
        async with RawStream(node.url) as one, RawStream(node.url) as two:
            await one.greet()
            await two.greet()
            async with node.outbound() as third:
                with pytest.raises(Overloaded):
                    await ask(third, "say")
            await one.send(CallFrame(1, "echo::say", EMPTY))
            await one.next(ReplyFrame)
        await until(lambda: node.inbound.connection_count < 2)
        await node.still_serves()


async def test_hundreds_that_say_nothing_are_let_go_while_others_are_served() -> None:
    async with served(hello_s=0.5) as node:
        silent = [
            await asyncio.open_connection("127.0.0.1", int(node.url.rpartition(":")[2]))
            for _ in range(300)
        ]
        assert node.inbound.connection_count >= 290
        await node.still_serves()
        await until(lambda: node.inbound.connection_count == 0)
        for _, writer in silent:
            writer.close()


async def test_a_connection_that_is_not_there_any_more_is_found_by_a_ping() -> None:
    async with served(silence_s=0.3) as node, RawStream(node.url) as raw:
        await raw.greet()
        frames = await raw.ending()
        assert [type(frame) for frame in frames[:-1]] == [Ping] * (len(frames) - 1)
        assert len(frames) > 1
        assert isinstance(frames[-1], Goodbye)


async def test_a_quiet_caller_that_answers_pings_stays() -> None:
    async with served(silence_s=0.3) as node, node.outbound() as outbound:
        await ask(outbound, "say")
        before = outbound._connection
        await asyncio.sleep(1.0)
        await ask(outbound, "say")
        assert outbound._connection is before


async def test_a_node_that_stops_does_not_wait_for_a_caller_that_does_not_read() -> None:
    async with served() as node, RawStream(node.url, receive_bytes=64 << 10) as raw:
        await raw.greet()
        await raw.send(CallFrame(1, "echo::swell", MSGPACK.encode(Said(number=7 << 20))))
        await until(lambda: node.inbound.held_bytes > 1 << 20)
        async with asyncio.timeout(5):
            await node.inbound.stop(0.1)
        assert (node.inbound.connection_count, node.inbound.held_bytes) == (0, 0)


async def test_calls_that_come_while_it_stops_hear_to_go_elsewhere() -> None:
    async with served() as node, RawStream(node.url) as raw:
        await raw.greet()
        await raw.send(CallFrame(1, "echo::wait", EMPTY))
        await soon(node.echo.waiting)
        stopping = asyncio.create_task(node.inbound.stop(8))
        assert (await raw.next(Goodbye)).error is None
        await raw.send(CallFrame(2, "echo::say", EMPTY))
        assert (await raw.next(ErrorFrame)).error.code == "error.unavailable"
        node.echo.go_on.set()
        assert (await raw.next(ReplyFrame)).id == 1
        await stopping
        assert await raw.ending() == []


async def test_who_comes_in_as_the_door_shuts_hears_to_go_elsewhere() -> None:
    """The loop may have taken a connection in before it closed the door."""
    async with served() as node:
        node.inbound.traffic.is_leaving = True
        async with node.outbound() as late:
            with pytest.raises(Unavailable, match="stopping"):
                await ask(late, "say")


async def test_it_can_be_started_again() -> None:
    async with served() as node:
        await node.inbound.stop(0)
        await node.inbound.start()
        await node.still_serves()


async def test_the_handler_is_the_dispatcher_of_all_transports() -> None:
    async with served() as node:
        assert isinstance(node.inbound.handler, Dispatcher)
        assert isinstance(node.inbound, StreamInbound)
        async with node.outbound() as outbound:
            reply = await outbound(asking("nothing"))
    assert isinstance(reply, Response)
    assert reply.empty
