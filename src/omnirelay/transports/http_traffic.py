"""All connections of one inbound together: what they may cost, and their common end."""

import asyncio
from email.utils import formatdate
from typing import Protocol

from omnirelay.model.errors import Closed, Overloaded
from omnirelay.model.ports import Clock
from omnirelay.transports.http_options import HttpOptions
from omnirelay.transports.per_address import PerAddress


class Member(Protocol):
    """A connection, as far as all of them have something in common."""

    address: str

    def sweep(self, now: float) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Traffic:
    def __init__(
        self, options: HttpOptions, clock: Clock, per_address: PerAddress | None = None
    ) -> None:
        self.options = options
        self.connections: set[Member] = set()
        self._refused: set[Member] = set()
        """Those of them that are only told so, and soon gone: they take no place of others."""
        self._per_address = per_address
        self.calls = 0
        self.body_bytes = 0
        self.is_draining = False
        self.dated = b""
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._quiet: asyncio.Future[None] | None = None

    def add(self, connection: Member, task: asyncio.Task[None]) -> None:
        """Raises Overloaded for one too many, and Closed when the node stops: either may only be
        told so."""
        # A task is kept here until it is done: its connection may be gone while it still cleans up.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections.add(connection)
        self._refused.add(connection)
        if self.is_draining:
            raise Closed("the node is stopping")
        taken = len(self.connections) - len(self._refused)
        if taken >= self.options.connections_max:
            raise Overloaded("too many connections, come back later")
        if self._per_address is not None:
            self._per_address.enter(connection.address)
        self._refused.discard(connection)

    def remove(self, connection: Member) -> None:
        self.connections.discard(connection)
        if connection in self._refused:
            self._refused.discard(connection)
        elif self._per_address is not None:
            self._per_address.leave(connection.address)

    def enter(self) -> None:
        self.calls += 1

    def leave(self) -> None:
        self.calls -= 1
        if self._quiet is not None and not self.calls and not self._quiet.done():
            self._quiet.set_result(None)

    async def sweep(self) -> None:
        """For ever: end waits that are too long, keep the date."""
        loop = asyncio.get_running_loop()
        while True:
            self.dated = (
                f"date: {formatdate(self._clock.wall_ms() // 1000, usegmt=True)}\r\n".encode()
            )
            now = loop.time()
            for connection in list(self.connections):
                connection.sweep(now)
            await asyncio.sleep(self.options.sweep_s)

    async def drain(self, grace_s: float) -> None:
        """Let calls finish, refuse new ones, then end every connection."""
        self.is_draining = True
        loop = asyncio.get_running_loop()
        ends = loop.time() + grace_s
        if self.calls and grace_s > 0:
            self._quiet = loop.create_future()
            await asyncio.wait([self._quiet], timeout=grace_s)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            # A handler that does not take a cancellation does not keep the process.
            await asyncio.wait(self._tasks, timeout=self.options.linger_s)
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)  # a closed connection without unsent bytes is lost in the next turn
        if self.connections and loop.time() < ends:
            await asyncio.sleep(min(self.options.linger_s, ends - loop.time()))
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)
