"""A gRPC listener for the tests: echo procedures of every kind, and one real queue."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from omnirelay.mesh.component import Component
from omnirelay.mesh.procedures import register
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.builtin import Deadline, LastResort, SizeLimit
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.meta import Request, RequestMeta
from omnirelay.sdk.engine import Engine
from omnirelay.transports.grpc_inbound import GrpcInbound
from omnirelay.transports.grpc_loop import lasting_loop
from omnirelay.transports.grpc_outbound import GrpcOutbound
from tests.wire.http_echo import Echo

TYPED = "/omnirelay.v1.ResourceLease"


def raw_channel(target: str, *options: tuple[str, int]) -> grpc.aio.Channel:
    """gRPC's own; only that what it still has to tell when its test is over troubles no other."""
    with lasting_loop():
        return grpc.aio.insecure_channel(target, options)


class Node:
    def __init__(self, echo: Echo, inbound: GrpcInbound) -> None:
        self.echo = echo
        self.inbound = inbound

    @property
    def port(self) -> int:
        return int(self.inbound.url.rpartition(":")[2])

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    @asynccontextmanager
    async def channel(self) -> AsyncGenerator[grpc.aio.Channel]:
        """As any program of others would call."""
        async with raw_channel(self.target) as channel:
            yield channel

    @asynccontextmanager
    async def outbound(self, **options: Any) -> AsyncGenerator[GrpcOutbound]:
        outbound = GrpcOutbound(self.inbound.url, clock=self.echo.clock, **options)
        await outbound.start()
        try:
            yield outbound
        finally:
            await outbound.stop()


@asynccontextmanager
async def served(middleware: Sequence[Any] | None = None, **options: Any) -> AsyncGenerator[Node]:
    """Any: middleware, and parameters of GrpcInbound."""
    echo = Echo()
    engine = Engine.open("memory:", namespace="resourcelease")
    register(echo.registry, Component("resourcelease", engine, clock=SystemClock()))
    if middleware is None:
        middleware = (LastResort(lambda: "incident-1"), Deadline(echo.clock), SizeLimit())
    inbound = GrpcInbound(
        Dispatcher(echo.registry, middleware),
        host="127.0.0.1",
        port=0,
        clock=echo.clock,
        registry=echo.registry,
        **options,
    )
    await inbound.start()
    try:
        yield Node(echo, inbound)
    finally:
        await inbound.stop(0)
        engine.close()


def asking(procedure: str, message: Any, outbound: GrpcOutbound, **meta: Any) -> Request:
    """A request as a client would make it. Any: a struct; fields of RequestMeta."""
    called = RequestMeta(procedure=procedure, transport="grpc", **meta)
    return Request(called, outbound.codec.encode(message), outbound.codec)
