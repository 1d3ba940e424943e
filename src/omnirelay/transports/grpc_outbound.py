"""Calls that go out over gRPC."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
import grpc.aio

from omnirelay.model import limits
from omnirelay.model.errors import (
    Closed,
    DeadlineExceeded,
    InvalidArgument,
    InvalidOption,
    OutcomeUnknown,
)
from omnirelay.model.ports import Clock
from omnirelay.rpc import headers as names
from omnirelay.rpc.codec import JSON, Codec
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response, Stream
from omnirelay.transports.client_tls import Pem
from omnirelay.transports.grpc_errors import refusal_of
from omnirelay.transports.grpc_line import Line
from omnirelay.transports.grpc_messages import Messages, raise_if_cut_off
from omnirelay.transports.grpc_service import (
    EMPTY_KEY,
    NAMESPACE,
    RESOURCE_LEASE,
    STREAM_MARK,
    Method,
    TypedService,
)
from omnirelay.transports.grpc_tls import TlsSource

OPTIONS: Final = (
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", limits.HEADER_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", limits.HEADER_BYTES_MAX),
    # Each outbound has its own connection: heartbeats must not queue behind a large batch.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # nodes talk to one another, not through a proxy for browsing
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # by itself a minute, whatever the line above says
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)

# What belongs to one hop or to gRPC itself. The deadline travels as gRPC's own.
_NOT_PASSED_ON: Final = frozenset(
    [
        "host",
        "connection",
        "content-length",
        "content-type",
        "accept-encoding",
        "te",  # codespell:ignore te
        "user-agent",
        "transfer-encoding",
        "upgrade",
        "rpc-procedure",
        "rpc-encoding",
        "rpc-ttl-ms",
        "rpc-deadline",
    ]
)


class GrpcOutbound:
    """A request encoded with the service's own codec goes to the typed service where that has the
    verb; any other goes to `/{namespace}/{verb}` as the bytes it is. A verb of the service is taken
    to be of the same kind in every namespace."""

    name = "grpc"

    def __init__(
        self,
        target: str,
        *,
        clock: Clock,
        tls: TlsSource | None = None,
        server_name: str | None = None,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        typed: bool = True,
        codec: Codec = JSON,
        service: TypedService = RESOURCE_LEASE,
        connect_s: float | None = None,
    ) -> None:
        """`target` is `grpc://host:port`, `grpcs://host:port` or a bare `host:port`. Without `tls`,
        `grpcs` believes the system's authorities. `server_name` is whom the certificate must name,
        if not the host. `headers` go with every call. With `typed` off, callers encode with
        `codec`; MessagePack costs a tenth of protobuf in Python. `connect_s` is what a connection
        may take, handshakes and all; unless told, little at first, and each time more. When `tls`
        gives something new, calls begin on a connection that uses it."""
        target, is_secure = _target(target)
        if is_secure and tls is None:
            tls = _system_authorities
        self.codec: Codec = service.codec if typed else codec
        self._clock = clock
        # Of an option that comes twice the first counts.
        options: dict[str, int | str] = dict(OPTIONS)
        if server_name is not None:
            options["grpc.ssl_target_name_override"] = server_name
        if connect_s is not None:
            options["grpc.min_reconnect_backoff_ms"] = int(connect_s * 1000)
        self._line = Line(target, tuple(options.items()), tls)
        self._headers = {name.lower(): value for name, value in dict(headers).items()}
        self._service = service

    async def start(self) -> None:
        self._line.open()

    async def stop(self) -> None:
        await self._line.close()

    async def __call__(self, request: Request) -> Reply:
        if not self._line.is_open:
            raise Closed("the outbound is not started, or stopped already")
        timeout_s = self._timeout_s(request.meta)
        method = self._service.by_verb.get(request.meta.verb)
        typed = method if request.codec is self._service.codec else None
        metadata = self._metadata(request, typed)
        path = _plain_path(request.meta) if typed is None else typed.path
        if method is not None and not method.takes_many and not method.gives_many:
            return await self._single(path, request.body, timeout_s, metadata)
        messages = Messages(
            self._line.channel(), path, request, timeout_s=timeout_s, metadata=metadata
        )
        opening = await messages.opening()
        if STREAM_MARK in opening:
            return Stream(messages)
        body = await messages.only()
        trailers = await messages.trailers()
        if body is not None:
            return _response(body, trailers)
        # gRPC may tell of the end before the beginning, where a process has several loops.
        if STREAM_MARK in tuple(trailers) or (method is not None and method.gives_many):
            return Stream(messages)
        raise OutcomeUnknown("the call ended well, without an answer")

    async def _single(
        self, path: str, body: bytes, timeout_s: float | None, metadata: "_Metadata"
    ) -> Response:
        call = self._line.unary(path)(body, timeout=timeout_s, metadata=metadata)
        try:
            answer = await call
            trailers = await call.trailing_metadata()
        except grpc.aio.AioRpcError as error:
            raise refusal_of(error.code(), error.details(), error.trailing_metadata()) from None
        except asyncio.CancelledError:
            raise_if_cut_off()
            raise
        return _response(answer, trailers)

    def _timeout_s(self, meta: RequestMeta) -> float | None:
        if meta.expires_ms is None:
            return None
        left_ms = meta.expires_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise DeadlineExceeded("the deadline of the call has passed")
        return left_ms / 1000

    def _metadata(self, request: Request, typed: Method | None) -> "_Metadata":
        meta = request.meta
        pairs = {**self._headers, **_passed_on(meta.headers), **names.call_headers(meta)}
        if typed is not None:
            pairs[NAMESPACE] = meta.namespace
        else:
            plain = request.codec is not self._service.codec
            pairs[names.ENCODING] = request.codec.name if plain else JSON.name
        return tuple(_checked(name, value) for name, value in pairs.items())


_Metadata = tuple[tuple[str, str], ...]


def _target(address: str) -> tuple[str, bool]:
    if "://" not in address:
        return address, False
    parts = urlsplit(address)
    if parts.scheme not in ("grpc", "grpcs") or not parts.hostname or parts.path not in ("", "/"):
        raise InvalidOption(f"{address[:200]!r} is no gRPC address: use grpc://host:port")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or 7401}", parts.scheme == "grpcs"


def _system_authorities() -> Pem:
    return None, None, None


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if name not in _NOT_PASSED_ON and not name.startswith((":", "grpc-"))
    }


# Names that end in -bin carry bytes, not text.
_NAME = re.compile(r"[0-9a-z_.-]+(?<!-bin)")


def _checked(name: str, value: str) -> tuple[str, str]:
    if not _NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
        raise InvalidArgument(f"{name[:80]!r} is no metadata gRPC can carry: printable ASCII only")
    return name, value


def _plain_path(meta: RequestMeta) -> str:
    path = f"/{meta.namespace}/{meta.verb}"
    if not path.isascii() or not path.isprintable():
        raise InvalidArgument(f"{meta.procedure[:80]!r} is no procedure gRPC can name")
    return path


def _response(body: bytes, trailers: Any) -> Response:
    # Any: gRPC's own collection of pairs.
    headers = names.heard_headers(pair for pair in trailers if isinstance(pair[1], str))
    empty = headers.pop(EMPTY_KEY, None) is not None
    return Response(body, headers, empty)
