"""An event loop on a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from omnirelay.model.errors import Closed, InvalidArgument

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


ONCE_MORE_S = 1.0
"""A client may swallow a cancellation that comes while it connects; Redis' has done so."""


async def _cancelled(tasks: "set[asyncio.Task[Any]]") -> None:
    """Any: nobody asks any more what they would have given."""
    for task in tasks:
        task.cancel()
    ended, _ = await asyncio.wait(tasks, timeout=ONCE_MORE_S)
    for task in ended:
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains of it


class LoopThread:
    """Runs until `stop`. A daemon: a program that just ends loses nothing acknowledged."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._starting = threading.Lock()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        while pending := asyncio.all_tasks(self.loop):
            self.loop.run_until_complete(_cancelled(pending))
        # Whoever waits for what ended in the very moment of the stop has yet to be told.
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Raises Closed once it was stopped. What is under way then is cancelled."""
        with self._starting:
            if not self._is_over:
                return asyncio.run_coroutine_threadsafe(work, self.loop)
        work.close()
        raise Closed("the relay is closed")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Start it and wait for its result, from any thread but this one."""
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidArgument(f"not on the thread {self._thread.name!r} itself: it would wait")
        return self.start(work).result()

    def soon(self, callback: Callable[[], object]) -> None:
        """On its loop, after what was started before; not at all once it was stopped."""
        with self._starting:
            if not self._is_over:
                self.loop.call_soon_threadsafe(callback)

    def stop(self) -> None:
        with self._starting:
            if not self._is_over:
                self._is_over = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
