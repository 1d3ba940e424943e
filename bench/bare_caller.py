"""A caller of the bare node: futures by call, frames as they are. No retries, no request ids, no
heartbeats; calls of one turn travel together, as those of the SDK do."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from omnirelay.lease.answers import LeaseResponse
from omnirelay.mesh import wire
from omnirelay.model.items import Token
from omnirelay.rpc.codec import MSGPACK
from omnirelay.transports.stream_frames import (
    FROM_NODE,
    VERSION,
    CallFrame,
    Hello,
    ReplyFrame,
    Splitter,
    pack,
)


class BareCaller(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter(FROM_NODE)
        self._transport: asyncio.Transport
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._ids = 0
        self._together: dict[str, list[tuple[Any, asyncio.Future[Any]]]] = {}
        """By verb, what was asked in this turn of the loop. Any: each verb has its own."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(pack(Hello(VERSION)))

    def connection_lost(self, exc: Exception | None) -> None:
        for call in self._calls.values():
            if not call.done():
                call.set_exception(exc or ConnectionResetError("the bare node left"))

    def data_received(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            if isinstance(frame, ReplyFrame):
                assert frame.body is not None
                self._calls.pop(frame.id).set_result(frame.body)

    def close(self) -> None:
        self._transport.close()

    def ask(self, verb: str, request: object) -> "asyncio.Future[bytes]":
        self._ids += 1
        future = self._calls[self._ids] = self._loop.create_future()
        self._transport.write(pack(CallFrame(self._ids, verb, MSGPACK.encode(request))))
        return future

    # -- many at a time -------------------------------------------------------------------------

    async def enqueue_many(self, items: Sequence[wire.EnqueueRequest]) -> None:
        answer = await self.ask("enqueueBatch", wire.EnqueueBatchRequest(tuple(items)))
        MSGPACK.decode(answer, wire.EnqueueBatchResponse)

    async def lease_many(self, most: int) -> tuple[LeaseResponse, ...]:
        answer = await self.ask("leaseBatch", wire.LeaseBatchRequest(most))
        return MSGPACK.decode(answer, wire.LeaseBatchResponse).leases

    async def complete_many(self, tokens: Sequence[Token]) -> None:
        answer = await self.ask("completeBatch", wire.TokenBatchRequest(tuple(tokens)))
        MSGPACK.decode(answer, wire.TokenBatchResponse)

    async def complete_and_lease(self, tokens: Sequence[Token]) -> tuple[LeaseResponse, ...]:
        request = wire.CompleteAndLeaseRequest(tuple(tokens))
        answer = await self.ask("completeAndLease", request)
        return MSGPACK.decode(answer, wire.CompleteAndLeaseResponse).leases

    # -- one at a time, those of one turn together ----------------------------------------------

    def one(self, verb: str, item: Any) -> "asyncio.Future[Any]":
        asked = self._together.get(verb)
        if asked is None:
            asked = self._together[verb] = []
            self._loop.call_soon(self._leave, verb)
        future = self._loop.create_future()
        asked.append((item, future))
        return future

    def _leave(self, verb: str) -> None:
        asked = self._together.pop(verb)
        items = tuple(item for item, _ in asked)
        request: object
        if verb == "enqueueBatch":
            request = wire.EnqueueBatchRequest(items)
        elif verb == "leaseBatch":
            request = wire.LeaseBatchRequest(len(items))
        else:
            request = wire.TokenBatchRequest(items)
        self.ask(verb, request).add_done_callback(lambda done: self._hand_out(verb, asked, done))

    def _hand_out(
        self,
        verb: str,
        asked: list[tuple[Any, "asyncio.Future[Any]"]],
        done: "asyncio.Future[bytes]",
    ) -> None:
        found: Sequence[Any]
        if verb == "enqueueBatch":
            found = MSGPACK.decode(done.result(), wire.EnqueueBatchResponse).results
        elif verb == "leaseBatch":
            found = MSGPACK.decode(done.result(), wire.LeaseBatchResponse).leases
            for item, future in asked[len(found) :]:  # who got none asks again
                self._together.setdefault(verb, []).append((item, future))
            if len(found) < len(asked):
                self._loop.call_soon(self._leave, verb)
        else:
            found = MSGPACK.decode(done.result(), wire.TokenBatchResponse).results
        for (_, future), one in zip(asked, found, strict=False):
            future.set_result(one)
