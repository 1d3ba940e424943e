"""Durations and spans of every call. Labels are few and bounded; a resource id or a token is never
one."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from omnirelay.model.errors import Cancelled, OmniRelayError
from omnirelay.model.ports import stopwatch
from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.procedure import Handler, Procedure

LOOK_EVERY_S = 1.0
"""A process that brings an SDK of its own is heard within this time."""


class Record(Protocol):
    """Where a measurement goes."""

    def __call__(
        self, seconds: float, procedure: Procedure, transport: str, outcome: str
    ) -> None: ...


class Metrics:
    is_passing = True

    def __init__(self, record: Record) -> None:
        self._record = record

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        began = stopwatch()
        outcome = OmniRelayError.status  # of whatever else ends it: a bug
        try:
            reply = await next_(request)
            outcome = "OK"
            return reply
        except OmniRelayError as error:
            outcome = error.status
            raise
        except asyncio.CancelledError:
            outcome = Cancelled.status
            raise
        finally:
            self._record(stopwatch() - began, procedure, request.meta.transport, outcome)


class Tracing:
    """A span a call, child of the caller's `traceparent`, if `takes` says so of that parent. Behind
    identity, so that the principal is a proved one."""

    def __init__(self, takes: Callable[[SpanContext], bool]) -> None:
        self._tracer = trace.get_tracer("omnirelay")
        self._takes = takes
        self._looked_at = -LOOK_EVERY_S
        self._is_heard = False

    def is_idle(self, request: Request) -> bool:
        """Without an SDK every span is made for nobody, and that costs as much as a small call. To
        ask whether there is one reads the environment, so it is not asked at every call."""
        now = stopwatch()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            self._is_heard = not isinstance(self._tracer, trace.ProxyTracer) or not isinstance(
                trace.get_tracer_provider(), trace.ProxyTracerProvider
            )
        return not self._is_heard

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        meta = request.meta
        context = propagate.extract(meta.headers) if "traceparent" in meta.headers else Context()
        if not self._takes(trace.get_current_span(context).get_span_context()):
            return await next_(request)
        attributes = {
            "rpc.system": "omnirelay",
            "rpc.service": procedure.namespace,
            "rpc.method": procedure.verb,
            "rpc.principal": meta.principal,
            "resourcelease.operation": procedure.verb,
        }
        if meta.shard_key is not None:
            attributes["rpc.shard_key"] = meta.shard_key
        if meta.peer_id is not None:
            attributes["rpc.peer"] = meta.peer_id
        with self._tracer.start_as_current_span(
            procedure.name,
            context=context,
            kind=SpanKind.SERVER,
            attributes=attributes,
            record_exception=False,  # its text may hold what a caller sent
            set_status_on_exception=False,
        ) as span:
            failed: type[OmniRelayError] | OmniRelayError | None = OmniRelayError
            try:
                reply = await next_(request)
                failed = None
                return reply
            except OmniRelayError as error:
                failed = error
                raise
            except asyncio.CancelledError:
                failed = Cancelled
                raise
            finally:
                if failed is not None:
                    span.set_attribute("error.code", failed.code)
                    span.set_status(Status(StatusCode.ERROR, failed.status))
