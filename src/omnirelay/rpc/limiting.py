"""Rate limiting. It refuses and never makes a call wait: who waits holds what others need."""

from collections.abc import Callable

from omnirelay.model.errors import InvalidOption, RateLimited
from omnirelay.model.ports import Clock
from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.procedure import Handler, Procedure


class Limiter:
    """A bucket of tokens that fills at `rate_per_s` up to `burst`."""

    def __init__(self, clock: Clock, *, rate_per_s: float, burst: int) -> None:
        if rate_per_s <= 0 or burst < 1:
            raise InvalidOption(
                f"a limiter needs a rate above 0 and a burst of 1, not {rate_per_s}, {burst}"
            )
        self._clock = clock
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = float(burst)
        self._at_ms = clock.monotonic_ms()

    def take(self) -> bool:
        now = self._clock.monotonic_ms()
        filled = (now - self._at_ms) * self._rate_per_s / 1000
        self._tokens = min(self._burst, self._tokens + filled)
        self._at_ms = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


Selector = Callable[[Request, Procedure], Limiter | None]
"""Which limiter a call must pass; None for no limit. A selector may share one between calls, or
keep one for each principal."""


class RateLimit:
    is_passing = True

    def __init__(self, select: Selector) -> None:
        self._select = select

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        if not procedure.urgent:
            limiter = self._select(request, procedure)
            if limiter is not None and not limiter.take():
                raise RateLimited(f"too many calls of {procedure.name}: slow down")
        return await next_(request)
