"""An event that is set when a lease is gone. Works in threads and in any event loop.

Every lease has one and almost none is ever watched, so it costs two attributes until it is.
"""

import asyncio
import threading
from collections.abc import Callable

_watching = threading.Lock()


class Lost:
    __slots__ = ("_watchers", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        self._watchers: list[Callable[[], object]] | None = None

    def __repr__(self) -> str:
        return f"Lost({self.reason!r})" if self.is_set() else "Lost(no)"

    def is_set(self) -> bool:
        return self.reason is not None

    def set(self, reason: str) -> None:
        with _watching:
            if self.reason is not None:
                return
            self.reason = reason
            watchers, self._watchers = self._watchers, None
        for tell in watchers or ():
            tell()

    def watch(self, tell: Callable[[], object]) -> bool:
        """Call `tell` once it is set, on whichever thread sets it. False: it is set already."""
        with _watching:
            if self.reason is not None:
                return False
            self._watchers = [*(self._watchers or ()), tell]
            return True

    def unwatch(self, tell: Callable[[], object]) -> None:
        """It need not be told any more; whoever was about to tell it may still do."""
        with _watching:
            left = [one for one in self._watchers or () if one is not tell]
            self._watchers = left or None

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self.watch(lambda: _tell(loop, future)):
            await future

    def wait_blocking(self, timeout_s: float | None = None) -> bool:
        event = threading.Event()
        return not self.watch(event.set) or event.wait(timeout_s)


def _tell(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[None]") -> None:
    try:
        loop.call_soon_threadsafe(_resolve, future)
    except RuntimeError:
        return  # the watcher's loop has ended


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
