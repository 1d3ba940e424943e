"""How a case travels: the same call over each wire, header by header as it is written."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import urlencode, urlsplit

import grpc
import msgspec

from omnirelay.identity.settings import Identity, build_identity
from omnirelay.model.errors import OmniRelayError, Unavailable
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.codec import JSON
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.meta import Request, RequestMeta, Response
from omnirelay.rpc.status import GRPC
from omnirelay.rpc.transport import Inbound
from omnirelay.testing.identity_cases import Call, Case
from omnirelay.testing.identity_world import WHO, IdentityWorld, Who, who_registry
from omnirelay.testing.raw_http import RawHttp
from omnirelay.transports.grpc_inbound import GrpcInbound
from omnirelay.transports.grpc_loop import lasting_loop
from omnirelay.transports.http_inbound import HttpInbound
from omnirelay.transports.stream_inbound import StreamInbound
from omnirelay.transports.stream_outbound import StreamOutbound
from tests.wire.stream_raw import Again

CLOCK = SystemClock()
STATUSES = {number: name for name, number in GRPC.items()}


class Heard(msgspec.Struct, frozen=True):
    """What a caller hears: who it is, or a status; and all that was said."""

    who: Who | None
    status: str
    said: str


class Wire(Protocol):
    def inbound(self, dispatcher: Dispatcher, identity: Identity, *, secure: bool) -> Inbound: ...

    def refuses_itself(self, call: Call) -> list[str]:
        """Statuses with which the wire refuses what no identity is asked about."""

    async def ask(self, url: str, call: Call, world: IdentityWorld) -> Heard: ...


def context_of(world: IdentityWorld, call: Call) -> ssl.SSLContext | None:
    return None if call.client is None else world.client_context(call.client)


class HttpWire:
    def inbound(self, dispatcher: Dispatcher, identity: Identity, *, secure: bool) -> Inbound:
        return HttpInbound(
            dispatcher,
            dispatcher.registry,
            clock=CLOCK,
            tls=identity.tls.context if secure and identity.tls else None,
            read_certificate=identity.certificate_of,
        )

    def refuses_itself(self, call: Call) -> list[str]:
        return []

    async def ask(self, url: str, call: Call, world: IdentityWorld) -> Heard:
        query = f"?{urlencode(call.query)}" if call.query else ""
        lines = [f"POST /v1/{WHO.replace('::', '/')}{query} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in call.headers]
        head = "\r\n".join([*lines, "Content-Length: 2", "", "{}"])
        async with RawHttp(url, tls=context_of(world, call)) as http:
            await http.send(head.encode())
            answer = await http.answer()
        said = repr(answer)
        if answer.status == 200:
            return Heard(msgspec.json.decode(answer.body, type=Who), "OK", said)
        return Heard(None, str(answer.json()["status"]), said)


class GrpcWire:
    def inbound(self, dispatcher: Dispatcher, identity: Identity, *, secure: bool) -> Inbound:
        pem = identity.tls.pem() if secure and identity.tls else None
        return GrpcInbound(
            dispatcher,
            registry=dispatcher.registry,
            clock=CLOCK,
            host="127.0.0.1",
            port=0,
            tls=None if pem is None else lambda: (pem.key, pem.certificate, pem.ca),
            read_certificate=identity.certificate_of,
            services=(),
        )

    def refuses_itself(self, call: Call) -> list[str]:
        return []

    async def ask(self, url: str, call: Call, world: IdentityWorld) -> Heard:
        target = urlsplit(url).netloc
        options = [("grpc.max_metadata_size", 1 << 20)]
        with lasting_loop():
            if call.client is None:
                channel = grpc.aio.insecure_channel(target, options)
            else:
                shown = world.clients[call.client]
                secrets = grpc.ssl_channel_credentials(
                    world.authority.pem, shown.key_pem, shown.cert_pem
                )
                channel = grpc.aio.secure_channel(target, secrets, options)
        async with channel:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                f"/{WHO.replace('::', '/')}"
            )
            metadata = tuple((name.lower(), value) for name, value in call.headers)
            try:
                body = await method(b"{}", metadata=metadata, timeout=8)
            except grpc.aio.AioRpcError as error:
                number = error.code().value[0]
                return Heard(None, STATUSES[number], repr(error))
        return Heard(msgspec.json.decode(body, type=Who), "OK", repr(body))


class StreamWire:
    def inbound(self, dispatcher: Dispatcher, identity: Identity, *, secure: bool) -> Inbound:
        return StreamInbound(
            dispatcher,
            dispatcher.registry,
            clock=CLOCK,
            tls=identity.tls.context if secure and identity.tls else None,
            read_certificate=identity.certificate_of,
        )

    def refuses_itself(self, call: Call) -> list[str]:
        """Its hello is a map, where nothing may stand twice."""
        is_doubled = len(dict(call.headers)) < len(call.headers)
        return ["INVALID_ARGUMENT"] if is_doubled else []

    async def ask(self, url: str, call: Call, world: IdentityWorld) -> Heard:
        tls = context_of(world, call)
        headers: dict[str, str] = {Again(name): value for name, value in call.headers}
        outbound = StreamOutbound(
            url, clock=CLOCK, headers=headers, tls=None if tls is None else lambda: tls
        )
        meta = RequestMeta(procedure=WHO, transport="stream")
        try:
            reply = await outbound(Request(meta, b"{}", JSON))
        except OmniRelayError as error:
            return Heard(None, error.status, repr(error))
        finally:
            await outbound.stop()
        assert isinstance(reply, Response)
        return Heard(msgspec.json.decode(reply.body, type=Who), "OK", repr(reply))


WIRES: dict[str, Wire] = {"http": HttpWire(), "grpc": GrpcWire(), "stream": StreamWire()}


@asynccontextmanager
async def served(
    wire: Wire, world: IdentityWorld, case: Case, *, secure: bool
) -> AsyncGenerator[str]:
    settings = world.settings(proxied=case.proxied, anonymous=case.anonymous)
    identity = build_identity(settings, CLOCK)
    inbound = wire.inbound(Dispatcher(who_registry(), identity.middleware), identity, secure=secure)
    await inbound.start()
    try:
        yield inbound.url
    finally:
        await inbound.stop(1)
        await identity.close()


def is_cut_off(error: Exception) -> bool:
    """A handshake that fails is a broken connection to the caller, however its library says so."""
    return isinstance(error, OSError | EOFError | Unavailable)
