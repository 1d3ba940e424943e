"""Calls that come in over gRPC: typed services, JSON pass-through, health, reflection."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, Unimplemented
from omnirelay.model.ports import Clock
from omnirelay.rpc.meta import Certificate
from omnirelay.rpc.procedure import Handler, Kind, Registry
from omnirelay.transports.grpc_call import Call, Context, Surroundings
from omnirelay.transports.grpc_health import Health, Reflection
from omnirelay.transports.grpc_listener import Listener
from omnirelay.transports.grpc_loop import lasting_loop
from omnirelay.transports.grpc_peers import Peers
from omnirelay.transports.grpc_service import NAMESPACE, RESOURCE_LEASE, TypedService
from omnirelay.transports.grpc_tls import ServerSecrets, TlsSource
from omnirelay.transports.per_address import PerAddress

_MANY_ANSWERS = (Kind.SERVER_STREAM, Kind.DUPLEX)
_MANY_QUESTIONS = (Kind.CLIENT_STREAM, Kind.DUPLEX)

OPTIONS = (
    ("grpc.so_reuseport", 0),  # a taken address is an error, not a second listener
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),  # the dispatcher bounds what goes out
    ("grpc.max_metadata_size", limits.HEADER_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", limits.HEADER_BYTES_MAX),
    ("grpc.max_concurrent_streams", limits.CALLS_PER_CONNECTION_MAX),
    # A peer that is gone without a word is noticed; one that pings too often is dropped.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # by itself a minute, whatever the line above says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 2),
)


class GrpcInbound:
    """`handler` is the dispatcher's. `registry` says which kind a JSON procedure is of, since gRPC
    must know before it calls.

    `read_certificate` describes a client certificate (DER) that TLS has verified, or refuses it.
    `is_well` is what health checks are told. `per_address` bounds the connections of one address
    that have calls under way: gRPC does not show the others.
    """

    name = "grpc"

    def __init__(
        self,
        handler: Handler,
        *,
        host: str,
        port: int,
        clock: Clock,
        registry: Registry,
        tls: TlsSource | None = None,
        read_certificate: Callable[[bytes], Certificate] | None = None,
        services: Sequence[TypedService] = (RESOURCE_LEASE,),
        calls_max: int = limits.WAITERS_MAX,
        first_message_s: float = 30.0,
        per_address: PerAddress | None = None,
        is_well: Callable[[], bool] = lambda: True,
    ) -> None:
        self._handler = handler
        self._host = host
        self._port = port
        self._clock = clock
        self._registry = registry
        self._secrets = None if tls is None else ServerSecrets(tls)
        self._services = tuple(services)
        self._calls_max = calls_max
        self._first_message_s = first_message_s
        self._peers = Peers(per_address)
        self._health = Health([service.name for service in services], is_well)
        self._listener: Listener | None = None
        self._read = read_certificate
        # Reading costs more than a small call, and a connection shows the same one again.
        self._certificates: dict[bytes, Certificate] = {}

    @property
    def url(self) -> str:
        scheme = "grpc" if self._secrets is None else "grpcs"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self._port}"

    async def start(self) -> None:
        await _check_address(self._host, self._port)
        listener = Listener(self._host, self._build, self._credentials)
        self._port = await listener.start(self._port)
        self._listener = listener

    async def stop(self, grace_s: float) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await self._health.close()
            await listener.stop(grace_s)

    def reload_tls(self) -> None:
        """New connections get what the source gives now; certificates are read afresh. Raises
        InvalidOption, and changes nothing, if the source gives no key and chain."""
        if self._secrets is not None:
            self._secrets.reload()
        self._certificates.clear()

    def _build(self) -> grpc.aio.Server:
        around = Surroundings(
            self._handler, self._clock, self._certificate_of, self._first_message_s, self._peers
        )
        names = [service.name for service in self._services]
        routes = Routes(around, self._services, self._registry)
        with lasting_loop():
            return grpc.aio.server(
                handlers=(self._health.handler(), Reflection(names), routes),
                options=OPTIONS,
                maximum_concurrent_rpcs=self._calls_max,
            )

    def _credentials(self) -> grpc.ServerCredentials | None:
        return None if self._secrets is None else self._secrets.credentials()

    def _certificate_of(self, context: Context) -> Certificate | None:
        if self._secrets is None or self._read is None:
            return None
        for pem in context.auth_context().get("x509_pem_cert", ()):
            known = self._certificates.get(pem)
            if known is None:
                known = self._read(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
                self._remember(pem, known)
            return known
        return None

    def _remember(self, pem: bytes, certificate: Certificate) -> None:
        if len(self._certificates) >= limits.CONNECTIONS_MAX:
            self._certificates.clear()
        self._certificates[pem] = certificate


class Routes(grpc.GenericRpcHandler):
    """Any: bytes both ways; nothing here reads a message."""

    def __init__(
        self, around: Surroundings, services: Sequence[TypedService], registry: Registry
    ) -> None:
        self._around = around
        self._registry = registry
        self._typed = {
            path: (service, method)
            for service in services
            for path, method in service.by_path.items()
        }

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        details = handler_call_details
        metadata = tuple(details.invocation_metadata)
        found = self._typed.get(details.method)
        if found is None:
            return self._plain(details.method, metadata)
        service, method = found
        namespace = str(dict(metadata).get(NAMESPACE, service.namespace))
        call = Call(
            self._around,
            f"{namespace}::{method.verb}",
            metadata,
            codec=service.codec,
            takes_many=method.takes_many,
        )
        return _answering(call, gives_many=method.gives_many)

    def _plain(self, path: str, metadata: Any) -> "grpc.RpcMethodHandler[Any, Any]":
        """`/{service}/{procedure}` with the bytes of whatever encoding the metadata names."""
        namespace, _, verb = path.removeprefix("/").partition("/")
        name = f"{namespace}::{verb}"
        try:
            kind = self._registry.find(name).kind
        except Unimplemented:
            # The dispatcher refuses it again, in words every transport shares, and without waiting
            # for a message that may never come.
            kind = Kind.DUPLEX
        call = Call(self._around, name, metadata, codec=None, takes_many=kind in _MANY_QUESTIONS)
        return _answering(call, gives_many=kind in _MANY_ANSWERS)


def _answering(call: Call, *, gives_many: bool) -> "grpc.RpcMethodHandler[Any, Any]":
    if gives_many:
        return grpc.stream_stream_rpc_method_handler(call.many)
    return grpc.stream_unary_rpc_method_handler(call.one)


async def _check_address(host: str, port: int) -> None:
    if not 0 <= port <= 65535:
        raise InvalidOption(f"port {port} must be between 0 and 65535")
    try:
        await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise InvalidOption(f"{host[:200]!r} is no address of this machine") from None
