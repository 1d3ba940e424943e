"""An event that is set when a lease is gone. Works in threads and in any event loop."""

import asyncio
import threading


class Lost:
    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._watchers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.reason: str | None = None

    def __repr__(self) -> str:
        return f"Lost({self.reason!r})" if self.is_set() else "Lost(no)"

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self, reason: str) -> None:
        with self._lock:
            if self._event.is_set():
                return
            self.reason = reason
            self._event.set()
            watchers, self._watchers = self._watchers, []
        for loop, future in watchers:
            try:
                loop.call_soon_threadsafe(_resolve, future)
            except RuntimeError:
                continue  # the watcher's loop has ended

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._event.is_set():
                return
            self._watchers.append((loop, future))
        await future

    def wait_blocking(self, timeout_s: float | None = None) -> bool:
        return self._event.wait(timeout_s)


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
