"""All connections of one inbound together: what they may cost, and their common end."""

import asyncio
from email.utils import formatdate
from typing import Protocol

from omnirelay.model.ports import Clock
from omnirelay.transports.http_options import HttpOptions


class Member(Protocol):
    """A connection, as far as all of them have something in common."""

    def sweep(self, now: float) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Traffic:
    def __init__(self, options: HttpOptions, clock: Clock) -> None:
        self.options = options
        self.connections: set[Member] = set()
        self.calls = 0
        self.body_bytes = 0
        self.is_draining = False
        self.dated = b""
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._quiet: asyncio.Future[None] | None = None

    def add(self, connection: Member, task: asyncio.Task[None]) -> bool:
        """False for one too many, which may only be told so."""
        # A task is kept here until it is done: its connection may be gone while it still cleans up.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections.add(connection)
        return len(self.connections) <= self.options.connections_max and not self.is_draining

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
