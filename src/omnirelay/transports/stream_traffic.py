"""All connections of one stream inbound together: what they may cost, and their common end."""

import asyncio
from typing import Protocol

from omnirelay.model.errors import Closed, Overloaded
from omnirelay.transports.per_address import PerAddress

CALL_BYTES = 4 << 10
"""What a call under way costs beside its body."""
SMALL_BYTES = 64 << 10
LINGER_S = 1.0
"""How long a cancelled call may clean up, and a closed connection may take in its last bytes."""


class Member(Protocol):
    """A connection, as far as all of them have something in common."""

    address: str

    def sweep(self, now: int) -> None: ...

    def leave(self) -> None: ...

    def abort(self) -> None: ...

    def cut(self) -> None: ...


class Running(Protocol):
    """A call under way: a task, or what does without one."""

    def cancel(self) -> object: ...


class Traffic:
    def __init__(
        self, *, connections_max: int, held_bytes_max: int, per_address: PerAddress | None = None
    ) -> None:
        self.whole = held_bytes_max
        self.half = held_bytes_max // 2
        self.quarter = held_bytes_max // 4
        self.held = 0
        """Bytes of calls under way, unread messages, unfinished frames and unsent answers."""
        self.members: set[Member] = set()
        self.under_way: set[Running] = set()
        self.is_leaving = False
        self._connections_max = connections_max
        self._per_address = per_address
        self._empty = asyncio.Event()
        self._idle = asyncio.Event()

    def ended(self, running: Running) -> None:
        self.under_way.discard(running)
        if self.is_leaving and not self.under_way:
            self._idle.set()

    def admit(self, member: Member) -> None:
        """Raises Overloaded for one too many; Closed for one that was accepted just before the door
        was shut: its caller asks elsewhere, or here again, where "too many" would be an answer."""
        if self.is_leaving:
            raise Closed("the node is stopping")
        if len(self.members) >= self._connections_max:
            raise Overloaded("this node takes no more connections")
        if self._per_address is not None:
            self._per_address.enter(member.address)
        self.members.add(member)

    def forget(self, member: Member) -> None:
        """Does nothing for one that was not admitted."""
        if member in self.members and self._per_address is not None:
            self._per_address.leave(member.address)
        self.members.discard(member)
        if not self.members:
            self._empty.set()

    def sweep(self, now: int) -> None:
        for member in list(self.members):
            member.sweep(now)

    async def end(self, grace_s: float) -> None:
        """Calls under way may finish, then are cancelled; the last bytes are let out; then all is
        cut, so that neither a slow call nor a slow reader keeps the process."""
        self.is_leaving = True
        for member in list(self.members):
            member.leave()
        if grace_s > 0:
            await self._until_idle(grace_s)
        for running in list(self.under_way):
            running.cancel()
        await self._until_idle(LINGER_S)
        for member in list(self.members):
            member.abort()
        if self.members:
            self._empty.clear()
            waiting = asyncio.create_task(self._empty.wait())
            await asyncio.wait([waiting], timeout=LINGER_S)
            waiting.cancel()
        for member in list(self.members):
            member.cut()
        await asyncio.sleep(0)  # what is cut is told so in the next turn

    async def _until_idle(self, seconds: float) -> None:
        if not self.under_way:
            return
        self._idle.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return


class Share:
    """What one connection holds of the memory for all. It gets a quarter at most; and what is large
    stops at half of the whole, so that a heartbeat still fits when bodies have filled the rest."""

    __slots__ = ("_held", "_traffic")

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._held = 0

    def has_room(self, size: int) -> bool:
        return self._held + size <= self._traffic.quarter and self.fits(size)

    def fits(self, size: int) -> bool:
        """Into the whole, whatever this connection holds already."""
        traffic = self._traffic
        return traffic.held + size <= (traffic.whole if size <= SMALL_BYTES else traffic.half)

    def take(self, size: int) -> bool:
        """Paid by every call, and so written out."""
        traffic = self._traffic
        own, all_ = self._held + size, traffic.held + size
        ceiling = traffic.whole if size <= SMALL_BYTES else traffic.half
        if own > traffic.quarter or all_ > ceiling:
            return False
        self._held, traffic.held = own, all_
        return True

    def add(self, size: int) -> None:
        """What is there already, room or not; less than nothing gives back."""
        self._held += size
        self._traffic.held += size

    def give(self, size: int) -> None:
        self._held -= size
        self._traffic.held -= size
        assert self._held >= 0, "gave back more than was taken"
