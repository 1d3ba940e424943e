"""One typed call over an outbound, repeated while it is safe and may help."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple, TypeVar

from omnirelay.model.errors import (
    Closed,
    InvalidArgument,
    OmniRelayError,
    OutcomeUnknown,
    Unavailable,
)
from omnirelay.model.ports import Clock
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response, Stream
from omnirelay.rpc.transport import Outbound

T = TypeVar("T")

PAUSE_FIRST_S = 0.05
PAUSE_LONGEST_S = 1.0
LIVED_MS = 10_000
"""A try that lasted longer than this had reached a node: what ended it is a new trouble."""


class Patience:
    """How often and how long one call is tried again. Pauses grow, and differ from caller to
    caller, so that many do not come back at once."""

    def __init__(self, asking: "Asking", retry_ms: int | None = None) -> None:
        self._asking = asking
        self._retry_ms = asking.retry_ms if retry_ms is None else retry_ms
        self._until: int | None = None
        self._pause_s = PAUSE_FIRST_S
        self.was_unknown = False
        """Some try may have happened although nobody heard of it."""

    def renew(self) -> None:
        """It went well for a while: the next trouble is a new one."""
        self._until = None
        self._pause_s = PAUSE_FIRST_S

    async def wait(self, failure: Unavailable) -> None:
        """Returns when it is time for the next try. Raises `failure` when there is none, Closed
        when the caller's own relay is closed."""
        self.was_unknown = self.was_unknown or isinstance(failure, OutcomeUnknown)
        asking = self._asking
        now = asking.clock.monotonic_ms()
        if self._until is None:
            self._until = now + self._retry_ms
        if not asking.is_closed and now >= self._until:
            # A node that closes is not our own relay: another may serve, or the same again.
            raise Unavailable(failure.message) if isinstance(failure, Closed) else failure
        await asking.rest(self._pause_s * (0.5 + asking.chance() / 2))
        self._pause_s = min(self._pause_s * 2, PAUSE_LONGEST_S)


class Asking:
    """Most requests here may be repeated: they carry a request id or a token, or only read. So an
    unknown outcome is settled by asking again, for at most `retry_s`. Belongs to one loop."""

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
        self.clock = clock
        self.chance = chance
        self.retry_ms = round(retry_s * 1000)
        self._namespace = namespace
        self._metas: dict[str, RequestMeta] = {}
        self._is_started = False
        self.is_closed = False
        self._resting: set[asyncio.Future[None]] = set()

    @property
    def is_prompt(self) -> bool:
        """A call that asks needs no task of its own."""
        return getattr(self.outbound, "is_prompt", False)

    async def close(self) -> None:
        """Whoever still waits for an answer hears that the relay was closed."""
        self.is_closed = True
        for resting in self._resting:
            _resolve(resting)
        await self.outbound.stop()

    async def rest(self, pause_s: float) -> None:
        """Raises Closed, at once, if there is nothing to wait for any more."""
        if not self.is_closed:
            loop = asyncio.get_running_loop()
            resting: asyncio.Future[None] = loop.create_future()
            timer = loop.call_later(pause_s, _resolve, resting)
            self._resting.add(resting)
            try:
                await resting
            finally:
                timer.cancel()
                self._resting.discard(resting)
        if self.is_closed:
            raise Closed("the relay was closed before an answer came")

    async def ask(
        self,
        verb: str,
        request: Any,
        response: type[T],
        *,
        patience: Patience | None = None,
        renewed: Callable[[], Any] | None = None,
        repeats: bool = True,
    ) -> T | None:
        """None is the empty reply. `renewed` makes the request anew for each further try. Unless it
        `repeats`, a call that may have happened is not tried again."""
        call = self._request(verb, request)
        while True:
            began = self.clock.monotonic_ms()
            try:
                if not self._is_started or self.is_closed:
                    await self._make_ready()
                return self._read(await self.outbound(call), response)
            except Unavailable as error:
                failure = error
            if not repeats and isinstance(failure, OutcomeUnknown):
                raise failure
            patience = patience or Patience(self)
            if self.clock.monotonic_ms() - began > LIVED_MS:
                patience.renew()
            await patience.wait(failure)
            if renewed is not None:
                call = self._request(verb, renewed())

    async def open(self, verb: str, request: Any) -> AsyncGenerator[bytes]:
        call = self._request(verb, request)
        await self._make_ready()
        reply = await self.outbound(call)
        assert isinstance(reply, Stream)
        return reply.messages

    async def _make_ready(self) -> None:
        if not self._is_started:
            await self.outbound.start()
            self._is_started = True
        if self.is_closed:
            raise Closed("the relay is closed")

    def _request(self, verb: str, request: Any) -> Request:
        codec = self.outbound.codec
        try:
            return Request(self._meta(verb), codec.encode(request), codec)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"{verb} cannot be sent: {error}") from error

    def _read(self, reply: Reply, kind: type[T]) -> T | None:
        assert isinstance(reply, Response)
        if reply.empty:
            return None
        try:
            return self.outbound.codec.decode(reply.body, kind)
        except InvalidArgument as error:
            # Not the caller's mistake, and not one that asking again would mend.
            raise OmniRelayError(f"the node's answer cannot be read: {error.message}") from error

    def _meta(self, verb: str) -> RequestMeta:
        meta = self._metas.get(verb)
        if meta is None:
            meta = self._metas[verb] = RequestMeta(
                procedure=f"{self._namespace}::{verb}",
                transport=self.outbound.name,
                encoding=self.outbound.codec.name,
            )
        return meta


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Route(NamedTuple):
    """How to reach a node, for each loop that wants a connection of its own."""

    open_outbound: Callable[[], Outbound]
    namespace: str
    clock: Clock
    chance: Callable[[], float]

    def asking(self, retry_s: float) -> Asking:
        """Made on the loop that will use it."""
        return Asking(
            self.open_outbound(),
            self.namespace,
            clock=self.clock,
            chance=self.chance,
            retry_s=retry_s,
        )
