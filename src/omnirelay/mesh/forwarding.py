"""Calls for a shard that another node owns go there, whichever node they came to.

The innermost middleware: who calls is proved and allowed by now, and the owner is told. Between two
owners a call waits for the next one, for a while; its caller sees a slow call and no error.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Final, Protocol

import msgspec

from omnirelay.mesh.neighbours import Reach
from omnirelay.mesh.passing import Passing, Passings
from omnirelay.model import limits
from omnirelay.model.errors import NotOwner, OutcomeUnknown, Recovering, Unavailable
from omnirelay.model.items import ANONYMOUS
from omnirelay.model.ports import Clock
from omnirelay.rpc.codec import CODECS, MSGPACK
from omnirelay.rpc.headers import FORWARDED, FORWARDED_PRINCIPAL, FORWARDED_PROOF, TRACE
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response, Stream
from omnirelay.rpc.procedure import Handler, Procedure
from omnirelay.rpc.transport import Outbound

_HERE: Final = frozenset({"events", "hello", "takeOver"})
"""Every node has the journal, and these are about the node that is asked."""
_PASSING: Final = (NotOwner, Recovering, OutcomeUnknown)
"""What a queue that is served here may be refused with and yet have an owner soon, here or
elsewhere. The rest stays: the node drains or stops, and nobody has taken the queue."""
_PAUSE_FIRST_S = 0.02
_PAUSE_LONGEST_S = 0.5


class Owned(Protocol):
    """What must be known of a shard."""

    @property
    def is_served_here(self) -> bool: ...

    @property
    def owner_url(self) -> str:
        """Where its owner takes calls; blank while nobody is known to own it."""


class Forwarding:
    def __init__(
        self,
        shards: Mapping[str, Owned],
        reach: Reach,
        *,
        clock: Clock,
        patience_ms: int,
        hearsay: Callable[[str], str] = lambda namespace: "",
        is_apart: Callable[[], bool] = lambda: False,
    ) -> None:
        """`hearsay` is where others say the owner of a namespace takes calls, for a node that
        cannot read the journal itself; blank if they do not. `is_apart` says that the journal is a
        mirror of another region's: its owner is not to be called."""
        self._shards = shards
        self._reach = reach
        self._hearsay = hearsay
        self._is_apart = is_apart
        self.own_url = ""
        """Where this node takes calls that others pass on."""
        self._clock = clock
        self._patience_ms = patience_ms
        self._outbounds: dict[str, Outbound] = {}
        self.passings = Passings(self._target)

    async def stop(self) -> None:
        await asyncio.gather(*(outbound.stop() for outbound in self._outbounds.values()))

    def _target(self, namespace: str) -> str | None:
        """None: here. Blank: nobody knows."""
        shard = self._shards[namespace]
        if shard.is_served_here or self._is_apart():
            return None
        url = shard.owner_url or self._hearsay(namespace)
        return "" if url == self.own_url else url

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        namespace = procedure.namespace
        is_local = namespace not in self._shards or procedure.verb in _HERE
        if is_local or FORWARDED in request.meta.headers:
            return await next_(request)
        until = self._clock.monotonic_ms() + self._patience_ms
        if request.meta.expires_ms is not None:
            until = min(until, request.meta.expires_ms)
        pause_s = _PAUSE_FIRST_S
        while True:
            target = self._target(namespace)
            try:
                if target is None:
                    return await next_(request)
                return await self._pass_on(target, request, procedure)
            except Unavailable as error:
                may_repeat = procedure.idempotent or not isinstance(error, OutcomeUnknown)
                is_over = self._clock.monotonic_ms() >= until
                # What a stream has brought is gone; and only its caller knows whether a call may be
                # repeated that may have happened.
                if request.inbound is not None or not may_repeat or is_over:
                    raise
                if target is None and not isinstance(error, _PASSING):
                    raise
            await self.passings.wait_for_change(namespace, target, pause_s)
            pause_s = min(2 * pause_s, _PAUSE_LONGEST_S)

    async def _pass_on(self, url: str, request: Request, procedure: Procedure) -> Reply:
        if not url:
            raise NotOwner(f"nobody serves {procedure.namespace} at the moment; try again")
        outbound = await self._outbound(url)
        passing = self.passings.begin(procedure, url)
        try:
            with_headers = msgspec.structs.replace(request.meta, headers=_headers(request.meta))
            call = msgspec.structs.replace(request, meta=with_headers)
            if request.codec.name not in CODECS:
                call = _in_msgpack(call, procedure)
            async with passing.limit():
                reply = await outbound(call)
            if isinstance(reply, Stream):
                messages = _read(passing, reply.messages)
                if call.codec is not request.codec:
                    messages = _as_asked(request, procedure, messages)
                return Stream(messages)
        finally:
            passing.end()
        if call.codec is request.codec or reply.empty:
            return reply
        answer = MSGPACK.decode(reply.body, procedure.response)
        return Response(request.codec.encode(answer), reply.headers)

    async def _outbound(self, url: str) -> Outbound:
        found = self._outbounds.get(url)
        if found is None:
            if len(self._outbounds) >= limits.NODES_REACHED_MAX:
                await self.stop()
                self._outbounds.clear()
            found = self._outbounds[url] = self._reach(url)
            await found.start()
        return found


def _headers(meta: RequestMeta) -> dict[str, str]:
    headers = {name: meta.headers[name] for name in TRACE if name in meta.headers}
    headers[FORWARDED] = "1"
    if meta.principal != ANONYMOUS:
        headers[FORWARDED_PRINCIPAL] = meta.principal
        if meta.proof is not None:
            headers[FORWARDED_PROOF] = meta.proof
    return headers


async def _read(passing: Passing, messages: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    passing.begin_again()
    async with aclosing(messages):
        try:
            while True:
                async with passing.limit():
                    message = await anext(messages, None)
                if message is None:
                    return
                yield message
        finally:
            passing.end()


# -- a wire with an encoding of its own, which the owner's door does not read -------------------


def _in_msgpack(call: Request, procedure: Procedure) -> Request:
    meta = msgspec.structs.replace(call.meta, encoding=MSGPACK.name)
    if call.inbound is not None:
        return Request(meta, b"", MSGPACK, _told(call, procedure, call.inbound))
    message = call.codec.decode(call.body, procedure.request)
    return Request(meta, MSGPACK.encode(message), MSGPACK)


async def _told(
    call: Request, procedure: Procedure, messages: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    async for body in messages:
        yield MSGPACK.encode(call.codec.decode(body, procedure.request))


async def _as_asked(
    request: Request, procedure: Procedure, messages: AsyncGenerator[bytes]
) -> AsyncGenerator[bytes]:
    async with aclosing(messages):
        async for body in messages:
            yield request.codec.encode(MSGPACK.decode(body, procedure.response))
