"""Typed calls over an outbound, through the same kind of middleware that guards an inbound."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response, Stream
from omnirelay.rpc.middleware import Middleware, chain
from omnirelay.rpc.procedure import Handler, Kind, Procedure
from omnirelay.rpc.transport import Outbound

T = TypeVar("T")


class Client:
    """Calls the procedures of one namespace. What a procedure is (its kind, whether it may be
    repeated) is declared once, by `declare`, as its server declares it."""

    def __init__(
        self, outbound: Outbound, namespace: str, middleware: Sequence[Middleware] = ()
    ) -> None:
        self.outbound = outbound
        self._namespace = namespace
        self._middleware = tuple(middleware)
        self._chains: dict[str, tuple[RequestMeta, Handler]] = {}

    def declare(self, verb: str, *, kind: Kind = Kind.UNARY, idempotent: bool = False) -> None:
        name = f"{self._namespace}::{verb}"
        procedure = Procedure(name=name, handler=self.outbound, kind=kind, idempotent=idempotent)
        meta = RequestMeta(
            procedure=name, transport=self.outbound.name, encoding=self.outbound.codec.name
        )
        self._chains[verb] = (meta, chain(self._middleware, procedure))

    async def unary(self, verb: str, message: Any, response: type[T]) -> T | None:
        """None is the empty reply. Any: whatever struct the procedure declared."""
        reply = await self._call(verb, message)
        assert isinstance(reply, Response)
        return None if reply.empty else self.outbound.codec.decode(reply.body, response)

    async def oneway(self, verb: str, message: Any) -> None:
        await self._call(verb, message)

    async def server_stream(self, verb: str, message: Any, response: type[T]) -> AsyncGenerator[T]:
        reply = await self._call(verb, message)
        assert isinstance(reply, Stream)
        return self._decoded(reply, response)

    async def client_stream(
        self, verb: str, messages: AsyncIterator[Any], response: type[T]
    ) -> T | None:
        reply = await self._call(verb, None, self._encoded(messages))
        assert isinstance(reply, Response)
        return None if reply.empty else self.outbound.codec.decode(reply.body, response)

    async def duplex(
        self, verb: str, messages: AsyncIterator[Any], response: type[T]
    ) -> AsyncGenerator[T]:
        reply = await self._call(verb, None, self._encoded(messages))
        assert isinstance(reply, Stream)
        return self._decoded(reply, response)

    async def _call(
        self, verb: str, message: Any, inbound: AsyncIterator[bytes] | None = None
    ) -> Reply:
        if verb not in self._chains:
            self.declare(verb)
        meta, handler = self._chains[verb]
        codec = self.outbound.codec
        body = b"" if message is None else codec.encode(message)
        return await handler(Request(meta, body, codec, inbound))

    async def _encoded(self, messages: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        async for message in messages:
            yield self.outbound.codec.encode(message)

    async def _decoded(self, reply: Stream, response: type[T]) -> AsyncGenerator[T]:
        async with aclosing(reply.messages) as messages:
            async for message in messages:
                yield self.outbound.codec.decode(message, response)
