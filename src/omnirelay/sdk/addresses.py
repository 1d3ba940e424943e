"""From the address of a node to outbounds. Each wire is imported when an address asks for it, so
that a program installs only what it uses."""

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import Clock
from omnirelay.rpc.codec import MSGPACK
from omnirelay.rpc.failover import Failover
from omnirelay.rpc.transport import Outbound

SCHEMES = ("http", "https", "stream", "streams", "stream+unix", "grpc", "grpcs")


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a client: whom it trusts, and what proves it to the node."""

    ca_file: str | None = None
    """None: the authorities of the system."""
    cert_file: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise InvalidOption("a client certificate needs both its file and its key's file")

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise InvalidOption(f"the TLS files cannot be used: {error}") from error
        return context

    def pem(self) -> "tuple[bytes | None, bytes | None, bytes | None]":
        """Key, certificate and authority, as gRPC wants them."""
        try:
            return (_read(self.key_file), _read(self.cert_file), _read(self.ca_file))
        except OSError as error:
            raise InvalidOption(f"the TLS files cannot be used: {error}") from error


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def is_node(url: object) -> bool:
    return isinstance(url, str) and urlsplit(url).scheme in SCHEMES


def _is_whole(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "stream+unix":
        return bool(parts.path)
    try:
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False  # a port that is none


def opener(
    url: str, *, clock: Clock, headers: Mapping[str, str], tls: Tls | None
) -> Callable[[], Outbound]:
    """What makes one more outbound to `url`, which may be several addresses parted by commas."""
    urls = [one.strip() for one in url.split(",")]
    for one in urls:
        if not is_node(one) or not _is_whole(one):
            raise InvalidOption(
                f"{one!r} is no node's address: write {', '.join(SCHEMES)} and ://host:port"
            )
    if len({urlsplit(one).scheme for one in urls}) > 1:
        raise InvalidOption(f"all addresses of {url!r} must use the same scheme")

    def open_outbound() -> Outbound:
        outbounds = [_outbound(one, clock, headers, tls) for one in urls]
        return outbounds[0] if len(outbounds) == 1 else Failover(outbounds)

    return open_outbound


def _outbound(url: str, clock: Clock, headers: Mapping[str, str], tls: Tls | None) -> Outbound:
    parts = urlsplit(url)
    scheme = parts.scheme
    try:
        if scheme in ("http", "https"):
            return _http(url, clock, headers, tls if scheme == "https" else None)
        if scheme in ("grpc", "grpcs"):
            secure = (tls or Tls()) if scheme == "grpcs" else None
            return _grpc(parts.netloc, clock, headers, secure)
    except ModuleNotFoundError as missing:
        extra = scheme.removesuffix("s")
        raise InvalidOption(
            f"{scheme}:// needs {missing.name}: pip install 'omnirelay[{extra}]'"
        ) from missing
    from omnirelay.transports.stream_outbound import StreamOutbound

    context = None if tls is None or scheme != "streams" else tls.context()
    return StreamOutbound(url, clock=clock, headers=headers, tls=context)


def _http(url: str, clock: Clock, headers: Mapping[str, str], tls: Tls | None) -> Outbound:
    from omnirelay.transports.http_outbound import HttpOutbound

    context = None if tls is None else tls.context()
    return HttpOutbound(url, clock=clock, headers=headers, tls=context)


def _grpc(target: str, clock: Clock, headers: Mapping[str, str], tls: Tls | None) -> Outbound:
    from omnirelay.transports.grpc_outbound import GrpcOutbound

    secure = None if tls is None else tls.pem
    # In MessagePack: Python spends more on a protobuf message than on everything else of a call.
    return GrpcOutbound(
        target,
        clock=clock,
        headers=tuple(headers.items()),
        tls=secure,
        typed=False,
        codec=MSGPACK,
    )
