"""The standard services every gRPC tool knows: health and reflection."""

import asyncio
from collections.abc import Callable, Sequence
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
LOOK_EVERY_S = 0.5
"""How long a watcher may not know of a change."""


class Health:
    """All services of a listener are well or unwell together, as `is_well` says when asked. Ours,
    because the packaged one keeps its watchers when the listener stops, which then waits for
    them."""

    def __init__(self, services: Sequence[str], is_well: Callable[[], bool]) -> None:
        self._known = frozenset(("", HEALTH, *services))
        self._is_well = is_well
        self._closing = asyncio.Event()

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

    async def close(self) -> None:
        """Not serving any more; watchers hear it and are let go."""
        self._closing.set()

    async def check(self, request: Any, context: Context) -> Any:
        if request.service not in self._known:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return _Answer(status=self._status(request.service))

    async def watch(self, request: Any, context: Context) -> None:
        told = None
        while True:
            closed = self._closing.is_set()  # before the status: the last must not be missed
            status = self._status(request.service)
            if status != told:
                await context.write(_Answer(status=status))
                told = status
            if closed:
                return
            await self._look_up_later()

    async def _look_up_later(self) -> None:
        try:
            async with asyncio.timeout(LOOK_EVERY_S):
                await self._closing.wait()
        except TimeoutError:
            return

    def _status(self, service: str) -> Any:
        if service not in self._known:
            return _Answer.SERVICE_UNKNOWN
        is_serving = not self._closing.is_set() and self._is_well()
        return _Answer.SERVING if is_serving else _Answer.NOT_SERVING


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
