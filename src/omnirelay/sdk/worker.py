"""A worker: takes leases as its slots come free, runs a handler for each, ends it as it ended."""

import asyncio
import logging
import signal
from collections import deque
from collections.abc import Callable, Sequence

from omnirelay.mesh.calls import Outcome
from omnirelay.model import limits
from omnirelay.model.errors import (
    Closed,
    InvalidOption,
    OmniRelayError,
    ResourceExhausted,
    Unavailable,
)
from omnirelay.model.ports import stopwatch
from omnirelay.sdk.client import Relay
from omnirelay.sdk.handling import Handler, Handling
from omnirelay.sdk.health import Health
from omnirelay.sdk.lease import Lease
from omnirelay.sdk.link import Wish

log = logging.getLogger(__name__)

SHORT_S = 0.1
"""Handlers that take longer than this do not profit from leases taken ahead."""
AHEAD = 16
SLACK_S = 10.0
"""How much later than planned a worker may look for work and still be called healthy."""


class Worker:
    """At most `concurrency` handlers at a time. A handler that returns completes its lease, one
    that raises fails it, DeadLetter ends it for good, and one whose lease is lost is cancelled.

    A slot that comes free asks for its next lease in the call that reports the last one. While
    handlers are short, up to `prefetch` leases are taken ahead of them; long work leaves what it
    cannot start to other workers. `retry` says after how many seconds a failed item may be tried
    again, given its lease and the error; None leaves it to the queue.
    """

    def __init__(
        self,
        relay: Relay,
        *,
        concurrency: int = 16,
        prefetch: int | None = None,
        lease_duration: float | None = None,
        poll: float = 20.0,
        stop_timeout: float = 30.0,
        peer_id: str | None = None,
        retry: Callable[[Lease, Exception], float | None] | None = None,
    ) -> None:
        if not 1 <= concurrency <= limits.BATCH_MAX:
            raise InvalidOption(f"concurrency is {concurrency}, must be 1 to {limits.BATCH_MAX}")
        if prefetch is not None and not 0 <= prefetch <= limits.BATCH_MAX:
            raise InvalidOption(f"prefetch is {prefetch}, must be 0 to {limits.BATCH_MAX}")
        self._relay = relay
        self._concurrency = concurrency
        self._prefetch = min(concurrency, AHEAD) if prefetch is None else prefetch
        self._lease_duration = lease_duration
        self._poll = poll
        self._stop_timeout = stop_timeout
        self._peer_id = peer_id
        self._handlings: dict[str, Handler] = {}
        self._retry = retry
        self._wishes: dict[int, Wish] = {}
        self._ahead: deque[Lease] = deque()
        """Taken, not yet started."""
        self._running: set[asyncio.Task[None]] = set()
        self._reporting: set[asyncio.Task[None]] = set()
        self._done: list[Handling] = []
        """Ended well, to be reported by the call that asks for more."""
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._taking: asyncio.Task[None] | None = None
        self._is_taking = False
        """It waits for a lease."""
        self._is_swapping = False
        """It reports, and takes what there is for it."""
        self._typical_s = SHORT_S * 2
        self._polled_at = stopwatch()
        self.completed = 0
        self.failed = 0
        self.lost = 0

    def handles(self, resource_type: str) -> Callable[[Handler], Handler]:
        """Register the handler of one resource type."""
        if resource_type in self._handlings:
            raise InvalidOption(f"{resource_type!r} has a handler already")

        def register(handler: Handler) -> Handler:
            self._handlings[resource_type] = handler
            return handler

        return register

    def stop(self) -> None:
        """Take no more work; `run` returns when what is in hand is finished or handed back."""
        self._stopping.set()
        self._changed.set()
        if self._taking is not None and self._is_taking:
            self._taking.cancel()  # a lease that comes after all is released by the link

    @property
    def is_healthy(self) -> bool:
        """False when the loop that takes work has stood still for much longer than it may."""
        return stopwatch() - self._polled_at < self._poll * 2 + SLACK_S

    async def run(self, *, handle_signals: bool = False, health_port: int | None = None) -> None:
        """Work until `stop`, or SIGTERM and SIGINT if `handle_signals`. With `health_port` it
        answers `GET /healthz` on loopback: 503 once the loop that takes work stands still."""
        if not self._handlings:
            raise InvalidOption("the worker has no handler: use @worker.handles(...)")
        loop = asyncio.get_running_loop()
        health = None
        if health_port is not None:
            health = await Health.open(health_port, lambda: self.is_healthy)
        if handle_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
        taking = self._taking = asyncio.create_task(self._take_until_stopped())
        try:
            await asyncio.wait([taking])
        finally:
            taking.cancel()
            await asyncio.wait([taking])
            if handle_signals:
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.remove_signal_handler(number)
            await self._finish()
            if health is not None:
                await health.close()
        if not taking.cancelled():
            taking.result()

    # -- taking -------------------------------------------------------------------------------

    async def _take_until_stopped(self) -> None:
        """A task of its own, and no task a take: the wish for the next lease leaves in the same
        moment as the report of the last."""
        while not self._stopping.is_set():
            self._polled_at = stopwatch()
            self._changed.clear()
            room = self._room()
            if self._done and room > 0:
                await self._swap(room)
            elif self._done:
                await self._report_done()
            elif room > 0:
                await self._wait_for_lease(room)
            else:
                await self._some_change()

    async def _wait_for_lease(self, room: int) -> None:
        self._is_taking = True
        try:
            leases = await self._taken(room)
        finally:
            self._is_taking = False
        await self._begin(leases)

    async def _swap(self, room: int) -> None:
        """Not cut short by `stop`: it does not wait for work, and what it reports is done."""
        done, self._done = self._done, []
        self._is_swapping = True
        try:
            outcomes, leases = await self._relay.swap(
                [handling.lease for handling in done], self._wish(room)
            )
        except OmniRelayError as refused:
            self._note([refused] * len(done), done)
            await self._after(refused)
            return
        finally:
            self._is_swapping = False
        self._note(outcomes, done)
        await self._begin(leases)

    def _note(self, outcomes: Sequence[Outcome], done: list[Handling]) -> None:
        for outcome, handling in zip(outcomes, done, strict=True):
            if isinstance(outcome, OmniRelayError):
                handling.lease.refused(outcome)
                log.warning("%r could not be reported: %s", handling.lease, outcome)
                self.lost += 1
            else:
                self.completed += 1

    def _room(self) -> int:
        ahead = self._prefetch if self._typical_s < SHORT_S else 0
        return self._concurrency + ahead - len(self._running) - len(self._ahead)

    async def _some_change(self) -> None:
        """A full worker is not a stuck one: it looks up now and then."""
        try:
            async with asyncio.timeout(self._poll):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _taken(self, room: int) -> list[Lease]:
        try:
            return await self._relay.take(self._wish(room))
        except OmniRelayError as error:
            await self._after(error)
            return []

    def _wish(self, room: int) -> Wish:
        """Checked once for every number of places; a handler that is added changes them all."""
        wish = self._wishes.get(room)
        if wish is None or len(wish.resource_types or ()) != len(self._handlings):
            wish = self._wishes[room] = self._relay.wish(
                room,
                self._poll,
                list(self._handlings),
                self._lease_duration,
                peer_id=self._peer_id,
            )
        return wish

    async def _after(self, error: OmniRelayError) -> None:
        """Raises it if to go on makes no sense."""
        if isinstance(error, Closed) or not isinstance(error, (Unavailable, ResourceExhausted)):
            raise error  # a relay that is closed will not open again
        log.warning("no lease: %s", error)
        await asyncio.sleep(0.2)

    async def _begin(self, leases: list[Lease]) -> None:
        """What comes is begun here and now: the sooner it is done, the likelier its report meets
        the commit of somebody else's call. Handlers that never wait are done when this returns."""
        self._ahead.extend(leases)
        self._start_next()
        if leases:
            await asyncio.sleep(0)

    # -- working ------------------------------------------------------------------------------

    def _start_next(self) -> None:
        """Once it is to stop, what is not begun goes back instead."""
        while self._ahead and len(self._running) < self._concurrency:
            if self._stopping.is_set():
                return
            lease = self._ahead.popleft()
            if lease.is_lost:
                lease.stop_renewing()
                self.lost += 1
                continue
            handling = Handling(lease, self._handlings[lease.resource_type], self._retry)
            task = asyncio.create_task(self._work(handling))
            self._running.add(task)
            task.add_done_callback(self._reporting.discard)

    async def _work(self, handling: Handling) -> None:
        await handling.run()
        # The slot is free before the report is answered, so that both travel together.
        task = asyncio.current_task()
        assert task is not None
        self._running.discard(task)
        self._reporting.add(task)
        self._typical_s += (handling.took_s - self._typical_s) / 8
        self._start_next()
        self._changed.set()
        is_asking = self._is_taking or self._is_swapping or self._stopping.is_set()
        if handling.is_to_complete and not is_asking:
            self._done.append(handling)
        else:
            await self._report(handling)

    async def _report(self, handling: Handling) -> None:
        try:
            how = await handling.report()
        except OmniRelayError as refused:
            log.warning("%r could not be reported: %s", handling.lease, refused)
            how = "lost"
        setattr(self, how, getattr(self, how) + 1)

    async def _report_done(self) -> None:
        done, self._done = self._done, []
        await asyncio.gather(*map(self._report, done))

    # -- ending -------------------------------------------------------------------------------

    async def _finish(self) -> None:
        ahead, self._ahead = list(self._ahead), deque()
        await asyncio.gather(*map(_release, ahead), self._report_done())
        if self._running:
            await self._handlers_end()
        left = set(self._running)
        for task in left:
            task.cancel()  # what did not end in time is handed back, untried
        if left or self._reporting:
            await asyncio.wait(left | self._reporting)

    async def _handlers_end(self) -> None:
        """For as long as a stopping worker may take."""
        try:
            async with asyncio.timeout(self._stop_timeout):
                while self._running:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return


async def _release(lease: Lease) -> None:
    try:
        await lease.release()
    except OmniRelayError as error:
        log.info("%r expires instead of being released: %s", lease, error)
