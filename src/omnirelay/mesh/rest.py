"""How a shard waits for its next call: on an event loop, or blocking a thread of its own.

A shard whose store blocks anyway gains nothing from an event loop and loses two trips through it on
every call (docs/adr/0002), so it runs on a bare thread with `ThreadRest`: its coroutine then never
suspends. With `LoopRest` the same code shares a loop, real or simulated.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that blocks instead of suspending. One that suspends after all is a bug."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise AssertionError(f"{work!r} suspended on a thread without an event loop")


class Rest(Protocol):
    suspends: bool
    """Other work of the same loop goes on while something is awaited."""

    def wake(self) -> None:
        """End the present or the next `wait`. May be called from any thread."""

    async def wait(self, timeout_s: float | None) -> None:
        """Until `wake`, or the timeout; may return early, never misses a wake."""

    async def breathe(self) -> None:
        """Let others on the same loop have a turn."""


class LoopRest:
    suspends = True

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: asyncio.Future[None] | None = None
        self._woken = False

    def wake(self) -> None:
        self._woken = True
        idle = self._idle
        if idle is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(_resolve, idle)

    async def wait(self, timeout_s: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        idle = self._idle = self._loop.create_future()
        timer = None
        if timeout_s is not None:
            timer = self._loop.call_later(timeout_s, _resolve, idle)
        try:
            if not self._woken:
                await idle
        finally:
            self._idle = None
            self._woken = False
            if timer is not None:
                timer.cancel()

    async def breathe(self) -> None:
        await asyncio.sleep(0)


class ThreadRest:
    """A lock nobody holds for long: taken while asleep, released to wake."""

    suspends = False

    def __init__(self) -> None:
        self._bell = threading.Lock()
        self._bell.acquire()

    def wake(self) -> None:
        try:
            self._bell.release()
        except RuntimeError:
            return  # it was awake already; the release before still counts

    async def wait(self, timeout_s: float | None) -> None:
        self._bell.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s))

    async def breathe(self) -> None:
        return None


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
