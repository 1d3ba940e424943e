"""A small node for the HTTP tests: echo procedures of every kind, and some that wait or fail."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec

from omnirelay.model.errors import StaleToken
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.builtin import Deadline, LastResort, SizeLimit
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.meta import RequestMeta
from omnirelay.rpc.procedure import Registry
from omnirelay.transports.http_inbound import HttpInbound


class Say(msgspec.Struct, rename="camel", omit_defaults=True):
    text: str = ""
    count: int = 0
    inner: dict[str, Any] | None = None
    """Any: whatever a test nests."""


class Numbered(msgspec.Struct, rename="camel"):
    sequence_number: int
    text: str = ""


class From(msgspec.Struct, rename={"from_": "from"}):
    from_: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    upto: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    tags: list[str] = []


class Echo:
    """What the tests watch from inside."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.metas: list[RequestMeta] = []
        self.heard: list[str] = []
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.closed = asyncio.Event()
        self.registry = Registry()
        add = self.registry
        add.unary("echo::say", self.say, Say, Say, summary="Says <it> again.")
        add.unary("echo::nothing", self.nothing, Say, Say)
        add.unary("echo::stale", self.stale, Say, Say)
        add.unary("echo::bug", self.bug, Say, Say)
        add.unary("echo::cancels", self.cancels, Say, Say)
        add.unary("echo::wait", self.wait, Say, Say)
        add.oneway("echo::tell", self.tell, Say)
        add.server_stream("echo::count", self.count, From, Numbered)
        add.server_stream("echo::follow", self.follow, From, Numbered)
        add.server_stream("echo::flood", self.flood, From, Say)
        add.server_stream("echo::breaks", self.breaks, From, Numbered)
        add.client_stream("echo::sum", self.sum, Say, Say)
        add.duplex("echo::talk", self.talk, Say, Say)

    async def say(self, meta: RequestMeta, asked: Say) -> Say:
        self.metas.append(meta)
        return asked

    async def nothing(self, meta: RequestMeta, asked: Say) -> Say | None:
        return None

    async def stale(self, meta: RequestMeta, asked: Say) -> Say:
        raise StaleToken(7, "it\nexpired, ünlucky", current_fence=12)

    async def bug(self, meta: RequestMeta, asked: Say) -> Say:
        raise RuntimeError("the secret of the house")

    async def cancels(self, meta: RequestMeta, asked: Say) -> Say:
        other = asyncio.ensure_future(asyncio.sleep(8))
        other.cancel()
        await other
        return asked

    async def wait(self, meta: RequestMeta, asked: Say) -> Say:
        self.waiting.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return asked

    async def tell(self, meta: RequestMeta, asked: Say) -> None:
        self.heard.append(asked.text)

    async def count(self, meta: RequestMeta, asked: From) -> AsyncGenerator[Numbered]:
        for number in range(asked.from_, asked.upto + 1):
            yield Numbered(number, ",".join(asked.tags))

    async def follow(self, meta: RequestMeta, asked: From) -> AsyncGenerator[Numbered]:
        try:
            yield Numbered(1)
            self.waiting.set()
            await self.go_on.wait()
            yield Numbered(2)
        finally:
            self.closed.set()

    async def flood(self, meta: RequestMeta, asked: From) -> AsyncGenerator[Say]:
        try:
            while True:
                self.heard.append("")
                yield Say("x" * 1000)
        finally:
            self.closed.set()

    async def breaks(self, meta: RequestMeta, asked: From) -> AsyncGenerator[Numbered]:
        for number in range(asked.upto):
            yield Numbered(number)
        await self.stale(meta, Say())

    async def sum(self, meta: RequestMeta, asked: AsyncIterator[Say]) -> Say:
        texts = []
        async for one in asked:
            self.heard.append(one.text)
            texts.append(one.text)
            self.waiting.set()
        return Say("+".join(texts), len(texts))

    async def talk(self, meta: RequestMeta, asked: AsyncIterator[Say]) -> AsyncGenerator[Say]:
        async for one in asked:
            yield one


class Served:
    def __init__(self, echo: Echo, inbound: HttpInbound) -> None:
        self.echo = echo
        self.inbound = inbound

    @property
    def url(self) -> str:
        return self.inbound.url


@asynccontextmanager
async def served(**options: Any) -> AsyncGenerator[Served]:  # Any: parameters of HttpInbound
    echo = Echo()
    middleware = (LastResort(lambda: "incident-1"), Deadline(echo.clock), SizeLimit())
    dispatcher = Dispatcher(echo.registry, middleware)
    inbound = HttpInbound(dispatcher, echo.registry, clock=echo.clock, **options)
    await inbound.start()
    try:
        yield Served(echo, inbound)
    finally:
        await inbound.stop(0)


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(8):
        await event.wait()
