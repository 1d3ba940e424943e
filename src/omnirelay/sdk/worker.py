"""A worker: takes leases as its slots come free, runs a handler for each, ends it as it ended."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable

from omnirelay.model import limits
from omnirelay.model.errors import (
    Closed,
    InvalidOption,
    OmniRelayError,
    ResourceExhausted,
    Unavailable,
)
from omnirelay.sdk.client import Relay
from omnirelay.sdk.lease import Lease, hand_back

log = logging.getLogger(__name__)

Handler = Callable[[Lease], Awaitable[None]]


class Worker:
    """At most `concurrency` handlers at a time. A handler that returns completes its lease, one
    that raises fails it, DeadLetter ends it for good, and one whose lease is lost is cancelled."""

    def __init__(
        self,
        relay: Relay,
        *,
        concurrency: int = 16,
        lease_duration: float | None = None,
        poll: float = 20.0,
        stop_timeout: float = 30.0,
        peer_id: str | None = None,
    ) -> None:
        if not 1 <= concurrency <= limits.BATCH_MAX:
            raise InvalidOption(f"concurrency is {concurrency}, must be 1 to {limits.BATCH_MAX}")
        self._relay = relay
        self._concurrency = concurrency
        self._lease_duration = lease_duration
        self._poll = poll
        self._stop_timeout = stop_timeout
        self._peer_id = peer_id
        self._handlers: dict[str, Handler] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self.completed = 0
        self.failed = 0
        self.lost = 0

    def handles(self, resource_type: str) -> Callable[[Handler], Handler]:
        """Register the handler of one resource type."""
        if resource_type in self._handlers:
            raise InvalidOption(f"{resource_type!r} has a handler already")

        def register(handler: Handler) -> Handler:
            self._handlers[resource_type] = handler
            return handler

        return register

    def stop(self) -> None:
        """Take no more work; `run` returns when what is in hand is finished or handed back."""
        self._stopping.set()

    async def run(self, *, handle_signals: bool = False) -> None:
        """Work until `stop`, or SIGTERM and SIGINT if `handle_signals`."""
        if not self._handlers:
            raise InvalidOption("the worker has no handler: use @worker.handles(...)")
        loop = asyncio.get_running_loop()
        if handle_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
        try:
            await self._take_until_stopped()
        finally:
            if handle_signals:
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.remove_signal_handler(number)
            await self._finish()

    async def _take_until_stopped(self) -> None:
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            while not stopped.done():
                free = self._concurrency - len(self._running)
                if free == 0:
                    await asyncio.wait(
                        [stopped, *self._running], return_when=asyncio.FIRST_COMPLETED
                    )
                else:
                    await self._take_or_stop(free, stopped)
        finally:
            stopped.cancel()

    async def _take_or_stop(self, free: int, stopped: "asyncio.Task[bool]") -> None:
        taking = asyncio.create_task(self._take(free))
        try:
            await asyncio.wait([stopped, taking], return_when=asyncio.FIRST_COMPLETED)
        finally:
            taking.cancel()  # a lease that comes after all is released by the link
            await asyncio.wait([taking])
            if not taking.cancelled() and taking.exception() is None:
                for lease in taking.result():
                    self._start(lease)
        if not taking.cancelled():
            taking.result()

    async def _take(self, free: int) -> list[Lease]:
        try:
            return await self._relay.lease_many(
                free,
                wait=self._poll,
                types=list(self._handlers),
                duration=self._lease_duration,
                peer_id=self._peer_id,
            )
        except Closed:
            raise  # it will not open again
        except (Unavailable, ResourceExhausted) as error:
            log.warning("no lease: %s", error)
            await asyncio.sleep(0.2)
            return []

    def _start(self, lease: Lease) -> None:
        task = asyncio.create_task(self._handle(lease))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _handle(self, lease: Lease) -> None:
        work = asyncio.create_task(self._call(lease))
        lost = asyncio.create_task(lease.lost.wait())
        try:
            await asyncio.wait([work, lost], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
            await self._report(lease, work)
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait([work])
            await self._report(lease, work)
        finally:
            lost.cancel()

    async def _call(self, lease: Lease) -> None:
        """Whatever a handler does wrong, not being async included, is a failure of its lease."""
        await self._handlers[lease.resource_type](lease)

    async def _report(self, lease: Lease, work: "asyncio.Future[None]") -> None:
        if lease.lost.is_set():
            lease.stop_renewing()
            self.lost += 1
            return
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        try:
            if lease.is_over:
                pass  # the handler has ended it itself
            elif error is None:
                await lease.complete()
            else:
                log.info("%r failed: %r", lease, error)
                await hand_back(lease, error)
        except OmniRelayError as refused:
            log.warning("%r could not be reported: %s", lease, refused)
            self.lost += 1
            return
        if error is None:
            self.completed += 1
        else:
            self.failed += 1

    async def _finish(self) -> None:
        if self._running:
            await asyncio.wait(set(self._running), timeout=self._stop_timeout)
        left = set(self._running)
        for task in left:
            task.cancel()  # what did not end in time is handed back, untried
        if left:
            await asyncio.wait(left)
