"""Heartbeats to a node, over a thread and a connection of their own: neither a busy loop nor a full
connection delays one."""

import asyncio
from collections.abc import Sequence

from omnirelay.mesh import wire
from omnirelay.mesh.calls import Outcome
from omnirelay.model.errors import Unavailable
from omnirelay.model.items import Token
from omnirelay.rpc.failover import Failover
from omnirelay.sdk import words
from omnirelay.sdk.asking import Asking, Route
from omnirelay.sdk.threads import LoopThread


class Pulse:
    """Called from the heart's thread alone, until it is closed."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._thread: LoopThread | None = None
        self._asking: Asking | None = None

    def beat(self, tokens: Sequence[Token], timeout_s: float) -> Sequence[Outcome]:
        if self._thread is None:
            self._thread = LoopThread("omnirelay-heartbeats")
        return self._thread.call(self._beat(tuple(tokens), timeout_s))

    async def _beat(self, tokens: tuple[Token, ...], timeout_s: float) -> Sequence[Outcome]:
        if self._asking is None:
            self._asking = self._route.asking(retry_s=0)  # the heart itself tries again
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._asking.ask(
                    "heartbeatBatch", wire.TokenBatchRequest(tokens), wire.TokenBatchResponse
                )
        except TimeoutError:
            if isinstance(outbound := self._asking.outbound, Failover):
                outbound.move_on()  # a node that was stopped does not say so
            raise Unavailable(f"no heartbeat was answered within {timeout_s:.1f} s") from None
        assert response is not None
        return words.token_outcomes(response.results, tokens)

    def close(self) -> None:
        if self._thread is not None:
            if self._asking is not None:
                self._thread.call(self._asking.close())
            self._thread.stop()
