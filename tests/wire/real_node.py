"""A whole node with all its doors open, and one caller for each of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from omnirelay.lease.answers import LeaseResponse
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh import wire
from omnirelay.model.items import Payload
from omnirelay.model.ports import SystemClock
from omnirelay.node.node import Node
from omnirelay.node.settings import NamespaceSettings, NodeSettings
from omnirelay.rpc.client import Client
from omnirelay.rpc.procedure import Kind
from omnirelay.rpc.transport import Outbound
from omnirelay.testing.raw_http import RawAnswer, RawHttp
from omnirelay.transports.client_tls import ContextSource
from omnirelay.transports.grpc_outbound import GrpcOutbound
from omnirelay.transports.http_outbound import HttpOutbound
from omnirelay.transports.stream_outbound import StreamOutbound

NAMESPACE = "resourcelease"
WIRES = ("http", "stream", "grpc", "grpc json")
DUPLEX_WIRES = ("stream", "grpc", "grpc json")
CLOCK = SystemClock()
JSON = {"content_type": "application/json"}

ANSWERS: dict[str, type[Any]] = {
    "enqueue": wire.EnqueueResponse,
    "enqueueBatch": wire.EnqueueBatchResponse,
    "lease": LeaseResponse,
    "leaseBatch": wire.LeaseBatchResponse,
    "heartbeat": wire.HeartbeatResponse,
    "heartbeatBatch": wire.TokenBatchResponse,
    "complete": wire.TokenResponse,
    "completeBatch": wire.TokenBatchResponse,
    "completeAndLease": wire.CompleteAndLeaseResponse,
    "fail": wire.FailResponse,
    "release": wire.TokenResponse,
    "drain": wire.DrainResponse,
    "restore": wire.RestoreResponse,
    "stats": wire.StatsResponse,
    "inspect": wire.InspectResponse,
    "deadLetters": wire.DeadLettersResponse,
    "redrive": wire.CountResponse,
    "purge": wire.CountResponse,
    "position": wire.PositionResponse,
}


def node_settings(options: QueueOptions | None = None, **changed: Any) -> NodeSettings:
    """Any: fields of NodeSettings, which checks them."""
    own = {NAMESPACE: NamespaceSettings(options=options or QueueOptions())}
    return NodeSettings(
        **{
            "http": "127.0.0.1:0",
            "grpc": "127.0.0.1:0",
            "stream": "127.0.0.1:0",
            "journal": "memory:",
            "node_id": "node-1",
            "namespace": (),
            "namespaces": own,
            "grace_s": 0.5,
            **changed,
        }
    )


@asynccontextmanager
async def node(options: QueueOptions | None = None, **changed: Any) -> AsyncGenerator[Node]:
    async with Node(node_settings(options, **changed)) as opened:
        yield opened


def outbound_to(
    opened: Node,
    over: str,
    headers: Mapping[str, str] | None = None,
    tls: ContextSource | None = None,
    pem: Callable[[], Any] | None = None,
) -> Outbound:
    """`pem` is what gRPC wants instead of a context."""
    headers = headers or {}
    match over:
        case "http":
            return HttpOutbound(opened.urls["http"], clock=CLOCK, headers=headers, tls=tls)
        case "stream":
            return StreamOutbound(opened.urls["stream"], clock=CLOCK, headers=headers, tls=tls)
        case _:
            return GrpcOutbound(
                opened.urls["grpc"],
                clock=CLOCK,
                headers=headers,
                typed=over == "grpc",
                tls=pem,
                server_name=None if pem is None else "localhost",
            )


class Caller:
    """Typed calls over one wire; `work` and `events` are streams of their messages."""

    def __init__(self, outbound: Outbound, namespace: str) -> None:
        self.outbound = outbound
        self.client = Client(outbound, namespace)
        self.client.declare("events", kind=Kind.SERVER_STREAM)
        self.client.declare("work", kind=Kind.DUPLEX)

    async def __call__(self, verb: str, request: msgspec.Struct) -> Any:
        """Any: the struct that the verb answers with, or None."""
        async with asyncio.timeout(10):
            return await self.client.unary(verb, request, ANSWERS[verb])

    async def enqueue(self, name: str, **fields: Any) -> wire.EnqueueResponse:
        """Any: of the payload."""
        request = wire.EnqueueRequest(payload=Payload("table", name, **fields))
        accepted = await self("enqueue", request)
        assert isinstance(accepted, wire.EnqueueResponse)
        return accepted

    async def lease(self, **fields: Any) -> LeaseResponse:
        """Any: of the request."""
        leased = await self("lease", wire.LeaseRequest(**fields))
        assert isinstance(leased, LeaseResponse)
        return leased

    async def stats(self) -> wire.StatsResponse:
        stats = await self("stats", wire.StatsRequest())
        assert isinstance(stats, wire.StatsResponse)
        return stats


@asynccontextmanager
async def caller(
    opened: Node, over: str, *, namespace: str = NAMESPACE, **how: Any
) -> AsyncGenerator[Caller]:
    """Any: as `outbound_to` takes it."""
    outbound = outbound_to(opened, over, **how)
    await outbound.start()
    try:
        yield Caller(outbound, namespace)
    finally:
        await outbound.stop()


async def post(opened: Node, path: str, body: object, **headers: str) -> RawAnswer:
    """JSON by hand, as any program would send it."""
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    async with RawHttp(opened.urls["http"]) as raw:
        return await raw.ask("POST", path, encoded, **headers)


def said(answer: RawAnswer) -> Any:
    """Any: JSON."""
    return msgspec.json.decode(answer.body)
