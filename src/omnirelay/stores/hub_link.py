"""One connection to a hub: opened on demand, bounded in time, and its errors in our words."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from omnirelay.journal.replication import NAMESPACE
from omnirelay.model.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidOption,
    OmniRelayError,
    OutcomeUnknown,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from omnirelay.model.items import Wire
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response, Stream
from omnirelay.stores.address import masked
from omnirelay.transports.client_tls import Tls, TlsFiles
from omnirelay.transports.grpc_errors import NEVER_LEFT
from omnirelay.transports.grpc_outbound import GrpcOutbound
from omnirelay.transports.grpc_service import REPLICATION_HUB
from omnirelay.transports.grpc_tls import TlsSource

CONNECT_S = 5.0
"""How long a connection may take. Each is a first try, and a hub may be far away."""
ANSWER_S = 10.0
"""How long one answer may take; then its outcome is unknown."""
DEFAULT_PORT = 7401
_FILES = ("ca_file", "cert_file", "key_file", "token_file")
_OPTIONS = (*_FILES, "server_name")

T = TypeVar("T", bound=Wire)


class HubTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a hub is, whom we take it for, and what proves us to it."""

    place: str
    is_secure: bool
    shown: str
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    token_file: str | None = None
    server_name: str | None = None

    @classmethod
    def parse(cls, url: str) -> "HubTarget":
        """`hub://host:port`, or `hubs://host:port?ca_file=…&cert_file=…&key_file=…` over TLS;
        `token_file` names a file with a bearer token."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or DEFAULT_PORT
            given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            raise _no_address(url) from None
        if not host or parts.path not in ("", "/") or parts.fragment or "@" in parts.netloc:
            raise _no_address(url)
        options = dict(given)
        for name in options:
            if name not in _OPTIONS or len(options) < len(given) or not options[name]:
                raise InvalidOption(
                    f"{masked(url)!r}: {name[:80]!r} is no option of a hub, or comes twice or "
                    f"empty; there are {', '.join(_OPTIONS)}"
                )
        is_secure = parts.scheme == "hubs"
        if not is_secure and set(options) - {"token_file"}:
            raise InvalidOption(f"{masked(url)!r}: hub:// has no TLS; write hubs://")
        if ("cert_file" in options) != ("key_file" in options):
            raise InvalidOption(f"{masked(url)!r}: a certificate needs cert_file and key_file")
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return cls(place=place, is_secure=is_secure, shown=masked(url), **options)

    def tls(self) -> Tls:
        return Tls(ca_file=self.ca_file, cert_file=self.cert_file, key_file=self.key_file)

    def headers(self) -> dict[str, str]:
        path = self.token_file
        try:
            token = "" if path is None else Path(path).read_bytes().decode("latin-1").strip()
        except OSError as error:  # a file that is being replaced is there again in a moment
            raise Unavailable(f"{self.shown}: {path}: {error.strerror}") from error
        return {"authorization": f"Bearer {token}"} if token else {}


def _no_address(url: str) -> InvalidOption:
    return InvalidOption(f"{masked(url)!r} is no hub's address: write hub://host:7401")


class HubLink:
    """Used on one loop. After a failure the next call connects anew, with the files as they are
    then."""

    def __init__(self, target: HubTarget) -> None:
        self.target = target
        self._clock = SystemClock()
        self._files: TlsFiles | None = None
        self._outbound: GrpcOutbound | None = None
        self._codec = REPLICATION_HUB.codec

    async def _started(self) -> GrpcOutbound:
        if self._outbound is None:
            target = self.target
            outbound = GrpcOutbound(
                target.place,
                clock=self._clock,
                tls=self._pem() if target.is_secure else None,
                server_name=target.server_name,
                headers=target.headers(),
                service=REPLICATION_HUB,
                connect_s=CONNECT_S,
            )
            await outbound.start()
            self._outbound = outbound
        return self._outbound

    def _pem(self) -> TlsSource:
        if self._files is None:
            try:
                self._files = TlsFiles(self.target.tls(), self._clock)
            except InvalidOption as error:  # they may be being replaced
                raise Unavailable(f"{self.target.shown}: {error.message}") from error
        return self._files.pem

    async def ask(self, verb: str, request: Wire, response: type[T], *, changes: bool = False) -> T:
        """`changes`: without an answer nobody knows what happened."""
        async with self._using(changes=changes) as outbound:
            asked = self._request(verb, ANSWER_S, self._codec.encode(request))
            return self._single(await outbound(asked), response)

    async def tell(
        self, verb: str, requests: AsyncIterator[Wire], response: type[T], *, seconds: float
    ) -> T:
        """The same for a body in pieces, which changes something."""
        async with self._using(changes=True) as outbound:
            pieces = (self._codec.encode(one) async for one in requests)
            return self._single(await outbound(self._request(verb, seconds, b"", pieces)), response)

    async def hear(
        self, verb: str, request: Wire, response: type[T], *, seconds: float | None
    ) -> AsyncGenerator[T]:
        async with self._using(changes=False) as outbound:
            reply = await outbound(self._request(verb, seconds, self._codec.encode(request)))
            assert isinstance(reply, Stream)
            async with aclosing(reply.messages) as messages:
                async for message in messages:
                    yield self._codec.decode(message, response)

    def _request(
        self,
        verb: str,
        seconds: float | None,
        body: bytes,
        inbound: AsyncIterator[bytes] | None = None,
    ) -> Request:
        expires = None
        if seconds is not None:
            expires = self._clock.monotonic_ms() + round(seconds * 1000)
        meta = RequestMeta(
            procedure=f"{NAMESPACE}::{verb}",
            transport="grpc",
            encoding=self._codec.name,
            expires_ms=expires,
        )
        return Request(meta, body, self._codec, inbound)

    def _single(self, reply: Reply, response: type[T]) -> T:
        assert isinstance(reply, Response)
        return self._codec.decode(reply.body, response)

    @asynccontextmanager
    async def _using(self, *, changes: bool) -> AsyncIterator[GrpcOutbound]:
        outbound = await self._started()
        try:
            yield outbound
        except OmniRelayError as error:
            translated = self._translated(error, changes=changes)
            if isinstance(translated, Unavailable) and self._outbound is outbound:
                await self.close()  # one that waits between two tries would wait on
            raise translated from None

    def _translated(self, error: OmniRelayError, *, changes: bool) -> OmniRelayError:
        """What is known after it. What the hub itself said of its store is passed on."""
        shown, words = self.target.shown, error.message
        if isinstance(error, Unimplemented):
            return Unavailable(
                f"{shown} is no {REPLICATION_HUB.name}: start that node with --hub, or upgrade the "
                f"older of the two ({words})"
            )
        if isinstance(error, Unauthenticated | PermissionDenied):
            return Unavailable(f"{shown} refuses us: {words}")
        if isinstance(error, DeadlineExceeded):
            words = "it does not answer"
        elif isinstance(error, Unavailable) and words.startswith(NEVER_LEFT):
            return Unavailable(f"{shown} cannot be reached: {words}")
        elif isinstance(error, Unavailable) and not isinstance(error, OutcomeUnknown):
            return Unavailable(f"{shown}: {words}")
        elif not isinstance(error, OutcomeUnknown | Cancelled) and error.status != "INTERNAL":
            return error
        return OutcomeUnknown(f"{shown}: {words}") if changes else Unavailable(f"{shown}: {words}")

    async def close(self) -> None:
        outbound, self._outbound = self._outbound, None
        if outbound is not None:
            await outbound.stop()
