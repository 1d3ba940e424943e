"""The standard services every gRPC tool knows: health and reflection."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import grpc
import grpc.aio

# Neither package ships types.
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection, reflection_pb2  # type: ignore[import-untyped]

HEALTH: Final = "grpc.health.v1.Health"
REFLECTION: Final = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)

Context = grpc.aio.ServicerContext[Any, Any]  # Any: messages of packages without types
_Answer = health_pb2.HealthCheckResponse


class Health:
    """All services of a listener are well or unwell together. Ours, because the packaged one keeps
    its watchers when the listener stops, which then waits for them."""

    def __init__(self, services: Sequence[str]) -> None:
        self._known = frozenset(("", HEALTH, *services))
        self._changed = asyncio.Condition()
        self._serving = True
        self._closed = False

    def handler(self) -> grpc.GenericRpcHandler:
        reads = health_pb2.HealthCheckRequest.FromString
        writes = _Answer.SerializeToString
        return grpc.method_handlers_generic_handler(
            HEALTH,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self.check, reads, writes),
                "Watch": grpc.unary_stream_rpc_method_handler(self.watch, reads, writes),
            },
        )

    async def set_serving(self, serving: bool) -> None:
        async with self._changed:
            self._serving = serving
            self._changed.notify_all()

    async def close(self) -> None:
        """Not serving any more; watchers hear it and are let go."""
        self._closed = True
        await self.set_serving(False)

    async def check(self, request: Any, context: Context) -> Any:
        if request.service not in self._known:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return _Answer(status=self._status(request.service))

    async def watch(self, request: Any, context: Context) -> None:
        told = None
        while True:
            closed = self._closed  # before the status: the last one must not be missed
            status = self._status(request.service)
            if status != told:
                await context.write(_Answer(status=status))
                told = status
            if closed:
                return
            async with self._changed:
                if not self._closed and self._status(request.service) == told:
                    await self._changed.wait()

    def _status(self, service: str) -> Any:
        if service not in self._known:
            return _Answer.SERVICE_UNKNOWN
        return _Answer.SERVING if self._serving else _Answer.NOT_SERVING


class Reflection(grpc.GenericRpcHandler):
    """Under its old name and its new one: the messages are the same, and tools ask for either."""

    def __init__(self, services: Sequence[str]) -> None:
        named = (*services, HEALTH, *REFLECTION)
        self._handler = grpc.stream_stream_rpc_method_handler(
            reflection.aio.ReflectionServicer(named).ServerReflectionInfo,
            reflection_pb2.ServerReflectionRequest.FromString,
            reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        self._paths = {f"/{name}/ServerReflectionInfo" for name in REFLECTION}

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        return self._handler if handler_call_details.method in self._paths else None
