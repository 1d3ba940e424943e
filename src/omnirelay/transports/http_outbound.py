"""Calls to another process over HTTP. One session with kept-alive connections."""

import asyncio
import io
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from omnirelay.model import limits
from omnirelay.model.errors import (
    DeadlineExceeded,
    InvalidArgument,
    InvalidOption,
    OmniRelayError,
    OutcomeUnknown,
    PermissionDenied,
    ResourceExhausted,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from omnirelay.model.ports import Clock
from omnirelay.rpc import headers as names
from omnirelay.rpc.codec import JSON, Codec
from omnirelay.rpc.meta import Reply, Request, Response, Stream
from omnirelay.rpc.status import ErrorBody, error_of
from omnirelay.transports.client_tls import ContextSource
from omnirelay.transports.half_open import expect_answers
from omnirelay.transports.http_events import CONTENT_TYPE, ERROR, EventReader

_SCHEMES = ("http", "https")
_CONTENT_TYPES = {"json": "application/json", "msgpack": "application/msgpack"}
_ACCEPT = f"application/json, {CONTENT_TYPE}"
_ERROR_BYTES = 1 << 20
_READ_BYTES = 64 << 10
_LARGE = 256 << 10

# Who answers without an error body is not a node: a proxy, which may or may not have passed it on.
_OF_OTHERS: dict[int, type[OmniRelayError]] = {
    400: InvalidArgument,
    401: Unauthenticated,
    403: PermissionDenied,
    404: Unimplemented,
    405: Unimplemented,
    413: TooLarge,
    429: ResourceExhausted,
    503: Unavailable,
}


class HttpOutbound:
    """Follows no redirect and keeps no cookie: a call goes where it was sent."""

    name = "http"

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        tls: ContextSource | None = None,
        codec: Codec = JSON,
        connect_s: float = 5.0,
        silence_s: float = 30.0,
        connections: int = 100,
    ) -> None:
        """A node that does not take a connection in `connect_s`, or whose system says nothing for
        `silence_s`, counts as gone. `headers` go with every call, such as an authorization. Calls
        beyond `connections` wait for a free one. `tls` is asked with every call: what it gives is
        part of what a connection is kept under, so one that was made with something else is not
        used again."""
        _check_address(url)
        self.url = url.rstrip("/")
        self.codec = codec
        self._clock = clock
        self._headers = {"accept": _ACCEPT, **(headers or {})}
        self._tls = tls
        self._connect_s = connect_s
        self._silence_s = silence_s
        self._connections = connections
        self._targets: dict[str, str] = {}
        self._session: aiohttp.ClientSession | None = None
        self._reading: set[aiohttp.ClientResponse] = set()
        """Answers of which more is to come."""

    async def start(self) -> None:
        if self._session is not None:
            return
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections,
                keepalive_timeout=30,  # shorter than any node's, so that a call meets no closed one
                socket_factory=self._line,
            ),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )

    def _line(self, where: tuple[Any, ...]) -> socket.socket:
        """Any: what the resolver says of an address."""
        family, kind, protocol, *_ = where
        line = socket.socket(family, kind, protocol)
        expect_answers(line, self._silence_s)
        return line

    async def stop(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        for response in self._reading:
            # Closing the session would leave whoever reads an answer waiting for ever.
            response.content.set_exception(
                aiohttp.ClientConnectionError("the outbound was stopped")
            )
        await session.close()

    async def __call__(self, request: Request) -> Reply:
        expires_ms = request.meta.expires_ms
        if expires_ms is None:
            return await self._ask(request, None)
        left_ms = max(0, expires_ms - self._clock.monotonic_ms())
        try:
            async with asyncio.timeout(left_ms / 1000):
                return await self._ask(request, left_ms)
        except TimeoutError:
            raise DeadlineExceeded("the deadline of the call has passed") from None

    async def _ask(self, request: Request, ttl_ms: int | None) -> Reply:
        if self._session is None:
            await self.start()
        assert self._session is not None
        try:
            response = await self._session.post(
                self._target(request.meta.procedure),
                data=_body_of(request),
                headers=_headers_of(request, ttl_ms),
                allow_redirects=False,
                ssl=True if self._tls is None else self._tls(),
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unavailable(f"{self.url} cannot be reached: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise OutcomeUnknown(f"{self.url} was lost during the call: {error!r}") from error
        try:
            return await self._reply_of(response)
        finally:
            if request.inbound is not None:
                response.close()  # who was answered says no more

    def _target(self, procedure: str) -> str:
        target = self._targets.get(procedure)
        if target is None:
            namespace, _, verb = procedure.partition("::")
            path = f"/v1/{quote(namespace, safe='')}/{quote(verb, safe='')}"
            target = self._targets[procedure] = self.url + path
        return target

    async def _reply_of(self, response: aiohttp.ClientResponse) -> Reply:
        self._reading.add(response)
        if response.status == 200 and response.content_type == CONTENT_TYPE:
            messages = self._messages(response)
            # Begun here: closing a generator that never ran would leave the response open.
            await anext(messages)
            return Stream(messages)
        try:
            async with response:
                if response.status in (202, 204):
                    return Response(b"", _reply_headers(response), empty=True)
                if response.status == 200:
                    body = await _whole(response, limits.MESSAGE_BYTES_MAX)
                    return Response(body, _reply_headers(response))
                raise _error_of(response, await _whole(response, _ERROR_BYTES))
        except (aiohttp.ClientError, OSError) as error:
            raise OutcomeUnknown(f"{self.url} was lost during its answer: {error!r}") from error
        finally:
            self._reading.discard(response)

    async def _messages(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(_messages(response, self.url)) as messages:
                async for message in messages:
                    yield message
        finally:
            self._reading.discard(response)


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise InvalidOption(f"{url!r} is no HTTP address: write http://host:port or https://…")


def _headers_of(request: Request, ttl_ms: int | None) -> dict[str, str]:
    meta = request.meta
    headers = {
        names.ENCODING: request.codec.name,
        "content-type": _CONTENT_TYPES.get(request.codec.name, "application/octet-stream"),
    }
    if ttl_ms is not None:
        headers[names.TTL_MS] = str(max(1, ttl_ms))
    headers |= names.call_headers(meta)
    if any("\n" in value or "\r" in value or "\0" in value for value in headers.values()):
        raise InvalidArgument("a name that goes as a header has a line end in it")
    return headers


def _reply_headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    heard = names.heard_headers(response.headers.items())
    return {name: value for name, value in heard.items() if name not in _HTTPS_OWN}


_HTTPS_OWN = frozenset(
    ["connection", "content-length", "content-type", "date", "keep-alive", "transfer-encoding"]
)
"""What says how the answer travels, not what it is."""


def _body_of(request: Request) -> bytes | io.BytesIO | AsyncGenerator[bytes]:
    if request.inbound is not None:
        return _lines(request.inbound)
    # A large body is written in parts, so that it does not hold up the loop.
    return request.body if len(request.body) < _LARGE else io.BytesIO(request.body)


async def _lines(messages: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    async for message in messages:
        yield message + b"\n"


async def _whole(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """Never more than `bytes_max`, whatever its length says."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > bytes_max:
            response.close()
            raise TooLarge(f"the answer has more than {bytes_max} bytes")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _error_of(response: aiohttp.ClientResponse, body: bytes) -> OmniRelayError:
    try:
        return error_of(msgspec.json.decode(body, type=ErrorBody))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        kind = _OF_OTHERS.get(response.status, OutcomeUnknown)
    return error_of(
        ErrorBody(
            f"something at {response.url} answered with {response.status}", kind.status, kind.code
        )
    )


async def _messages(response: aiohttp.ClientResponse, url: str) -> AsyncGenerator[bytes]:
    reader = EventReader()
    async with response, aclosing(_parts(response, url)) as parts:
        yield b""
        async for part in parts:
            for name, data in reader.feed(part):
                if name == ERROR:
                    raise error_of(msgspec.json.decode(data, type=ErrorBody))
                yield data


async def _parts(response: aiohttp.ClientResponse, url: str) -> AsyncGenerator[bytes]:
    try:
        while part := await response.content.read(_READ_BYTES):
            yield part
    except (aiohttp.ClientError, OSError) as error:
        raise OutcomeUnknown(f"{url} was lost in the middle of a stream: {error!r}") from error
