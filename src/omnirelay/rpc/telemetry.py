"""Metrics and spans of every call, through the OpenTelemetry API: free until a process brings the
SDK. Labels are few and bounded; a resource id or a token is never one."""

import asyncio
from collections.abc import Callable

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from omnirelay.model.errors import Cancelled, OmniRelayError
from omnirelay.model.ports import stopwatch
from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.procedure import Handler, Procedure


class Metrics:
    def __init__(self) -> None:
        meter = metrics.get_meter("omnirelay")
        self._duration = meter.create_histogram(
            "omnirelay.rpc.duration", unit="s", description="From a call's arrival to its answer."
        )

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
            labels = {
                "rpc.service": procedure.namespace,
                "rpc.procedure": procedure.verb,
                "rpc.transport": request.meta.transport,
                "outcome": outcome,
            }
            self._duration.record(stopwatch() - began, labels)


class Tracing:
    """A span a call, child of the caller's `traceparent`, if `takes` says so of that parent. Behind
    identity, so that the principal is a proved one."""

    def __init__(self, takes: Callable[[SpanContext], bool]) -> None:
        self._tracer = trace.get_tracer("omnirelay")
        self._takes = takes

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
