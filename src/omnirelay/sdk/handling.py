"""One lease in a handler's hands, and how it is reported."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from omnirelay.model import limits
from omnirelay.model.ports import stopwatch
from omnirelay.sdk.lease import DeadLetter, Lease, hand_back

log = logging.getLogger(__name__)

Handler = Callable[[Lease], Awaitable[None]]
Retry = Callable[[Lease, Exception], float | None]


class Handling:
    def __init__(self, lease: Lease, handler: Handler, retry: Retry | None) -> None:
        self.lease = lease
        self.took_s = 0.0
        self._handler = handler
        self._retry = retry
        self._error: BaseException | None = None
        self._is_working = False

    async def run(self) -> None:
        """Ends when the handler has, however it does; never raises. A lost lease cancels it."""
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        tell = partial(self._tell, loop, task)
        if not self.lease.lost.watch(tell):
            return
        self._is_working = True
        began = stopwatch()
        try:
            # Whatever a handler does wrong, not being async included, is a failure of its lease.
            await self._handler(self.lease)
        except asyncio.CancelledError as error:
            task.uncancel()  # it was meant for the handler; the report is still to come
            self._error = error
        except Exception as error:
            self._error = error
        self._is_working = False
        self.took_s = stopwatch() - began
        self.lease.lost.unwatch(tell)  # it holds the task, and the lease holds it

    def _tell(self, loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
        """Called on whichever thread finds the lease lost."""
        try:
            loop.call_soon_threadsafe(self._cancel, task)
        except RuntimeError:
            return  # the worker's loop has ended

    def _cancel(self, task: "asyncio.Task[None]") -> None:
        if self._is_working:
            task.cancel()

    @property
    def is_to_complete(self) -> bool:
        """Nothing is left but to say that it is done."""
        return self._error is None and not self.lease.is_over and not self.lease.is_lost

    async def report(self) -> str:
        """completed, failed or lost. Raises OmniRelayError if the report was refused."""
        lease, error = self.lease, self._error
        if lease.is_lost:
            lease.stop_renewing()
            return "lost"
        if lease.is_over:
            return "completed" if error is None else "failed"  # the handler has ended it itself
        if error is None:
            await lease.complete()
            return "completed"
        log.info("%r failed: %r", lease, error)
        if isinstance(error, DeadLetter) or not isinstance(error, Exception):
            await hand_back(lease, error)
        else:
            await lease.fail(_words(error), delay=self._delay(error))
        return "failed"

    def _delay(self, error: Exception) -> float | None:
        """As the worker's policy says. One that cannot say leaves it to the queue: a lease that is
        never reported would be kept alive for ever."""
        if self._retry is None:
            return None
        try:
            delay = self._retry(self.lease, error)
            if delay is None or 0 <= delay <= limits.DELAY_MS_MAX / 1000:
                return delay
            log.error("the retry policy says %r seconds: the queue's own delay is used", delay)
        except Exception:
            log.exception("the retry policy failed: the queue's own delay is used")
        return None


def _words(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, which cannot be put into words"
