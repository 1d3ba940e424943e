"""The caller's side of the stream transport: one connection, many calls, opened when needed."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from omnirelay.model.errors import (
    Closed,
    DeadlineExceeded,
    InvalidOption,
    Overloaded,
    TooLarge,
    Unavailable,
)
from omnirelay.model.ports import Clock
from omnirelay.rpc.codec import MSGPACK, Codec
from omnirelay.rpc.headers import ENCODING, call_headers, hop_headers
from omnirelay.rpc.meta import Reply, Request, Response, Stream
from omnirelay.transports.client_tls import ContextSource, Tls
from omnirelay.transports.stream_caller import CallerConnection
from omnirelay.transports.stream_calling import Reading
from omnirelay.transports.stream_meta import TTL_MS_HIGHEST

_SCHEMES = ("stream", "streams", "stream+unix")
DEFAULT_PORT = 7402
_USUAL = hop_headers("stream", MSGPACK.name)


def _parts(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise InvalidOption(f"{url!r} is no stream address: use one of {', '.join(_SCHEMES)}")
    try:
        missing = parts.path if parts.scheme == "stream+unix" else parts.hostname
        if not missing or parts.port == 0:
            raise ValueError("a host, or for a Unix socket a path, is missing")
    except ValueError as error:
        raise InvalidOption(f"{url!r} is no stream address: {error}") from None
    return parts


class StreamOutbound:
    name = "stream"
    codec: Codec = MSGPACK
    is_prompt = True
    """A call without a deadline awaits nothing but futures."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        tls: ContextSource | None = None,
        connect_s: float = 5.0,
        silence_s: float = 30.0,
    ) -> None:
        """A node that does not answer a connection in `connect_s`, or says nothing for `silence_s`
        though asked, counts as gone. Each new connection asks `tls` for its context."""
        self.url = url
        self._parts = _parts(url)
        if self._parts.scheme == "streams" and tls is None:
            tls = Tls().context
        self._tls = tls if self._parts.scheme == "streams" else None
        self._clock = clock
        self._headers = dict(headers or {})
        self._connect_s = connect_s
        self._silence_s = silence_s
        self._connection: CallerConnection | None = None
        self._connections: set[CallerConnection] = set()
        """Also those that take no new calls and still answer old ones."""
        self._opening: asyncio.Task[CallerConnection] | None = None
        self._is_stopped = False

    async def start(self) -> None:
        self._is_stopped = False

    async def stop(self) -> None:
        self._is_stopped = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        self._connection = None
        for connection in list(self._connections):
            await connection.close()

    def __call__(self, request: Request) -> Coroutine[Any, Any, Reply]:
        expires_ms = request.meta.expires_ms
        return self._ask(request) if expires_ms is None else self._ask_until(expires_ms, request)

    async def _ask_until(self, expires_ms: int, request: Request) -> Reply:
        left_ms = expires_ms - self._clock.monotonic_ms()
        limit = asyncio.timeout(max(0, left_ms) / 1000)
        try:
            async with limit:
                return await self._ask(request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineExceeded("the deadline of the call has passed") from None

    async def _ask(self, request: Request) -> Reply:
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self._opened()
            if not connection.is_open:
                # It was lost before we got to use it, and tells nobody a second time.
                raise Unavailable(f"{self.url} closed the connection at once")
        size = len(request.body)
        if size > connection.body_bytes_max:
            raise TooLarge(f"the body has {size} bytes, the limit is {connection.body_bytes_max}")
        if len(connection.calls) >= connection.calls_max:
            raise Overloaded(f"{connection.calls_max} calls are under way on this connection")
        headers = call_headers(request.meta)
        if request.codec is not MSGPACK:
            headers[ENCODING] = request.codec.name
        calling = connection.begin(
            request.meta.procedure, request.body, self._ttl_ms(request), headers or None
        )
        if request.inbound is not None:
            calling.send_all(request.inbound)
        try:
            reply = await calling.answered
        except BaseException:
            calling.cancel()
            del calling  # it leads to the error, which leads back here and to the body
            raise
        if reply is None:
            return Stream(Reading(calling))
        calling.stop_sending()
        heard = _USUAL if request.codec is MSGPACK else hop_headers(self.name, request.codec.name)
        if reply.headers:
            heard = {**heard, **reply.headers}
        return Response(reply.body or b"", heard, reply.body is None)

    def _ttl_ms(self, request: Request) -> int | None:
        expires_ms = request.meta.expires_ms
        if expires_ms is None:
            return None
        return min(max(1, expires_ms - self._clock.monotonic_ms()), TTL_MS_HIGHEST)

    # -- the connection -----------------------------------------------------------------------

    async def _opened(self) -> CallerConnection:
        """However many calls wait for it, one connection is tried, and all hear how it went."""
        if self._is_stopped:
            raise Closed(f"the outbound to {self.url} is stopped")
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.create_task(self._open())
            opening.add_done_callback(self._has_opened)
        try:
            # A call that gives up must not take the connection from the others.
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled() and self._is_stopped:
                raise Closed(f"the outbound to {self.url} was stopped") from None
            raise

    def _has_opened(self, opening: "asyncio.Task[CallerConnection]") -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._connection = opening.result()

    async def _open(self) -> CallerConnection:
        connection: CallerConnection | None = None
        try:
            async with asyncio.timeout(self._connect_s):
                connection = await self._connect()
                self._connections.add(connection)
                await connection.greeted
        except TimeoutError:
            raise Unavailable(f"{self.url} did not answer in {self._connect_s} s") from None
        except (OSError, UnicodeError) as error:
            raise Unavailable(f"{self.url} cannot be reached: {error}") from error
        finally:
            if connection is not None and not _is_greeted(connection):
                connection.cut()
        return connection

    async def _connect(self) -> CallerConnection:
        loop = asyncio.get_running_loop()
        parts = self._parts
        if parts.scheme == "stream+unix":
            _, connection = await loop.create_unix_connection(self._protocol, parts.path)
        else:
            _, connection = await loop.create_connection(
                self._protocol,
                parts.hostname or "",
                parts.port or DEFAULT_PORT,
                ssl=None if self._tls is None else self._tls(),
                server_hostname=None if self._tls is None else parts.hostname,
            )
        return connection

    def _protocol(self) -> CallerConnection:
        return CallerConnection(
            self._headers, silence_s=self._silence_s, on_lost=self._connections.discard
        )


def _is_greeted(connection: CallerConnection) -> bool:
    greeted = connection.greeted
    return greeted.done() and not greeted.cancelled() and greeted.exception() is None
