"""Producers, workers and readers of a simulated mesh. Each asks whichever node it likes, asks
another when one does not answer, and notes what it was told."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from omnirelay.lease.answers import LeaseResponse
from omnirelay.mesh import wire
from omnirelay.model.errors import OmniRelayError, OutcomeUnknown, Unavailable
from omnirelay.model.items import Payload, Token, Wire
from omnirelay.rpc.codec import MSGPACK
from omnirelay.rpc.headers import TRACE
from omnirelay.rpc.meta import Request, RequestMeta, Response
from omnirelay.testing.checker import Kind, Op
from omnirelay.testing.mesh_nodes import SHARD, Fleet, NodeClock

W = TypeVar("W", bound=Wire)
_TRIES = 40


class Reading(msgspec.Struct, frozen=True):
    """What somebody was told of the queue's depth, and when it asked."""

    called: float
    sequence: int
    pending: int
    active: int


class Diary:
    """What all clients noted."""

    def __init__(self) -> None:
        self.history: list[Op] = []
        self.readings: list[Reading] = []
        self.refusals: list[str] = []
        """Calls that ended without an answer, as their callers heard it."""


class Client(ABC):
    def __init__(self, name: str, fleet: Fleet, diary: Diary) -> None:
        self.name = name
        self.fleet = fleet
        self.plan = fleet.plan
        self.chance = fleet.chance
        self.diary = diary
        self.is_calm = False
        self._loop = fleet.loop
        self._clock = NodeClock(fleet.loop, rate=1.0, offset_ms=0)
        self._node = self.chance.choice(fleet.names)
        self._calls = 0

    def has(self, habit: str) -> bool:
        return habit in self.plan.habits and not self.is_calm

    @abstractmethod
    async def run(self) -> None:
        """Until it has done what it does, or is cancelled."""

    async def call(self, verb: str, message: Wire, kind: type[W]) -> W | None:
        """One try. None is the empty answer. Raises what the caller hears."""
        self._calls += 1
        if self.chance.random() < 0.3:
            self._node = self.chance.choice(self.fleet.names)
        outbound = self.fleet.outbound(self.name, self.fleet.urls[self._node], self._clock)
        meta = RequestMeta(
            procedure=f"{SHARD}::{verb}",
            transport="stream",
            encoding=MSGPACK.name,
            principal=self.name,
            headers={TRACE[0]: f"{self.name}/{self._calls}"},
        )
        try:
            reply = await outbound(Request(meta, MSGPACK.encode(message), MSGPACK))
        except Unavailable as error:
            self.diary.refusals.append(f"{verb}: {type(error).__name__}: {error.message}")
            self._node = self.chance.choice(self.fleet.names)
            raise
        assert isinstance(reply, Response)
        return None if reply.empty else MSGPACK.decode(reply.body, kind)

    async def pause(self, most_s: float) -> None:
        await asyncio.sleep(self.chance.uniform(0.001, most_s))

    def note(self, kind: Kind, called: float, *, ok: bool | None, **known: object) -> None:
        returned = None if ok is None else self._loop.time()
        fields = {"worker": self.name, "called": called, "returned": returned, "ok": ok, **known}
        self.diary.history.append(Op(kind=kind, **fields))  # type: ignore[arg-type]


class Producer(Client):
    async def run(self) -> None:
        for number in range(self.plan.items):
            await self._insist(f"{self.name}/{number}")
            await self.pause(self.plan.storm_s / self.plan.items)

    async def _insist(self, request_id: str) -> None:
        payload = Payload("table", f"t{self.chance.randrange(3)}", request_id=request_id)
        for _ in range(_TRIES):
            called = self._loop.time()
            known = {"request_id": request_id}
            try:
                message = wire.EnqueueRequest(payload)
                taken = await self.call("enqueue", message, wire.EnqueueResponse)
            except OutcomeUnknown:
                self.note("enqueue", called, ok=None, **known)
            except OmniRelayError:
                self.note("enqueue", called, ok=False, **known)
            else:
                assert taken is not None
                item = {"sequence_id": taken.sequence_id, "duplicate": taken.duplicate}
                self.note("enqueue", called, ok=True, **known, **item)
                return
            await self.pause(0.05)


