"""Tells whoever follows a journal that it has grown, across threads and loops."""

import asyncio


class Bell:
    """`ring` costs nothing while nobody listens. Waiting is level-triggered: a listener names the
    sequence it has, so a ring between its read and its wait is not missed."""

    def __init__(self) -> None:
        self.sequence = 0
        self._listeners: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def ring(self, sequence: int) -> None:
        self.sequence = sequence
        if self._listeners:
            listeners, self._listeners = self._listeners, []
            for loop, event in listeners:
                try:
                    loop.call_soon_threadsafe(event.set)
                except RuntimeError:
                    continue  # that listener's loop has ended

    async def wait(self, after: int, timeout_s: float) -> None:
        """Return once the journal is longer than `after`, or after the timeout."""
        event = asyncio.Event()
        self._listeners.append((asyncio.get_running_loop(), event))
        if self.sequence > after:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return
