"""The transports of this package, each opened on an echo, for the suite that holds them alike."""

from omnirelay.model.ports import SystemClock
from omnirelay.rpc.transport import Inbound, Outbound
from omnirelay.testing.transport_echo import Echo
from omnirelay.transports.grpc_inbound import GrpcInbound
from omnirelay.transports.grpc_outbound import GrpcOutbound
from omnirelay.transports.http_inbound import HttpInbound
from omnirelay.transports.http_outbound import HttpOutbound
from omnirelay.transports.memory import MemoryInbound, MemoryOutbound
from omnirelay.transports.stream_inbound import StreamInbound
from omnirelay.transports.stream_outbound import StreamOutbound

WIRES = ("memory", "http", "stream", "grpc")
_CLOCK = SystemClock()


class OpenWire:
    """`async with OpenWire("stream") as wire:` satisfies the suite's `Wire`."""

    outbound: Outbound

    def __init__(self, name: str) -> None:
        self.echo = Echo(_CLOCK)
        self.has_duplex = name != "http"
        self.crosses_process = name != "memory"
        self.inbound = self._inbound(name)

    def _inbound(self, name: str) -> Inbound:
        dispatcher, registry = self.echo.dispatcher, self.echo.registry
        match name:
            case "http":
                return HttpInbound(dispatcher, registry, clock=_CLOCK)
            case "stream":
                return StreamInbound(dispatcher, registry, clock=_CLOCK)
            case "grpc":
                return GrpcInbound(
                    dispatcher, registry=registry, clock=_CLOCK, host="127.0.0.1", port=0
                )
            case _:
                return MemoryInbound(dispatcher)

    def _outbound(self) -> Outbound:
        url = self.inbound.url
        match self.inbound.name:
            case "http":
                return HttpOutbound(url, clock=_CLOCK)
            case "stream":
                return StreamOutbound(url, clock=_CLOCK)
            case "grpc":
                return GrpcOutbound(url, clock=_CLOCK, typed=False)
            case _:
                return MemoryOutbound(self.echo.dispatcher)

    async def __aenter__(self) -> "OpenWire":
        await self.inbound.start()
        self.outbound = self._outbound()
        await self.outbound.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.outbound.stop()
        await self.inbound.stop(0.1)
