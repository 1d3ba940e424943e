"""A bound on the connections of one client address: the surplus hears so, the others go on."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.aio
import pytest

from omnirelay.identity.settings import IdentitySettings
from omnirelay.model.errors import Overloaded
from omnirelay.node.node import Node
from omnirelay.node.settings import LimitSettings
from omnirelay.testing.clock import HandClock
from omnirelay.testing.raw_http import RawHttp
from omnirelay.transports.http_options import HttpOptions
from omnirelay.transports.per_address import PerAddress
from omnirelay.transports.stream_frames import Goodbye, Ping, Pong
from tests.wire.grpc_served import raw_channel
from tests.wire.grpc_served import served as grpc_served
from tests.wire.http_echo import served as http_served
from tests.wire.http_echo import soon
from tests.wire.real_node import node
from tests.wire.stream_raw import RawStream, until
from tests.wire.stream_raw import served as stream_served

DOORS = ("stream", "http")
FLOOD = 300
BOUND_S = 15.0
SAID = "beyond the 2 of one address"
PROXIES = IdentitySettings(trusted_proxies=("127.0.0.0/8",), anonymous=True)


class Client:
    """One connection to a door that knows its callers."""

    def __init__(self, opened: Node, door: str) -> None:
        self._door = door
        url = opened.urls[door]
        self._raw: RawStream | RawHttp = RawStream(url) if door == "stream" else RawHttp(url)

    async def __aenter__(self) -> "Client":
        await self._raw.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._raw.__aexit__(*error)

    async def begin(self) -> None:
        if isinstance(self._raw, RawStream):
            await self._raw.greet()
        else:
            await self.go_on()

    async def go_on(self) -> None:
        if isinstance(self._raw, RawStream):
            await self._raw.send(Ping(1))
            await self._raw.next(Pong)
        else:
            assert (await self._raw.ask("GET", "/healthz")).status == 200

    async def refusal(self) -> str:
        """In words; the connection ends after them."""
        if isinstance(self._raw, RawStream):
            error = (await self._raw.next(Goodbye)).error
            assert error is not None
            with pytest.raises(AssertionError, match="closed the connection"):
                await self._raw.next(Pong)
            return error.message
        answer = await self._raw.answer()
        assert (answer.status, answer.headers["connection"]) == (429, "close")
        return str(answer.json()["message"])


@asynccontextmanager
async def bounded(most: int = 2, **changed: Any) -> AsyncGenerator[Node]:
    """Any: fields of NodeSettings."""
    async with node(limits=LimitSettings(connections_per_address=most), **changed) as opened:
        yield opened


@pytest.mark.parametrize("door", DOORS)
async def test_one_too_many_of_an_address_hears_so_and_the_others_go_on(door: str) -> None:
    async with bounded() as opened, Client(opened, door) as one:
        await one.begin()
        async with Client(opened, door) as two, Client(opened, door) as surplus:
            await two.begin()
            assert "2 connections of one address" in await surplus.refusal()
            await one.go_on()
            await two.go_on()
        async with asyncio.timeout(BOUND_S):  # the node notices who left in its own time
            while not await _is_let_in(opened, door):
                continue
        await one.go_on()


async def _is_let_in(opened: Node, door: str) -> bool:
    try:
        async with Client(opened, door) as client:
            await client.begin()
    except (AssertionError, OSError):
        return False
    return True


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("changed", [{"identity": PROXIES}, {"most": 0}], ids=["proxies", "off"])
async def test_trusted_proxies_and_a_bound_of_nothing_let_everybody_in(
    door: str, changed: dict[str, Any]
) -> None:
    async with bounded(**changed) as opened, AsyncExitStack() as stack:
        for _ in range(5):
            await (await stack.enter_async_context(Client(opened, door))).begin()


@pytest.mark.parametrize("door", DOORS)
async def test_a_flood_takes_no_place_of_others_and_fills_neither_memory_nor_log(
    door: str, caplog: pytest.LogCaptureFixture
) -> None:
    per_address = PerAddress(door, HandClock(), most=2)
    bounds: dict[str, Any] = {"connections_max": 3}
    if door == "http":
        bounds = {"options": HttpOptions(**bounds)}
    serve: Callable[..., Any] = stream_served if door == "stream" else http_served
    async with serve(per_address=per_address, **bounds) as served, AsyncExitStack() as stack:
        for _ in range(FLOOD):
            await _connected(stack, served.url, "127.0.0.1")
        await _connected(stack, served.url, "127.0.0.2")
        await until(lambda: len(per_address) == 2)
        await until(lambda: served.inbound.connection_count == 3)
    assert len(per_address) == 0
    assert len([one for one in caplog.records if SAID in one.getMessage()]) == 1


async def _connected(stack: AsyncExitStack, url: str, from_: str) -> None:
    """One that says nothing."""
    end = stack.enter_context(socket.socket())
    end.setblocking(False)
    end.bind((from_, 0))
    at = urlsplit(url)
    await asyncio.get_running_loop().sock_connect(end, (at.hostname, at.port))


async def test_a_connection_of_grpc_counts_while_calls_are_under_way_on_it() -> None:
    per_address = PerAddress("grpc", HandClock(), most=1)
    async with (
        grpc_served(per_address=per_address) as served,
        _channel(served.target) as one,
        _channel(served.target) as two,
    ):
        waiting = one.unary_unary("/echo/wait")(b"{}", timeout=BOUND_S)
        await soon(served.echo.waiting)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await two.unary_unary("/echo/say")(b"{}", timeout=BOUND_S)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1 connections of one address" in (refused.value.details() or "")
        stream = two.unary_stream("/echo/count")(b"{}", timeout=BOUND_S)
        with pytest.raises(grpc.aio.AioRpcError, match="of one address"):
            await stream.read()
        await one.unary_unary("/echo/say")(b"{}", timeout=BOUND_S)
        served.echo.go_on.set()
        await waiting
        await until(lambda: len(per_address) == 0)
        await two.unary_unary("/echo/say")(b"{}", timeout=BOUND_S)
    assert len(per_address) == 0


@asynccontextmanager
async def _channel(target: str) -> AsyncGenerator[Any]:
    """With a connection of its own. Any: bytes both ways."""
    async with raw_channel(target, ("grpc.use_local_subchannel_pool", 1)) as channel:
        yield channel


async def test_a_node_bounds_its_grpc_door_too() -> None:
    """Whichever of the two arrives second is refused: nobody outside can tell which that was."""
    async with bounded(1) as opened, AsyncExitStack() as stack:
        target = urlsplit(opened.urls["grpc"]).netloc
        channels = [await stack.enter_async_context(_channel(target)) for _ in range(2)]
        wait = b'{"waitMs":60000}'
        calls = [one.unary_unary("/resourcelease/lease")(wait, timeout=BOUND_S) for one in channels]
        waiting = [asyncio.ensure_future(_ended(call)) for call in calls]
        (refused,), (kept,) = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert refused.result().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "of one address" in (refused.result().details() or "")
        assert not kept.done()
        kept.cancel()


async def _ended(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value


def test_an_ipv6_network_is_one_address_and_a_mapped_one_is_its_ipv4() -> None:
    per_address = PerAddress("stream", HandClock(), most=1)
    for first, second in (
        ("2001:db8::1", "2001:db8::ffff:1"),
        ("fe80::1%eth0", "fe80::2%eth1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
    ):
        per_address.enter(first)
        with pytest.raises(Overloaded):
            per_address.enter(second)
    per_address.enter("2001:db8:0:1::1")
    for address in ("2001:db8::1", "fe80::1%eth0", "10.0.0.7", "2001:db8:0:1::1"):
        per_address.leave(address)
    assert len(per_address) == 0


def test_a_unix_socket_has_no_address_and_no_bound() -> None:
    per_address = PerAddress("stream", HandClock(), most=1)
    for _ in range(3):
        per_address.enter("")
    assert len(per_address) == 0
    per_address.leave("")


def test_refusals_are_counted_between_two_lines_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock()
    per_address = PerAddress("http", clock, most=1)
    per_address.enter("10.0.0.7")
    for _ in range(3):
        for _ in range(100):
            with pytest.raises(Overloaded):
                per_address.enter("10.0.0.7")
        clock.now_ms += 10_000
    said = [one.getMessage() for one in caplog.records]
    assert [line.split()[2] for line in said] == ["1", "100", "100"]
    assert all(line.endswith("the last from 10.0.0.7") for line in said)
