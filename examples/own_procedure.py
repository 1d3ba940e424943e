"""The call machinery without leases: a typed function of your own, served over HTTP and the stream
transport, with middleware in front of it, and called over both.

    python own_procedure.py
"""

import asyncio

import msgspec

from omnirelay.model.errors import InvalidArgument
from omnirelay.model.ports import RandomIds, SystemClock, chance
from omnirelay.rpc.builtin import Deadline, LastResort, SizeLimit
from omnirelay.rpc.client import Client
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.meta import Reply, Request, RequestMeta
from omnirelay.rpc.procedure import Handler, Procedure, Registry
from omnirelay.rpc.retrying import Retry
from omnirelay.transports.http_inbound import HttpInbound
from omnirelay.transports.http_outbound import HttpOutbound
from omnirelay.transports.stream_inbound import StreamInbound
from omnirelay.transports.stream_outbound import StreamOutbound


class Ask(msgspec.Struct):
    words: list[str]


class Answer(msgspec.Struct):
    longest: str


async def longest(meta: RequestMeta, ask: Ask) -> Answer:
    if not ask.words:  # the caller gets this error again: 400, INVALID_ARGUMENT, over every wire
        raise InvalidArgument("there is no longest of no words")
    return Answer(max(ask.words, key=len))


async def told(request: Request, procedure: Procedure, next_: Handler) -> Reply:
    """Middleware is a function around the next one; the same stack guards every transport."""
    print(f"{procedure.name} over {request.meta.transport}")
    return await next_(request)


async def main() -> None:
    clock, registry = SystemClock(), Registry()
    registry.unary("words::longest", longest, Ask, Answer, idempotent=True)
    guards = (LastResort(RandomIds().lease_id), told, Deadline(clock), SizeLimit())
    dispatcher = Dispatcher(registry, guards)
    http = HttpInbound(dispatcher, registry, clock=clock)  # port 0: a free one
    stream = StreamInbound(dispatcher, registry, clock=clock)
    for inbound in (http, stream):
        await inbound.start()
    for outbound in (HttpOutbound(http.url, clock=clock), StreamOutbound(stream.url, clock=clock)):
        client = Client(outbound, "words", [Retry(chance=chance)])
        client.declare("longest", idempotent=True)  # so it may be asked again
        print(await client.unary("longest", Ask(["fence", "lease", "journal"]), Answer))
        try:
            await client.unary("longest", Ask([]), Answer)
        except InvalidArgument as refusal:
            print(f"refused: {refusal.message}")
        await outbound.stop()
    for inbound in (http, stream):
        await inbound.stop(grace_s=1)


if __name__ == "__main__":
    asyncio.run(main())
