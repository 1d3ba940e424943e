"""Lease calls made in the same turn for the same kind of work become one call for all of them.

What comes is dealt out in the order it was asked for, to each as many as it wants. Who got nothing
asks again with what is left of its wait; what comes for somebody who has gone goes to the next, or
back to the queue.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from omnirelay.lease.answers import LeaseResponse
from omnirelay.model import limits
from omnirelay.model.ports import Clock
from omnirelay.sdk.alone import Alone
from omnirelay.sdk.link import Wish

Ask = Callable[[Wish], Awaitable[tuple[LeaseResponse, ...]]]
Leases = asyncio.Future[tuple[LeaseResponse, ...]]


class _Sort(NamedTuple):
    """Wishes that differ in none of these may travel together."""

    wait_ms: int
    resource_types: tuple[str, ...] | None
    lease_duration_ms: int | None
    peer_id: str | None


class _Party:
    def __init__(self, sort: _Sort) -> None:
        self.sort = sort
        self.members: list[tuple[Leases, int]] = []
        """Who asks, and for how many."""
        self.wanted = 0
        self.task: asyncio.Task[None] | None = None

    def add(self, member: Leases, count: int) -> None:
        self.members.append((member, count))
        self.wanted += count

    def living(self) -> list[tuple[Leases, int]]:
        return [member for member in self.members if not member[0].done()]


class Taker:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        ask: Ask,
        give_back: Callable[[tuple[LeaseResponse, ...]], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._ask = ask
        self._give_back = give_back
        self._forming: dict[_Sort, _Party] = {}
        """Where there is room for one more."""
        self._formed: list[_Party] = []
        self._alone = Alone()
        self.tasks: set[asyncio.Task[None]] = set()

    async def take(self, wish: Wish) -> tuple[LeaseResponse, ...]:
        if wish.request_id is not None or wish.max_items < 1:  # the node refuses the latter
            return await self._ask(wish)
        if self._alone.may_leave(others_wait=bool(self._formed)):
            return await self._alone.leave(self._ask(wish))
        sort = _Sort(wish.wait_ms, wish.resource_types, wish.lease_duration_ms, wish.peer_id)
        party = self._forming.get(sort)
        if party is None or party.wanted + wish.max_items > limits.TOGETHER_MAX:
            if not self._formed:
                self._loop.call_soon(self._go)
            party = self._forming[sort] = _Party(sort)
            self._formed.append(party)
        member: Leases = self._loop.create_future()
        party.add(member, wish.max_items)
        try:
            return await member
        except asyncio.CancelledError:
            if member.done() and not member.cancelled() and member.exception() is None:
                self._give_back(member.result())
            member.cancel()
            if party.task is not None and not party.living():
                party.task.cancel()  # nobody waits any more: the node hears of it
            raise

    def _go(self) -> None:
        formed, self._formed, self._forming = self._formed, [], {}
        self._alone.gathered(sum(len(one.members) for one in formed))
        for party in formed:
            party.task = self._loop.create_task(self._serve(party))
            self.tasks.add(party.task)
            party.task.add_done_callback(self.tasks.discard)

    async def _serve(self, party: _Party) -> None:
        until = self._clock.monotonic_ms() + party.sort.wait_ms
        left_ms = party.sort.wait_ms
        try:
            while living := party.living():
                most = sum(count for _, count in living)
                wish = Wish(max_items=most, **party.sort._replace(wait_ms=left_ms)._asdict())
                self._deal(party, await self._ask(wish))
                left_ms = until - self._clock.monotonic_ms()
                if left_ms <= 0:
                    break
        except asyncio.CancelledError:
            for member, _ in party.living():
                member.cancel()
            raise
        except Exception as error:
            for member, _ in party.living():
                member.set_exception(error)
        for member, _ in party.living():
            member.set_result(())

    def _deal(self, party: _Party, leases: tuple[LeaseResponse, ...]) -> None:
        at = 0
        for member, count in party.living():
            if at >= len(leases):
                return
            member.set_result(leases[at : at + count])
            at += count
        if at < len(leases):
            self._give_back(leases[at:])
