"""The procedures that the transport suite calls, and what they saw."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime

import msgspec

from omnirelay.model import errors
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import Wire
from omnirelay.model.ports import Clock
from omnirelay.rpc.builtin import Deadline, LastResort, SizeLimit
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response
from omnirelay.rpc.procedure import Procedure, Registry

NAMESPACE = "echo"
BUG = "the text of a bug"


class Said(Wire, frozen=True):
    text: str = ""
    number: int = 0
    body: bytes = b""
    at: datetime | None = None
    names: dict[str, str] | None = None


REFUSALS: dict[str, OmniRelayError] = {
    error.code: error
    for error in (
        errors.InvalidPayload("resource_id_required", "payload.resource_id must not be blank"),
        errors.InvalidRestore("pending_item_required", "every restored item is a pending item"),
        errors.InvalidArgument("n\u00f6 n\r\nnewline"),
        errors.Unauthenticated("who are you"),
        errors.PermissionDenied("not you"),
        errors.UnknownToken(7),
        errors.StaleToken(7, "it expired", 42),
        errors.SequenceConflict(7),
        errors.TooLarge("too much"),
        errors.QueueFull(5, 5),
        errors.Backpressure(5, 4, 2),
        errors.Overloaded("slow down"),
        errors.RateLimited("slow down"),
        errors.Unimplemented("not here"),
        errors.Unavailable("not now"),
        errors.Recovering("catching up"),
        errors.OutcomeUnknown("who knows"),
        errors.DeadlineExceeded("too late"),
        errors.Corrupt("shard", 9, "a bit flipped"),
        OmniRelayError("it broke"),
    )
}


class Echo:
    """One for each test; nothing here sleeps, everything waits for a signal."""

    def __init__(self, clock: Clock) -> None:
        self.metas: list[RequestMeta] = []
        self.told: list[str] = []
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.closed = asyncio.Event()
        self.registry = Registry()
        add = self.registry
        add.unary(f"{NAMESPACE}::say", self._say, Said, Said)
        add.add(Procedure(name=f"{NAMESPACE}::label", handler=self._label))
        add.unary(f"{NAMESPACE}::nothing", self._nothing, Said, Said)
        add.unary(f"{NAMESPACE}::refuse", self._refuse, Said, Said)
        add.unary(f"{NAMESPACE}::break", self._break, Said, Said)
        add.unary(f"{NAMESPACE}::wait", self._wait, Said, Said)
        add.unary(f"{NAMESPACE}::swell", self._swell, Said, Said)
        add.oneway(f"{NAMESPACE}::tell", self._tell, Said)
        add.server_stream(f"{NAMESPACE}::count", self._count, Said, Said)
        add.server_stream(f"{NAMESPACE}::stumble", self._stumble, Said, Said)
        add.client_stream(f"{NAMESPACE}::sum", self._sum, Said, Said)
        add.duplex(f"{NAMESPACE}::chat", self._chat, Said, Said)
        self.dispatcher = Dispatcher(
            add, [LastResort(lambda: "incident-1"), Deadline(clock), SizeLimit()]
        )

    async def _say(self, meta: RequestMeta, said: Said) -> Said:
        self.metas.append(meta)
        return said

    async def _label(self, request: Request) -> Reply:
        """What was said, with the names that were said as headers."""
        said = request.codec.decode(request.body, Said)
        is_empty = said.text == "nothing"
        return Response(b"" if is_empty else request.body, said.names or {}, is_empty)

    async def _nothing(self, meta: RequestMeta, said: Said) -> Said | None:
        return None

    async def _refuse(self, meta: RequestMeta, said: Said) -> Said:
        raise REFUSALS[said.text]

    async def _break(self, meta: RequestMeta, said: Said) -> Said:
        raise RuntimeError(BUG)

    async def _wait(self, meta: RequestMeta, said: Said) -> Said:
        self.waiting.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return said

    async def _swell(self, meta: RequestMeta, said: Said) -> Said:
        return Said(body=bytes(said.number))

    async def _tell(self, meta: RequestMeta, said: Said) -> None:
        self.told.append(said.text)

    async def _count(self, meta: RequestMeta, said: Said) -> AsyncGenerator[Said]:
        """Numbers up to the one asked for, then for ever nothing if `text` says so."""
        try:
            for number in range(said.number):
                yield Said(number=number)
            if said.text == "stay":
                await self.go_on.wait()
        finally:
            self.closed.set()

    async def _stumble(self, meta: RequestMeta, said: Said) -> AsyncGenerator[Said]:
        for number in range(said.number):
            yield Said(number=number)
        if said.text:
            raise REFUSALS[said.text]
        raise RuntimeError(BUG)

    async def _sum(self, meta: RequestMeta, messages: AsyncIterator[Said]) -> Said:
        total = 0
        async for said in messages:
            total += said.number
        return Said(number=total)

    async def _chat(self, meta: RequestMeta, messages: AsyncIterator[Said]) -> AsyncGenerator[Said]:
        async for said in messages:
            yield msgspec.structs.replace(said, number=said.number + 1)
