"""One handle to a store that many callers of a hub share."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from omnirelay.mesh.rest import run_now
from omnirelay.model import limits
from omnirelay.model.errors import Overloaded
from omnirelay.model.ports import stopwatch

T = TypeVar("T")

QUICK_S = 0.005
"""What usually takes longer must not hold up the loop."""


class Lane:
    """Calls go one at a time, in order, to their end: a caller who leaves meanwhile does not cut a
    connection off that others use. Those that block do so on a thread of `threads`, unless they are
    usually over sooner than two changes of thread are worth (docs/adr/0006)."""

    def __init__(self, name: str, threads: Executor | None) -> None:
        self._name = name
        self._threads = threads
        self._usual_s = 0.0
        self._turn = asyncio.Lock()
        self._waiting: set[asyncio.Task[Any]] = set()  # Any: whatever each of them gives

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], *, is_long: bool = False) -> T:
        """`is_long`: never on the loop's own thread. Raises Overloaded if too many wait already."""
        if len(self._waiting) >= limits.HUB_WAITING_MAX:
            raise Overloaded(
                f"{self._name}: {limits.HUB_WAITING_MAX} calls wait for its store; slow down"
            )
        task = asyncio.create_task(self._in_turn(work, is_long))
        self._waiting.add(task)
        task.add_done_callback(self._is_over)
        return await asyncio.shield(task)

    async def _in_turn(self, work: Callable[[], Coroutine[Any, Any, T]], is_long: bool) -> T:
        async with self._turn:
            if self._threads is None:
                return await work()
            loop = asyncio.get_running_loop()
            if is_long:
                return await loop.run_in_executor(self._threads, run_now, work())
            if self._usual_s > QUICK_S:
                return await loop.run_in_executor(self._threads, self._timed, work)
            return self._timed(work)

    def _timed(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        began = stopwatch()
        try:
            return run_now(work())
        finally:
            took_s = stopwatch() - began
            self._usual_s += (took_s - self._usual_s) / 8

    def _is_over(self, task: "asyncio.Task[Any]") -> None:
        self._waiting.discard(task)
        if not task.cancelled():
            task.exception()  # of a caller who left: nobody else would look at it
