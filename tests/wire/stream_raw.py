"""A stream listener for the tests, and a caller that may say anything to it."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from omnirelay.model.ports import SystemClock
from omnirelay.rpc.codec import MSGPACK
from omnirelay.rpc.meta import Request, RequestMeta, Response
from omnirelay.testing.transport_echo import Echo, Said
from omnirelay.transports.stream_frames import (
    FROM_NODE,
    VERSION,
    CallFrame,
    Frame,
    FromNode,
    Goodbye,
    Hello,
    ReplyFrame,
    Splitter,
    Welcome,
    pack,
)
from omnirelay.transports.stream_inbound import StreamInbound
from omnirelay.transports.stream_outbound import StreamOutbound

CLOCK = SystemClock()
HELLO = pack(Hello(VERSION))
EMPTY = MSGPACK.encode(Said())
F = TypeVar("F")


class Again(str):
    """A key that is the same as no other, so that a map may hold what it must not: a name twice."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Served:
    def __init__(self, echo: Echo, inbound: StreamInbound) -> None:
        self.echo = echo
        self.inbound = inbound

    @property
    def url(self) -> str:
        return self.inbound.url

    @asynccontextmanager
    async def outbound(self, **options: Any) -> AsyncGenerator[StreamOutbound]:
        outbound = StreamOutbound(self.url, clock=CLOCK, **options)
        await outbound.start()
        try:
            yield outbound
        finally:
            await outbound.stop()

    async def still_serves(self) -> None:
        async with RawStream(self.url) as raw:
            await raw.greet()
            await raw.send(CallFrame(1, "echo::say", MSGPACK.encode(Said("still here"))))
            reply = await raw.next(ReplyFrame)
        assert MSGPACK.decode(reply.body or b"", Said).text == "still here"


@asynccontextmanager
async def served(**options: Any) -> AsyncGenerator[Served]:
    """Any: parameters of StreamInbound."""
    echo = Echo(CLOCK)
    inbound = StreamInbound(echo.dispatcher, echo.registry, clock=CLOCK, **options)
    await inbound.start()
    try:
        yield Served(echo, inbound)
    finally:
        await inbound.stop(0)


class RawStream:
    """One connection. Every wait is bounded by `patience_s`."""

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        patience_s: float = 8,
        receive_bytes: int | None = None,
    ) -> None:
        self._parts = urlsplit(url)
        self._tls = tls
        self._patience_s = patience_s
        self._receive_bytes = receive_bytes
        self._frames: list[FromNode] = []
        self._splitter: Splitter[FromNode] = Splitter(FROM_NODE)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        if self._parts.scheme == "stream+unix":
            opening = asyncio.open_unix_connection(Path(self._parts.path))
        else:
            end = socket.socket()
            if self._receive_bytes is not None:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
            end.setblocking(False)
            address = (self._parts.hostname or "", self._parts.port or 0)
            await asyncio.get_running_loop().sock_connect(end, address)
            name = self._parts.hostname if self._tls else None
            opening = asyncio.open_connection(sock=end, ssl=self._tls, server_hostname=name)
        self._reader, self._writer = await opening
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.transport.abort()
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # the other side was faster

    @property
    def transport(self) -> asyncio.WriteTransport:
        return self._writer.transport

    async def greet(self, **headers: str) -> Welcome:
        await self.send(Hello(VERSION, headers))
        return await self.next(Welcome)

    async def send(self, *said: Frame | bytes) -> None:
        self._writer.write(b"".join(one if isinstance(one, bytes) else pack(one) for one in said))
        async with asyncio.timeout(self._patience_s):
            await self._writer.drain()

    async def next(self, kind: type[F]) -> F:
        """The next frame, which must be of this kind."""
        async with asyncio.timeout(self._patience_s):
            while not self._frames:
                data = await self._reader.read(1 << 16)
                assert data, "the node closed the connection"
                self._frames += self._splitter.feed(data)
        frame = self._frames.pop(0)
        assert isinstance(frame, kind), frame
        return frame

    async def some(self, size: int) -> bytes:
        """Bytes as they come, for who does not care what they say."""
        async with asyncio.timeout(self._patience_s):
            return await self._reader.read(size)

    async def exactly(self, size: int) -> bytes:
        async with asyncio.timeout(self._patience_s):
            return await self._reader.readexactly(size)

    async def ending(self) -> list[FromNode]:
        """All that still comes until the node closes."""
        async with asyncio.timeout(self._patience_s):
            try:
                while data := await self._reader.read(1 << 16):
                    self._frames += self._splitter.feed(data)
            except ConnectionError:
                pass  # a reset is an end too
        frames, self._frames = self._frames, []
        return frames

    async def farewell(self) -> str:
        """The code of the goodbye that it must end with."""
        last = (await self.ending())[-1]
        assert isinstance(last, Goodbye), last
        assert last.error is not None
        assert last.error.message
        return last.error.code


def asking(verb: str, said: Said | None = None, **fields: Any) -> Request:
    """Any: fields of RequestMeta and Request."""
    inbound = fields.pop("inbound", None)
    meta = RequestMeta(procedure=f"echo::{verb}", transport="stream", encoding="msgpack", **fields)
    return Request(meta, MSGPACK.encode(said or Said()), MSGPACK, inbound)


async def ask(outbound: StreamOutbound, verb: str, said: Said | None = None, **meta: Any) -> Said:
    async with asyncio.timeout(8):
        reply = await outbound(asking(verb, said, **meta))
    assert isinstance(reply, Response)
    return MSGPACK.decode(reply.body, Said)


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(8):
        await event.wait()


async def until(holds: Callable[[], bool]) -> None:
    """For what the other side does in its own time and tells nobody."""
    async with asyncio.timeout(8):
        while not holds():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
