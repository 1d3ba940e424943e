"""Every transport is held to the same suite."""

from collections.abc import AsyncIterator

import pytest

from omnirelay.model.ports import SystemClock
from omnirelay.rpc.transport import Inbound, Outbound
from omnirelay.testing.transport_echo import Echo
from omnirelay.testing.transport_suite import TransportSuite, caller
from omnirelay.transports.grpc_inbound import GrpcInbound
from omnirelay.transports.grpc_outbound import GrpcOutbound
from omnirelay.transports.http_inbound import HttpInbound
from omnirelay.transports.http_outbound import HttpOutbound
from omnirelay.transports.memory import MemoryInbound, MemoryOutbound
from omnirelay.transports.stream_inbound import StreamInbound
from omnirelay.transports.stream_outbound import StreamOutbound

__all__ = ["caller"]

CLOCK = SystemClock()


class Opened:
    def __init__(self, name: str) -> None:
        self.echo = Echo(CLOCK)
        self.has_duplex = name != "http"
        self.crosses_process = name != "memory"
        self.inbound = self._inbound(name)
        self.outbound: Outbound

    def _inbound(self, name: str) -> Inbound:
        dispatcher, registry = self.echo.dispatcher, self.echo.registry
        match name:
            case "http":
                return HttpInbound(dispatcher, registry, clock=CLOCK)
            case "stream":
                return StreamInbound(dispatcher, registry, clock=CLOCK)
            case "grpc":
                return GrpcInbound(
                    dispatcher, registry=registry, clock=CLOCK, host="127.0.0.1", port=0
                )
            case _:
                return MemoryInbound(dispatcher)

    async def open(self) -> None:
        await self.inbound.start()
        url = self.inbound.url
        match self.inbound.name:
            case "http":
                self.outbound = HttpOutbound(url, clock=CLOCK)
            case "stream":
                self.outbound = StreamOutbound(url, clock=CLOCK)
            case "grpc":
                self.outbound = GrpcOutbound(url.removeprefix("grpc://"), clock=CLOCK, typed=False)
            case _:
                self.outbound = MemoryOutbound(self.echo.dispatcher)
        await self.outbound.start()


class TestTransports(TransportSuite):
    @pytest.fixture(params=["memory", "http", "stream", "grpc"])
    async def wire(self, request: pytest.FixtureRequest) -> AsyncIterator[Opened]:
        opened = Opened(request.param)
        await opened.open()
        try:
            yield opened
        finally:
            await opened.outbound.stop()
            await opened.inbound.stop(0.1)
