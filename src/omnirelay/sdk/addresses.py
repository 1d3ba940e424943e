"""From the address of a node to outbounds. Each wire is imported when an address asks for it, so
that a program installs only what it uses."""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import Clock
from omnirelay.rpc.codec import MSGPACK
from omnirelay.rpc.failover import Failover
from omnirelay.rpc.transport import Outbound
from omnirelay.transports.client_tls import Tls, TlsFiles

SCHEMES = ("http", "https", "stream", "streams", "stream+unix", "grpc", "grpcs")
SECURE = ("https", "streams", "grpcs")
_NAMING_SERVERS = ("streams", "https")

SILENCE_S = 30.0
SILENCE_AMONG_OTHERS_S = 5.0
"""Where other nodes serve the same, one that says nothing is left sooner."""


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
    files = _files(urlsplit(urls[0]).scheme, tls, clock)

    def open_outbound() -> Outbound:
        silence_s = SILENCE_S if len(urls) == 1 else SILENCE_AMONG_OTHERS_S
        outbounds = [_outbound(one, clock, headers, files, silence_s) for one in urls]
        return outbounds[0] if len(outbounds) == 1 else Failover(outbounds)

    return open_outbound


def _files(scheme: str, tls: Tls | None, clock: Clock) -> TlsFiles | None:
    """Those of a scheme with TLS; one without has none, and no way to keep a promise of them."""
    if tls is not None and tls.server_id is not None and scheme not in _NAMING_SERVERS:
        raise InvalidOption(
            f"server_id cannot be checked over {scheme}://: gRPC looks at host names only, and "
            f"without TLS nobody is proved; use {' or '.join(_NAMING_SERVERS)}"
        )
    if scheme not in SECURE:
        return None
    return TlsFiles(tls or Tls(), clock)


def _outbound(
    url: str, clock: Clock, headers: Mapping[str, str], files: TlsFiles | None, silence_s: float
) -> Outbound:
    scheme = urlsplit(url).scheme
    try:
        if scheme in ("http", "https"):
            return _http(url, clock, headers, files, silence_s)
        if scheme in ("grpc", "grpcs"):
            return _grpc(urlsplit(url).netloc, clock, headers, files)
    except ModuleNotFoundError as missing:
        extra = scheme.removesuffix("s")
        raise InvalidOption(
            f"{scheme}:// needs {missing.name}: pip install 'omnirelay[{extra}]'"
        ) from missing
    from omnirelay.transports.stream_outbound import StreamOutbound

    tls = None if files is None else files.context
    return StreamOutbound(url, clock=clock, headers=headers, tls=tls, silence_s=silence_s)


def _http(
    url: str, clock: Clock, headers: Mapping[str, str], files: TlsFiles | None, silence_s: float
) -> Outbound:
    from omnirelay.transports.http_outbound import HttpOutbound

    tls = None if files is None else files.context
    return HttpOutbound(url, clock=clock, headers=headers, tls=tls, silence_s=silence_s)


def _grpc(
    target: str, clock: Clock, headers: Mapping[str, str], files: TlsFiles | None
) -> Outbound:
    from omnirelay.transports.grpc_outbound import GrpcOutbound

    # In MessagePack: Python spends more on a protobuf message than on everything else of a call.
    return GrpcOutbound(
        target,
        clock=clock,
        headers=tuple(headers.items()),
        tls=None if files is None else files.pem,
        typed=False,
        codec=MSGPACK,
    )
