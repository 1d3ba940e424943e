"""The caller's side of the stream transport: one connection, many calls, opened when needed."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from urllib.parse import urlsplit

from omnirelay.model import limits
from omnirelay.model.errors import (
    DeadlineExceeded,
    InvalidOption,
    OutcomeUnknown,
    TooLarge,
    Unavailable,
)
from omnirelay.model.ports import Clock
from omnirelay.rpc.codec import MSGPACK, Codec
from omnirelay.rpc.headers import ENCODING, call_headers
from omnirelay.rpc.meta import Reply, Request, Response, Stream
from omnirelay.transports.stream_caller import CallerConnection, Calling

_SCHEMES = ("stream", "streams", "stream+unix")


class StreamOutbound:
    name = "stream"
    codec: Codec = MSGPACK

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        connect_s: float = 5.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            raise InvalidOption(f"{url!r} is no stream address: use one of {', '.join(_SCHEMES)}")
        if parts.scheme == "streams" and tls is None:
            tls = ssl.create_default_context()
        self.url = url
        self._parts = parts
        self._tls = tls if parts.scheme == "streams" else None
        self._clock = clock
        self._headers = dict(headers or {})
        self._connect_s = connect_s
        self._connection: CallerConnection | None = None
        self._opening = asyncio.Lock()

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def __call__(self, request: Request) -> Reply:
        if len(request.body) > limits.MESSAGE_BYTES_MAX:
            size = len(request.body)
            raise TooLarge(f"the body has {size} bytes, the limit is {limits.MESSAGE_BYTES_MAX}")
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self._open()
        expires_ms = request.meta.expires_ms
        if expires_ms is None:
            return await self._ask(connection, request, None)
        left_ms = expires_ms - self._clock.monotonic_ms()
        try:
            async with asyncio.timeout(max(0, left_ms) / 1000):
                return await self._ask(connection, request, max(1, left_ms))
        except TimeoutError:
            raise DeadlineExceeded("the deadline of the call has passed") from None

    async def _ask(
        self, connection: CallerConnection, request: Request, ttl_ms: int | None
    ) -> Reply:
        headers = call_headers(request.meta)
        if request.codec is not MSGPACK:
            headers[ENCODING] = request.codec.name
        calling = connection.begin(request.meta.procedure, request.body, ttl_ms, headers or None)
        sending = None
        if request.inbound is not None:
            sending = asyncio.create_task(_send_all(calling, request.inbound))
        try:
            reply = await calling.answered
        except asyncio.CancelledError:
            calling.cancel()
            raise
        finally:
            if sending is not None and not calling.is_stream:
                sending.cancel()
        if reply is None:
            return Stream(_messages(calling, sending))
        return Response(reply.body or b"", reply.headers or {}, reply.body is None)

    async def _open(self) -> CallerConnection:
        async with self._opening:
            if self._connection is not None and self._connection.is_open:
                return self._connection
            try:
                async with asyncio.timeout(self._connect_s):
                    self._connection = await self._connect()
                    await self._connection.greeted
            except TimeoutError:
                raise Unavailable(f"{self.url} did not answer in {self._connect_s} s") from None
            except OSError as error:
                raise Unavailable(f"{self.url} cannot be reached: {error}") from error
            except OutcomeUnknown as error:
                raise Unavailable(f"{self.url} closed at once: {error.message}") from error
            return self._connection

    async def _connect(self) -> CallerConnection:
        loop = asyncio.get_running_loop()
        parts = self._parts
        if parts.scheme == "stream+unix":
            _, connection = await loop.create_unix_connection(
                lambda: CallerConnection(self._headers), parts.path
            )
        else:
            _, connection = await loop.create_connection(
                lambda: CallerConnection(self._headers),
                parts.hostname or "127.0.0.1",
                parts.port or 7402,
                ssl=self._tls,
                server_hostname=parts.hostname if self._tls else None,
            )
        return connection


async def _send_all(calling: Calling, messages: AsyncIterator[bytes]) -> None:
    try:
        async for message in messages:
            await calling.send(message)
    finally:
        calling.end()


async def _messages(
    calling: Calling, sending: "asyncio.Task[None] | None"
) -> AsyncGenerator[bytes]:
    try:
        async for message in calling.messages():
            yield message
    finally:
        calling.cancel()
        if sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
