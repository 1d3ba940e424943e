"""Retry, on the caller's side, of calls that may be repeated."""

import asyncio
from collections.abc import Awaitable, Callable

from omnirelay.model.errors import InvalidOption, OmniRelayError, ResourceExhausted, Unavailable
from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.procedure import Handler, Kind, Procedure

_WORTH_IT = (Unavailable, ResourceExhausted)


class Retry:
    """Full jitter between tries, so that many callers do not come back at once. Ends with the last
    error. What comes after the reply of a stream has begun is not repeated."""

    def __init__(
        self,
        *,
        tries: int = 4,
        first_s: float = 0.05,
        most_s: float = 2.0,
        chance: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if tries < 1:
            raise InvalidOption(f"a call is tried at least once, not {tries} times")
        self._tries = tries
        self._first_s = first_s
        self._most_s = most_s
        self._chance = chance
        self._sleep = sleep

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        repeats = procedure.idempotent and procedure.kind in (Kind.UNARY, Kind.SERVER_STREAM)
        for tried in range(1, self._tries + 1):
            try:
                return await next_(request)
            except _WORTH_IT:
                if not repeats or tried == self._tries:
                    raise
            pause_s = min(self._most_s, self._first_s * 2 ** (tried - 1))
            await self._sleep(pause_s * self._chance())
        raise OmniRelayError("unreachable: the last try returns or raises")
