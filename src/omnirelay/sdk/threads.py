"""An event loop on a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from omnirelay.model.errors import Closed, InvalidArgument

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


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
        pending = asyncio.all_tasks(self.loop)
        for task in pending:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
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
