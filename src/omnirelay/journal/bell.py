"""Tells whoever follows a journal that it has grown, across threads and loops."""

import asyncio
import threading


class Bell:
    """`ring` costs nothing while nobody listens. Waiting is level-triggered: a listener names the
    sequence it has, so a ring between its read and its wait is not missed."""

    def __init__(self) -> None:
        self.sequence = 0
        self.is_over = False
        """True: the writer is gone for good, the journal grows no more."""
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._changing = threading.Lock()

    def ring(self, sequence: int) -> None:
        self.sequence = sequence
        if self._listeners:
            self._wake_all()

    def close(self) -> None:
        """Nobody need wait any longer."""
        self.is_over = True
        self._wake_all()

    def _wake_all(self) -> None:
        with self._changing:
            listeners = list(self._listeners)
        for loop, event in listeners:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                continue  # that listener's loop has ended

    async def wait(self, after: int, timeout_s: float) -> None:
        """Return once the journal is longer than `after`, or over, or after the timeout."""
        listener = (asyncio.get_running_loop(), asyncio.Event())
        with self._changing:
            self._listeners.add(listener)
        try:
            if self.sequence <= after and not self.is_over:
                async with asyncio.timeout(timeout_s):
                    await listener[1].wait()
        except TimeoutError:
            return
        finally:
            with self._changing:
                self._listeners.discard(listener)
