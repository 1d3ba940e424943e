"""An event loop on a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from omnirelay.model.errors import InvalidArgument

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


class LoopThread:
    """Runs until `stop`. A daemon: a program that just ends loses nothing acknowledged."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
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
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Start it and wait for its result, from any thread but this one."""
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidArgument(f"not on the thread {self._thread.name!r} itself: it would wait")
        return self.start(work).result()

    def stop(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
