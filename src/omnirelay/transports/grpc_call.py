"""One call that came in over gRPC, from its metadata to its trailers."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from math import ceil
from typing import Any

import grpc
import grpc.aio
import msgspec

from omnirelay.model.errors import DeadlineExceeded, InvalidArgument, OmniRelayError
from omnirelay.model.ports import Clock
from omnirelay.rpc.codec import Codec
from omnirelay.rpc.headers import (
    ENCODING,
    Headers,
    codec_of,
    meta_of,
    own_headers,
    reply_headers,
)
from omnirelay.rpc.meta import Certificate, Reply, Request, RequestMeta, Response, Stream
from omnirelay.rpc.procedure import Handler
from omnirelay.transports.grpc_errors import code_of, details_of, trailers_of
from omnirelay.transports.grpc_peers import Peers, address_of
from omnirelay.transports.grpc_service import EMPTY_KEY, STREAM_MARK

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]


class Surroundings(msgspec.Struct, frozen=True):
    """What all calls of one listener share."""

    handler: Handler
    clock: Clock
    certificate_of: Callable[[Context], Certificate | None]
    first_message_s: float
    """How long a caller may keep a call open before it says what it wants."""
    peers: Peers


class Call:
    """Reads its messages itself, for unary calls too: gRPC would leave a caller that ends its side
    without a message without an answer."""

    __slots__ = ("_around", "_codec", "_metadata", "_procedure", "_takes_many")

    def __init__(
        self,
        around: Surroundings,
        procedure: str,
        metadata: Iterable[tuple[str, str | bytes]],
        *,
        codec: Codec | None,
        takes_many: bool,
    ) -> None:
        """Without `codec` the caller's metadata names it."""
        self._around = around
        self._procedure = procedure
        self._metadata = metadata
        self._codec = codec
        self._takes_many = takes_many

    async def one(self, _messages: object, context: Context) -> bytes:
        """For kinds with one answer."""
        try:
            with self._around.peers.calling(context.peer()):
                request = await self._request(context)
                response = _single(await self._around.handler(request))
            context.set_trailing_metadata(_trailers(request.meta, response))
        except OmniRelayError as error:
            refusal = error
        except grpc.aio.BaseError:
            raise  # the connection is gone, and the caller with it
        except Exception as bug:
            refusal = _internal(self._procedure, bug)
        else:
            return response.body
        return await _refuse(context, refusal)

    async def many(self, _messages: object, context: Context) -> None:
        try:
            with self._around.peers.calling(context.peer()):
                request = await self._request(context)
                messages = _several(await self._around.handler(request))
                # Now, not with the first message: an accepted stream may be silent for long.
                await context.send_initial_metadata(_opening(request.meta))
                await _send(messages, context)
            # Again: gRPC may tell a caller of the end before the beginning.
            context.set_trailing_metadata((STREAM_MARK,))
        except OmniRelayError as error:
            refusal = error
        except grpc.aio.BaseError:
            raise
        except Exception as bug:
            refusal = _internal(self._procedure, bug)
        else:
            return
        await _refuse(context, refusal)

    async def _request(self, context: Context) -> Request:
        meta = self._meta(context)
        codec = self._codec or codec_of(meta)
        if self._takes_many:
            return Request(meta, codec=codec, inbound=_incoming(context))
        return Request(meta, await self._first(context), codec)

    async def _first(self, context: Context) -> bytes:
        try:
            async with asyncio.timeout(self._around.first_message_s):
                message: Any = await context.read()  # Any: the end is an object apart
        except TimeoutError:
            raise DeadlineExceeded("the call was opened and its message never came") from None
        if message is grpc.aio.EOF:
            raise InvalidArgument("the call ended without a message")
        assert isinstance(message, bytes)
        return message

    def _meta(self, context: Context) -> RequestMeta:
        # Binary metadata is not ours to read; its size was bounded on the way in.
        headers = Headers((name, text) for name, text in self._metadata if isinstance(text, str))
        if self._codec is not None:
            headers.values[ENCODING] = self._codec.name
        clock = self._around.clock
        meta = meta_of(
            self._procedure,
            headers,
            transport="grpc",
            clock=clock,
            address=address_of(context.peer()),
            certificate=self._around.certificate_of(context),
        )
        left_s: float | None = context.time_remaining()
        if left_s is None:
            return meta
        ends = clock.monotonic_ms() + ceil(left_s * 1000)
        if meta.expires_ms is not None and meta.expires_ms <= ends:
            return meta
        return msgspec.structs.replace(meta, expires_ms=ends)


async def _incoming(context: Context) -> AsyncIterator[bytes]:
    while True:
        message: Any = await context.read()
        if message is grpc.aio.EOF:
            return
        yield message


def _single(reply: Reply) -> Response:
    if isinstance(reply, Stream):
        raise TypeError("a procedure with one answer gave a stream")
    return reply


def _several(reply: Reply) -> AsyncGenerator[bytes]:
    if isinstance(reply, Response):
        raise TypeError("a procedure with many answers gave one")
    return reply.messages


async def _send(messages: AsyncGenerator[bytes], context: Context) -> None:
    async with aclosing(messages):
        async for message in messages:
            await context.write(message)


def _opening(meta: RequestMeta) -> tuple[tuple[str, str], ...]:
    """Tells a caller who cannot know the kind of a procedure that a stream begins."""
    return (*((name.lower(), value) for name, value in reply_headers(meta).items()), STREAM_MARK)


def _trailers(meta: RequestMeta, response: Response) -> tuple[tuple[str, str], ...]:
    pairs = {**reply_headers(meta), **own_headers(response.headers)}
    if response.empty:
        pairs[EMPTY_KEY] = "true"
    return tuple((name.lower(), value) for name, value in pairs.items())


async def _refuse(context: Context, error: OmniRelayError) -> bytes:
    return await context.abort(code_of(error), details_of(error), trailers_of(error))


def _internal(procedure: str, bug: Exception) -> OmniRelayError:
    log.error("the chain of %s let a bug through", procedure, exc_info=bug)
    return OmniRelayError("internal error")
