"""Peers that are gone without a word: every accepted connection is asked whether it lives."""

import asyncio
import socket

import pytest

from omnirelay.testing.raw_http import RawHttp
from omnirelay.transports import grpc_inbound
from omnirelay.transports.http_connection import Connection
from tests.wire import grpc_served, http_echo
from tests.wire.http2_frames import PREFACE, SETTINGS, frame

PING = 6
SOON = {
    "grpc.keepalive_time_ms": 100,
    "grpc.keepalive_timeout_ms": 100,
    "grpc.http2.ping_timeout_ms": 100,
}


async def test_an_accepted_http_connection_is_asked_by_the_system_whether_it_lives() -> None:
    async with http_echo.served() as node, RawHttp(node.url) as raw:
        assert (await raw.ask("POST", "/v1/echo/say", b"{}")).status == 200
        (connection,) = node.inbound._traffic.connections
        assert isinstance(connection, Connection)
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        first = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        again = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        times = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
    assert first + again * times <= 180, "within minutes, not the two hours of the system"


async def test_a_grpc_peer_that_answers_no_ping_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the options of every listener, only sooner; such a peer has no call under way."""
    usual = dict(grpc_inbound.OPTIONS)
    assert sum(usual[name] for name in SOON) <= 180_000
    sooner = tuple((name, SOON.get(name, value)) for name, value in grpc_inbound.OPTIONS)
    monkeypatch.setattr(grpc_inbound, "OPTIONS", sooner)
    async with grpc_served.served() as node, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(PREFACE + frame(SETTINGS, 0, 0))
        seen = bytearray()
        while data := await _read(reader):
            seen += data
        writer.close()
    assert PING in _kinds(bytes(seen))


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 16)
    except ConnectionError:
        return b""  # an end as good as any


def _kinds(frames: bytes) -> list[int]:
    kinds, at = [], 0
    while at + 9 <= len(frames):
        kinds.append(frames[at + 3])
        at += 9 + int.from_bytes(frames[at : at + 3])
    return kinds