class Worker(Client):
    """Leases, works, and ends its leases: well, badly, late or not at all."""

    _asked = 0

    async def run(self) -> None:
        while True:
            lease = await self._lease()
            if lease is not None:
                await self._work(lease)
            await asyncio.sleep(self.chance.uniform(0.02, 0.12) if lease is None else 0.002)

    async def _lease(self) -> LeaseResponse | None:
        self._asked += 1
        request_id = f"{self.name}/{self._asked}"
        wait_ms = self.chance.choice((0, 0, 40))
        message = wire.LeaseRequest(wait_ms=wait_ms, request_id=request_id)
        for _ in range(_TRIES):
            called = self._loop.time()
            try:
                lease = await self.call("lease", message, LeaseResponse)
            except OutcomeUnknown:
                self.note("lease", called, ok=None, request_id=request_id)
            except OmniRelayError:
                self.note("lease", called, ok=False, request_id=request_id)
            else:
                if lease is not None:
                    lasts_s = lease.lease_duration_ms / 1000
                    known = _named(lease.token)
                    self.note(
                        "lease", called, ok=True, request_id=request_id, expires=lasts_s, **known
                    )
                return lease
            await self.pause(0.03)
        return None

    async def _work(self, lease: LeaseResponse) -> None:
        token = lease.token
        await self.pause(0.015)
        if self.has("heartbeat"):
            await self._beat(token)
        deeds = [deed for deed in ("stall", "abandon", "fail", "release") if self.has(deed)]
        deed = "complete"
        if deeds and self.chance.random() < 0.4:
            deed = self.chance.choice(deeds)
        if deed == "abandon":
            return
        if deed == "stall":
            await asyncio.sleep(lease.lease_duration_ms / 1000 * self.chance.uniform(0.9, 1.6))
            deed = self.chance.choice(("complete", "complete", "fail"))
        await self._end(deed, token)

    async def _beat(self, token: Token) -> None:
        called = self._loop.time()
        try:
            beat = await self.call("heartbeat", wire.TokenRequest(token), wire.HeartbeatResponse)
        except OmniRelayError:
            return
        assert beat is not None
        left_s = beat.remaining_ms / 1000
        self.note("heartbeat", called, ok=True, expires=left_s, **_named(token))

    async def _end(self, deed: str, token: Token) -> None:
        kind: Kind = "complete"
        message: Wire = wire.TokenRequest(token)
        answer: type[Wire] = wire.TokenResponse
        if deed == "fail":
            kind, message, answer = "fail", wire.FailRequest(token), wire.FailResponse
        elif deed == "release":
            kind = "release"
        for _ in range(_TRIES):
            called = self._loop.time()
            try:
                await self.call(kind, message, answer)
            except OutcomeUnknown:
                self.note(kind, called, ok=None, **_named(token))
            except Unavailable:
                self.note(kind, called, ok=False, **_named(token))
            except OmniRelayError:
                self.note(kind, called, ok=False, **_named(token))
                return
            else:
                self.note(kind, called, ok=True, **_named(token))
                return
            await self.pause(0.03)


class Reader(Client):
    async def run(self) -> None:
        while not self.is_calm:
            await self.pause(self.plan.ttl_ms / 1500)
            called = self._loop.time()
            try:
                told = await self.call("stats", wire.StatsRequest(), wire.StatsResponse)
            except OmniRelayError:
                continue
            assert told is not None
            depths = (told.stats.pending_count, told.stats.active_lease_count)
            self.diary.readings.append(Reading(called, told.last_sequence, *depths))


def _named(token: Token) -> dict[str, object]:
    return {
        "sequence_id": token.sequence_id,
        "attempt": token.attempt,
        "lease_id": token.lease_id,
        "fence": token.fence,
    }


def make_crowd(fleet: Fleet, diary: Diary) -> tuple[Sequence[Producer], Sequence[Client]]:
    """Those whose work ends, and those whose work does not."""
    plan = fleet.plan
    producers = [Producer(f"p{number}", fleet, diary) for number in range(plan.producers)]
    others: list[Client] = [Worker(f"w{number}", fleet, diary) for number in range(plan.workers)]
    if "read" in plan.habits:
        others.append(Reader("reader", fleet, diary))
    return producers, others
