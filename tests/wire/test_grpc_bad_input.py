"""What no gRPC library would send: refused in words or cut off, and the listener goes on."""

import asyncio
import resource

import pytest

from omnirelay.mesh import wire
from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, Overloaded
from omnirelay.rpc.meta import Request, RequestMeta
from tests.wire.grpc_served import TYPED, Node, asking, served
from tests.wire.http2_frames import (
    DATA,
    END_STREAM,
    PREFACE,
    SETTINGS,
    frame,
    message,
    opening,
    said,
    status,
)
from tests.wire.http_echo import Say, soon

STATS = f"{TYPED}/Stats".encode()
WAIT = b"/echo/wait"


async def answers(node: Node) -> bool:
    """A newcomer is served as if nothing had been."""
    async with node.outbound() as outbound:
        await outbound(asking("resourcelease::stats", wire.StatsRequest(), outbound))
    return True


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ((opening(STATS, ends=True),), 3),
        ((opening(STATS), frame(DATA, END_STREAM, 1)), 3),
        ((opening(STATS), message(b"\xff\xff\xff")), 3),
        ((opening(STATS), message(b"ab", size=5)), 3),
        ((opening(STATS), message(b"abc", size=0x7FFFFFFF, ends=False)), 8),
        ((opening(STATS), message(b"x", flag=1)), 13),
        ((opening(STATS, (b"rpc-ttl-ms", b"soon")), message(b"")), 3),
        ((opening(STATS, (b"rpc-deadline", b"tomorrow")), message(b"")), 3),
        ((opening(STATS, (b"x-peer-id", b"w" * 600)), message(b"")), 3),
        ((opening(STATS, (b"rpc-namespace", b"\xff\xfe")), message(b"")), 12),
        ((opening(STATS, (b"rpc-namespace", b"a" * 9000)), message(b"")), 12),
        ((opening(b"/echo/say", (b"rpc-encoding", b"xml")), message(b"{}")), 3),
        ((opening(b"/echo/say"), message(b"{")), 3),
        ((opening(b"/echo/unheard_of"), message(b"{}")), 12),
        ((opening(b"/echo/unheard_of"),), 12),
        ((opening(b"nowhere"), message(b"{}")), 12),
        ((opening(b"/"), message(b"{}")), 12),
        ((opening(b"//"), message(b"{}")), 12),
        ((opening(f"{TYPED}/Unheard".encode()), message(b"")), 12),
        ((opening(f"{TYPED}/Work".encode(), ends=True),), 0),
        ((opening(b"/echo/talk"), message(b"{}", ends=False), message(b"no json")), 3),
        ((opening(b"/echo/sum"), message(b"{}", ends=False), message(b"no json")), 3),
        ((opening(STATS, *((f"x-{n}".encode(), b"v") for n in range(200))), message(b"")), 8),
    ],
)
async def test_a_malformed_call_hears_why(frames: tuple[bytes, ...], expected: int) -> None:
    async with served() as node:
        assert status(await said(node.port, *frames)) == expected
        assert await answers(node)


async def test_headers_without_end_are_cut_off() -> None:
    pairs = [(f"x-{n}".encode(), b"v" * 8000) for n in range(12)]
    assert 8000 < limits.HEADER_BYTES_MAX < 5 * 8000
    async with served() as node:
        for count, expected in ((1, 0), (5, 8), (12, 8)):
            frames = opening(STATS, *pairs[:count]), message(b"")
            assert status(await said(node.port, *frames)) == expected
        assert await answers(node)


@pytest.mark.parametrize(
    "noise",
    [b"\xff" * 300, frame(DATA, 0, 0, b"x"), frame(DATA, 0, 99, b"x"), b"\x7f\xff\xff\x00" * 20],
    ids=["noise", "data on no stream", "data on an unknown stream", "a frame without end"],
)
async def test_noise_ends_its_own_connection_and_no_other(noise: bytes) -> None:
    async with served() as node, node.outbound() as outbound:
        request = asking("echo::say", Say(), outbound)
        await outbound(request)
        _, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(PREFACE + frame(SETTINGS, 0, 0) + noise)
        await writer.drain()
        await outbound(request)
        assert await answers(node)
        writer.close()


def test_a_method_name_that_is_no_text_stops_nobody_else() -> None:
    # A loop of its own, since grpcio leaves the failure of its server to the loop to report.
    asyncio.run(_survive_a_bad_name())


async def _survive_a_bad_name() -> None:
    """grpcio's own server ends here; ours listens again."""
    async with served() as node, node.outbound() as outbound:
        calling = asyncio.create_task(_asked(node))
        await soon(node.echo.waiting)
        for _ in range(2):
            await said(node.port, opening(b"/a\xff/b"), message(b""))
            async with asyncio.timeout(8):
                while not await _is_back(node):
                    pass
        node.echo.go_on.set()
        assert await calling == b'{"text":"patient"}'
        await outbound(asking("echo::say", Say(), outbound))


async def _asked(node: Node) -> bytes:
    async with node.outbound() as outbound:
        reply = await outbound(asking("echo::wait", Say("patient"), outbound))
        return getattr(reply, "body", b"")


async def _is_back(node: Node) -> bool:
    try:
        return status(await said(node.port, opening(STATS), message(b""))) == 0
    except ConnectionError:
        return False


async def test_a_caller_that_opens_a_call_and_says_nothing_holds_up_nobody() -> None:
    async with served() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(PREFACE + frame(SETTINGS, 0, 0) + opening(STATS))
        assert await answers(node)
        writer.close()
        await reader.read()


async def test_a_caller_that_goes_on_saying_nothing_is_let_go() -> None:
    async with served(first_message_s=0.05) as node:
        assert status(await said(node.port, opening(STATS))) == 4


async def test_one_call_too_many_is_refused_as_overloaded() -> None:
    async with served(calls_max=1) as node, node.outbound() as outbound:
        calling = asyncio.create_task(_asked(node))
        await soon(node.echo.waiting)
        with pytest.raises(Overloaded):
            await outbound(asking("echo::say", Say(), outbound))
        node.echo.go_on.set()
        await calling


async def test_a_caller_whose_connection_breaks_is_cancelled() -> None:
    async with served() as node:
        _, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(PREFACE + frame(SETTINGS, 0, 0) + opening(WAIT) + message(b"{}"))
        await soon(node.echo.waiting)
        writer.transport.abort()
        await soon(node.echo.cancelled)


async def test_a_body_of_the_wrong_encoding_is_refused_by_name() -> None:
    async with served() as node, node.outbound() as outbound:
        meta = RequestMeta(procedure="resourcelease::complete", transport="grpc")
        with pytest.raises(InvalidArgument, match="malformed body"):
            await outbound(Request(meta, b'{"ownershipToken":{}}', outbound.codec))


async def test_bad_input_costs_no_memory() -> None:
    large = message(bytes(1 << 20), size=limits.MESSAGE_BYTES_MAX + 1, ends=False)
    endless = [(f"x-{n}".encode(), b"v" * 8000) for n in range(12)]
    bad = [(opening(STATS), large), (opening(STATS, *endless), message(b""))]

    async def storm(node: Node) -> None:
        for frames in bad:
            await asyncio.gather(*(said(node.port, *frames) for _ in range(20)))

    async with served() as node:
        await storm(node)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await storm(node)
        await storm(node)
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert await answers(node)
    assert grown_kib < 32 << 10
