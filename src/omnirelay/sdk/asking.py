"""One typed call over an outbound, repeated while it is safe and may help."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from omnirelay.model.errors import OmniRelayError, Unavailable
from omnirelay.model.ports import Clock
from omnirelay.rpc.meta import Request, RequestMeta, Response, Stream
from omnirelay.rpc.transport import Outbound

T = TypeVar("T")

PAUSE_MIN_S = 0.05
PAUSE_MAX_S = 1.0


class Asking:
    """Every request here may be repeated: it carries a request id, or a token, or only reads. So
    an unknown outcome is settled by asking again, for at most `retry_s`."""

    def __init__(
        self,
        outbound: Outbound,
        namespace: str,
        *,
        clock: Clock,
        chance: Callable[[], float],
        retry_s: float,
    ) -> None:
        self.outbound = outbound
        self._namespace = namespace
        self._clock = clock
        self._chance = chance
        self._retry_ms = round(retry_s * 1000)
        self._metas: dict[str, RequestMeta] = {}

    async def ask(
        self, verb: str, request: Any, response: type[T], *, wait_ms: int = 0
    ) -> T | None:
        """None is the empty reply. `wait_ms` is how long the other side may take on purpose."""
        body = self.outbound.codec.encode(request)
        call = Request(self._meta(verb), body, self.outbound.codec)
        try:
            reply = await self.outbound(call)
        except Unavailable as error:
            reply = await self._again(call, error)
        assert isinstance(reply, Response)
        return None if reply.empty else self.outbound.codec.decode(reply.body, response)

    async def _again(self, call: Request, error: OmniRelayError) -> Any:
        until = self._clock.monotonic_ms() + self._retry_ms
        pause_s = PAUSE_MIN_S
        while self._clock.monotonic_ms() < until:
            await asyncio.sleep(pause_s * (0.5 + self._chance() / 2))
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
            try:
                return await self.outbound(call)
            except Unavailable as latest:
                error = latest
        raise error

    async def open(self, verb: str, request: Any) -> AsyncGenerator[bytes]:
        codec = self.outbound.codec
        reply = await self.outbound(Request(self._meta(verb), codec.encode(request), codec))
        assert isinstance(reply, Stream)
        return reply.messages

    def _meta(self, verb: str) -> RequestMeta:
        meta = self._metas.get(verb)
        if meta is None:
            meta = self._metas[verb] = RequestMeta(
                procedure=f"{self._namespace}::{verb}",
                transport=self.outbound.name,
                encoding=self.outbound.codec.name,
            )
        return meta
