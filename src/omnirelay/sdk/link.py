"""Between the API and a queue: commands out, outcomes back. One protocol, several wires.

`EmbeddedLink` suits a caller's event loop. `BlockingLink` has the same methods but never suspends:
it blocks the calling thread instead, so the same API code serves threads (see `sdk/sync.py`).
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

import msgspec

from omnirelay.journal.checkpoint import Apply
from omnirelay.journal.events import Event
from omnirelay.journal.follower import FollowerStatus
from omnirelay.lease.answers import LeaseResponse
from omnirelay.lease.commands import Command, Complete, Heartbeat
from omnirelay.mesh.calls import Call, LeaseCall, Leases, Outcome
from omnirelay.mesh.desk import Desk, give_back, leases_of, or_none
from omnirelay.model.errors import Unavailable
from omnirelay.model.items import ANONYMOUS, Token
from omnirelay.sdk.engine import Engine


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a lease call asks for."""

    max_items: int = 1
    wait_ms: int = 0
    resource_types: tuple[str, ...] | None = None
    lease_duration_ms: int | None = None
    request_id: str | None = None
    peer_id: str | None = None


Swapped = tuple[Sequence[Outcome], tuple[LeaseResponse, ...]]
"""One outcome a completion, in order, and what was leased after them."""


class Link(Protocol):
    async def call(
        self, commands: Sequence[Command], *, wait_ms: int | None = None
    ) -> Sequence[Outcome]:
        """One outcome a command, in order."""

    async def lease(self, wish: Wish) -> tuple[LeaseResponse, ...]:
        """Empty if nothing came within the wait. A caller that is cancelled keeps no lease."""

    async def complete_and_lease(self, completes: Sequence[Complete], wish: Wish) -> Swapped:
        """In one commit where that is possible. Does not wait for work, whatever the wish says."""

    def beat(self, tokens: Sequence[Token], timeout_s: float) -> Sequence[Outcome]:
        """Heartbeat, blocking; called from the heart's own thread."""

    def events(self, after: int, *, follow: bool) -> AsyncIterator[Event]: ...

    def follow(self, name: str, apply: Apply) -> None: ...

    def unfollow(self, name: str, *, forget: bool) -> None: ...

    def follower_status(self) -> list[FollowerStatus]: ...

    async def aside(self, work: Callable[[], None]) -> None:
        """Run what may block, where this link's caller may be blocked."""

    async def close(self) -> None: ...


class _Embedded:
    """What both embedded links share."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def beat(self, tokens: Sequence[Token], timeout_s: float) -> Sequence[Outcome]:
        slot = _Slot()
        self._engine.offer(Call([Heartbeat(tokens=(token,)) for token in tokens], slot.fill))
        return slot.wait(timeout_s)

    def follow(self, name: str, apply: Apply) -> None:
        self._engine.follow(name, apply)

    def unfollow(self, name: str, *, forget: bool) -> None:
        self._engine.unfollow(name, forget=forget)

    def follower_status(self) -> list[FollowerStatus]:
        return self._engine.follower_status()


class EmbeddedLink(_Embedded):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._desks: WeakKeyDictionary[asyncio.AbstractEventLoop, Desk] = WeakKeyDictionary()

    async def call(
        self, commands: Sequence[Command], *, wait_ms: int | None = None
    ) -> Sequence[Outcome]:
        return await self._desk().call(Call(commands, wait_ms=wait_ms))

    async def lease(self, wish: Wish) -> tuple[LeaseResponse, ...]:
        return await self._desk().lease(_lease_call(wish))

    async def complete_and_lease(self, completes: Sequence[Complete], wish: Wish) -> Swapped:
        desk = self._desk()
        completing = desk.call(Call(completes))
        leases = await or_none(desk.lease(_lease_call(wish, wait_ms=0)))
        return await completing, leases

    def _desk(self) -> Desk:
        loop = asyncio.get_running_loop()
        desk = self._desks.get(loop)
        if desk is None:
            desk = self._desks[loop] = Desk(loop, self._engine.offer)
        return desk

    def events(self, after: int, *, follow: bool) -> AsyncIterator[Event]:
        return self._engine.events(after, follow=follow)

    async def aside(self, work: Callable[[], None]) -> None:
        await asyncio.to_thread(work)

    async def close(self) -> None:
        await asyncio.to_thread(self._engine.close)


class BlockingLink(_Embedded):
    async def call(
        self, commands: Sequence[Command], *, wait_ms: int | None = None
    ) -> Sequence[Outcome]:
        slot = _Slot()
        self._engine.offer_and_drive(Call(commands, slot.fill, wait_ms=wait_ms))
        return slot.wait(None)

    async def lease(self, wish: Wish) -> tuple[LeaseResponse, ...]:
        slot = _Slot()
        call = _lease_call(wish)
        call.reply = slot.fill
        try:
            self._engine.offer_and_drive(call)
            return leases_of(slot.wait(None))
        except BaseException:
            call.withdrawn = True
            slot.abandon(self._give_back)
            raise

    async def complete_and_lease(self, completes: Sequence[Complete], wish: Wish) -> Swapped:
        return await one_by_one(self, completes, wish)

    def _give_back(self, outcomes: Sequence[Outcome]) -> None:
        if isinstance(outcomes[0], Leases):
            give_back(self._engine.offer, outcomes[0].leases, ANONYMOUS)

    def events(self, after: int, *, follow: bool) -> AsyncIterator[Event]:
        if self._engine.suspends:
            return self._engine.events_apart(after, follow=follow)
        return self._engine.events(after, follow=follow, blocking=True)

    async def aside(self, work: Callable[[], None]) -> None:
        work()

    async def close(self) -> None:
        self._engine.close()


class _Slot:
    """One caller's thread waiting for one reply. A bare lock wakes faster than an Event."""

    __slots__ = ("_abandoned", "_lock", "_outcomes")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._outcomes: Sequence[Outcome] | None = None
        self._abandoned: Callable[[Sequence[Outcome]], None] | None = None

    def fill(self, outcomes: Sequence[Outcome]) -> None:
        if self._outcomes is not None:
            return  # a turn that was interrupted while it answered answers again
        self._outcomes = outcomes
        if self._abandoned is not None:
            self._abandoned(outcomes)
        self._lock.release()

    def wait(self, timeout_s: float | None) -> Sequence[Outcome]:
        is_here = self._outcomes is not None  # a caller that took the turn itself has its answer
        if not is_here and not self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise Unavailable("the queue did not answer in time")
        assert self._outcomes is not None
        return self._outcomes

    def abandon(self, give_back: Callable[[Sequence[Outcome]], None]) -> None:
        self._abandoned = give_back
        if self._outcomes is not None:
            give_back(self._outcomes)  # it came before we left; to release twice does no harm


async def one_by_one(link: Link, completes: Sequence[Complete], wish: Wish) -> Swapped:
    """`complete_and_lease` in two calls."""
    outcomes = await link.call(completes)
    return outcomes, await or_none(link.lease(msgspec.structs.replace(wish, wait_ms=0)))


def _lease_call(wish: Wish, wait_ms: int | None = None) -> LeaseCall:
    return LeaseCall(
        max_items=wish.max_items,
        wait_ms=wish.wait_ms if wait_ms is None else wait_ms,
        resource_types=wish.resource_types,
        lease_duration_ms=wish.lease_duration_ms,
        request_id=wish.request_id,
        peer_id=wish.peer_id,
    )
