"""Calls between the clients and nodes of a simulated mesh, and what may happen to them.

A caller hears what an outbound must tell it: the other side's own answer or refusal, `Unavailable`
if the call was surely not taken, `OutcomeUnknown` if it may have been.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Protocol

import msgspec

from omnirelay.model.errors import DeadlineExceeded, OmniRelayError, OutcomeUnknown, Unavailable
from omnirelay.model.items import ANONYMOUS
from omnirelay.model.ports import Clock
from omnirelay.rpc.codec import MSGPACK, Codec
from omnirelay.rpc.headers import FORWARDED, FORWARDED_PRINCIPAL, TRACE
from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.procedure import Handler
from omnirelay.testing.mesh_plan import MeshPlan
from omnirelay.testing.pausing import NOBODY, PausingLoop

_SILENCE_S = 0.2
"""After which a connection that says nothing counts as lost."""
_AGAIN_S = 0.02
_TRIP_S = (0.0002, 0.002)
_SLOW_S = 0.15
_ANSWER_S = 8.0
"""Far longer than any node may let a caller wait that it can talk to."""


class Callee(Protocol):
    """One life of a node, as its callers meet it."""

    name: str
    context: Context
    is_alive: bool
    calls: dict["Calling", None]

    @property
    def clock(self) -> Clock: ...

    @property
    def handler(self) -> Handler: ...


class Wire:
    def __init__(self, plan: MeshPlan, loop: PausingLoop, chance: Random) -> None:
        self.plan = plan
        self.loop = loop
        self.chance = chance
        self.cuts: set[tuple[str, str]] = set()
        """From whom to whom nothing gets through."""
        self.counts: Counter[str] = Counter()
        self.complaints: list[str] = []
        self.passed_on: Counter[tuple[str, str]] = Counter()
        """Calls, by their trace, that a node has from another node."""
        self.forwarded = 0
        self.is_calm = False

    def trip_s(self) -> float:
        if self.suffers("slow_message", 0.1):
            return self.chance.uniform(0, _SLOW_S)
        return self.chance.uniform(*_TRIP_S)

    def suffers(self, fault: str, share: float) -> bool:
        if self.is_calm or fault not in self.plan.faults or self.chance.random() >= share:
            return False
        self.counts[fault] += 1
        return True

    def is_silent(self, caller: str, callee: Callee) -> bool:
        ways = ((caller, callee.name), (callee.name, caller))
        return self.loop.is_paused(callee) or any(way in self.cuts for way in ways)


class Calling:
    """One call on its way. Slots of time: sent, taken, answered; any may fail to come."""

    def __init__(self, wire: Wire, caller: str, callee: Callee, request: Request) -> None:
        self.wire = wire
        self.caller = caller
        self.callee = callee
        self.request = request
        self.answer: asyncio.Future[Reply] = wire.loop.create_future()
        self.task: asyncio.Task[None] | None = None
        self.until_s = wire.loop.time() + _ANSWER_S
        headers = request.meta.headers
        self.trace = headers.get(TRACE[0], "") if FORWARDED in headers else ""

    def send(self) -> None:
        wire, loop = self.wire, self.wire.loop
        if self.trace:
            wire.forwarded += 1
            if wire.passed_on[self.caller, self.trace] > 0:
                wire.complaints.append(f"F1: {self.caller} passed on what had been passed on to it")
        self.timer = loop.call_later(_SILENCE_S, self._look, context=NOBODY)
        if wire.suffers("lost_message", 0.05):
            self._break()
            return
        loop.call_later(wire.trip_s(), self._arrive, context=NOBODY)
        if wire.suffers("double_message", 0.1):
            loop.call_later(wire.trip_s() + wire.chance.uniform(0, 0.3), self._repeat)

    def _arrive(self) -> None:
        if (self.caller, self.callee.name) in self.wire.cuts:
            self._later(self._arrive)
            return
        if not self.callee.is_alive:
            self.refuse(Unavailable("connection refused"))
            return
        self.callee.calls[self] = None
        if self.trace:
            self.wire.passed_on[self.callee.name, self.trace] += 1
        self.task = self._serve(self._answered)

    def _repeat(self) -> None:
        if self.callee.is_alive:
            self._serve(lambda reply, error: None)

    def _serve(
        self, done: Callable[[Reply | None, OmniRelayError | None], None]
    ) -> "asyncio.Task[None]":
        async def serve() -> None:
            try:
                done(await self.callee.handler(self.request), None)
            except OmniRelayError as error:
                done(None, error)

        return self.wire.loop.create_task(serve(), context=self.callee.context)

    def _answered(self, reply: Reply | None, error: OmniRelayError | None) -> None:
        wire, callee = self.wire, self.callee
        callee.calls.pop(self, None)
        if self.trace:
            wire.passed_on[callee.name, self.trace] -= 1
        if not callee.is_alive:
            return
        if wire.suffers("lost_message", 0.05):
            self._break()
        else:
            wire.loop.call_later(wire.trip_s(), self._hear, reply, error, context=NOBODY)

    def _hear(self, reply: Reply | None, error: OmniRelayError | None) -> None:
        if (self.callee.name, self.caller) in self.wire.cuts:
            self._later(self._hear, reply, error)
        elif error is not None:
            self.refuse(error)
        elif not self.answer.done():
            assert reply is not None
            self.answer.set_result(reply)

    def _later(self, step: Callable[..., None], *what: object) -> None:
        """What is cut is sent again, until its sender has given up."""
        if not self.answer.done():
            self.wire.loop.call_later(_AGAIN_S, step, *what, context=NOBODY)

    def _look(self) -> None:
        """Whoever is there says so now and then, even if it has no answer yet."""
        loop = self.wire.loop
        if self.wire.is_silent(self.caller, self.callee):
            self.refuse(OutcomeUnknown("the connection was lost for silence"))
        elif loop.time() > self.until_s:
            self.wire.complaints.append(
                f"A1: {self.callee.name} never answered {self.request.meta.procedure}"
            )
            self.refuse(OutcomeUnknown("given up"))
        else:
            self.timer = loop.call_later(_SILENCE_S, self._look, context=NOBODY)

    def _break(self) -> None:
        """The connection is reset somewhere on the way."""
        error = OutcomeUnknown("the connection was reset")
        self.wire.loop.call_later(self.wire.trip_s(), self.refuse, error, context=NOBODY)

    def refuse(self, error: OmniRelayError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class SimOutbound:
    """An outbound to whoever lives at an address; `find` knows who that is."""

    name = "stream"
    codec: Codec = MSGPACK

    def __init__(
        self, wire: Wire, caller: str, find: Callable[[], Callee | None], clock: Clock
    ) -> None:
        self._wire = wire
        self._caller = caller
        self._find = find
        self._clock = clock

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    async def __call__(self, request: Request) -> Reply:
        callee = self._find()
        if callee is None:
            await asyncio.sleep(0.001)
            raise Unavailable("connection refused")
        call = Calling(self._wire, self._caller, callee, self._arriving(request, callee))
        expires_ms, timer = request.meta.expires_ms, None
        if expires_ms is not None:
            left_s = max(0, expires_ms - self._clock.monotonic_ms()) / 1000
            late = DeadlineExceeded("the caller waits no longer")
            timer = self._wire.loop.call_later(left_s, call.refuse, late)
        call.send()
        try:
            return await call.answer
        finally:
            call.timer.cancel()
            if timer is not None:
                timer.cancel()
            if call.task is not None and not call.task.done():
                self._wire.loop.call_later(self._wire.trip_s(), call.task.cancel, context=NOBODY)

    def _arriving(self, request: Request, callee: Callee) -> Request:
        """What a node's own doors make of a call: who is there is proved, and deadlines are on the
        clock of whoever reads them."""
        meta = request.meta
        headers, expires_ms = meta.headers, meta.expires_ms
        if expires_ms is not None:
            expires_ms += callee.clock.monotonic_ms() - self._clock.monotonic_ms()
        principal = (
            headers.get(FORWARDED_PRINCIPAL, ANONYMOUS) if FORWARDED in headers else meta.principal
        )
        arriving = msgspec.structs.replace(meta, principal=principal, expires_ms=expires_ms)
        return msgspec.structs.replace(request, meta=arriving)
