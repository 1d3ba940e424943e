"""Middleware every node runs: what a call must not do without."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from omnirelay.model import limits
from omnirelay.model.errors import (
    Cancelled,
    DeadlineExceeded,
    OmniRelayError,
    ResourceExhausted,
    TooLarge,
)
from omnirelay.model.ports import Clock
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response, Stream
from omnirelay.rpc.procedure import Handler, Procedure

log = logging.getLogger(__name__)
access = logging.getLogger("omnirelay.access")


class LastResort:
    """A bug becomes `error.internal` with a number to look for in the log: neither its text nor its
    trace leaves the process. Outermost, so that nothing escapes it."""

    is_passing = True

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        try:
            reply = await next_(request)
        except OmniRelayError:
            raise
        except Exception as bug:
            raise self._internal(procedure, bug) from None
        if isinstance(reply, Stream):
            return Stream(self._watched(procedure, reply.messages))
        return reply

    async def _watched(
        self, procedure: Procedure, messages: AsyncGenerator[bytes]
    ) -> AsyncGenerator[bytes]:
        async with aclosing(messages):
            try:
                async for message in messages:
                    yield message
            except OmniRelayError:
                raise
            except Exception as bug:
                raise self._internal(procedure, bug) from None

    def _internal(self, procedure: Procedure, bug: Exception) -> OmniRelayError:
        incident = self._new_id()
        log.error("incident %s in %s", incident, procedure.name, exc_info=bug)
        return OmniRelayError(f"internal error, incident {incident}", incident=incident)


class Deadline:
    """Ends a call when its caller has stopped waiting, whatever it waits for. For a stream that is
    the whole stream."""

    is_settled = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def is_idle(self, request: Request) -> bool:
        return request.meta.expires_ms is None

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        expires_ms = request.meta.expires_ms
        assert expires_ms is not None, "a call without a deadline passes this by"
        time = asyncio.timeout(self._left_s(expires_ms))
        try:
            async with time:
                reply = await next_(request)
        except TimeoutError:
            if not time.expired():
                raise  # the handler's own, which is no deadline of the caller's
            raise _too_late() from None
        if isinstance(reply, Stream):
            return Stream(self._timed(expires_ms, reply.messages))
        return reply

    async def _timed(
        self, expires_ms: int, messages: AsyncGenerator[bytes]
    ) -> AsyncGenerator[bytes]:
        async with aclosing(messages):
            while True:
                time = asyncio.timeout(self._left_s(expires_ms))
                try:
                    async with time:
                        message = await anext(messages, None)
                except TimeoutError:
                    if not time.expired():
                        raise
                    raise _too_late() from None
                if message is None:
                    return
                yield message

    def _left_s(self, expires_ms: int) -> float:
        left = expires_ms - self._clock.monotonic_ms()
        if left <= 0:
            raise _too_late()
        return left / 1000


def _too_late() -> DeadlineExceeded:
    return DeadlineExceeded("the deadline of the call has passed")


class SizeLimit:
    """Transports stop reading at the same bound; this one also holds for what goes out."""

    is_passing = True

    def __init__(self, bytes_max: int = limits.MESSAGE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        if len(request.body) > self._bytes_max:
            raise TooLarge(
                f"the body has {len(request.body)} bytes, the limit is {self._bytes_max}"
            )
        reply = await next_(request)
        if isinstance(reply, Response) and len(reply.body) > self._bytes_max:
            raise ResourceExhausted(
                f"the answer has {len(reply.body)} bytes, the limit is {self._bytes_max}: ask for "
                f"fewer items"
            )
        return reply


class AccessLog:
    """One line a call, when somebody listens. Never a body, a token or a header."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def is_idle(self, request: Request) -> bool:
        return not access.isEnabledFor(logging.INFO)

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        began = self._clock.monotonic_ms()
        outcome = OmniRelayError.code  # of whatever else ends it: a bug
        try:
            reply = await next_(request)
            outcome = "OK"
            return reply
        except OmniRelayError as error:
            outcome = error.code
            raise
        except asyncio.CancelledError:
            outcome = Cancelled.code
            raise
        finally:
            self._say(request.meta, outcome, self._clock.monotonic_ms() - began)

    def _say(self, meta: RequestMeta, outcome: str, took_ms: int) -> None:
        access.info(
            "%s over %s from %s by %s: %s in %d ms",
            meta.procedure,
            meta.transport,
            meta.address or "here",
            meta.principal,
            outcome,
            took_ms,
        )
