"""Keeps leases alive from a thread of its own, so that a blocked loop does not lose them."""

import threading
from collections.abc import Iterable
from typing import Protocol

from omnirelay.lease.answers import Beat, Beats
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError, ResourceExhausted, Unavailable
from omnirelay.model.items import Token
from omnirelay.model.ports import Clock
from omnirelay.sdk.link import Link
from omnirelay.sdk.lost import Lost


class Beating(Protocol):
    """A lease as the heart sees it."""

    @property
    def token(self) -> Token: ...

    @property
    def lost(self) -> Lost: ...

    @property
    def lease_ms(self) -> int: ...

    @property
    def heartbeat_ms(self) -> int: ...

    renewed_at_ms: int
    """Monotonic time before the call that last renewed it: the lease lasts at least `lease_ms`
    from here, whatever the way back took."""
    renews: bool
    """False: nobody keeps it alive; the heart only says when its time is up."""
    is_over: bool
    beats_in: int
    """The heart's own note: where it keeps this lease."""


TICK_MS = 25


class Heart:
    """Leases by the tick their next heartbeat is due in. One that ends is taken out at once, so
    the heart holds no more than what is really held."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._ticks: dict[int, dict[int, Beating]] = {}
        self._changed = threading.Condition()
        self._sleeps_until: int | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False

    def add(self, leases: Iterable[Beating]) -> None:
        """Keep these alive from now on."""
        with self._changed:
            if self._stopping:
                _give_up(leases)
                return
            for lease in leases:
                pause = lease.heartbeat_ms if lease.renews else lease.lease_ms
                self._put(lease, lease.renewed_at_ms + pause)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="omnirelay-heart", daemon=True
                )
                self._thread.start()

    def _put(self, lease: Beating, at: int) -> None:
        lease.beats_in = tick = at // TICK_MS
        bucket = self._ticks.get(tick)
        if bucket is None:
            bucket = self._ticks[tick] = {}
            if self._sleeps_until is None or tick < self._sleeps_until:
                self._changed.notify()
        bucket[id(lease)] = lease

    def remove(self, lease: Beating) -> None:
        """It is over: let it go. The heart may be beating it at this moment; that does no harm."""
        bucket = self._ticks.get(lease.beats_in)
        if bucket is not None:
            bucket.pop(id(lease), None)

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        for bucket in self._ticks.values():
            _give_up(bucket.values())
        self._ticks.clear()

    def _run(self) -> None:
        while True:
            leases = self._take_due()
            if leases is None:
                return
            for lease in leases:
                if not lease.renews:
                    lease.lost.set("its time is up and nobody renewed it")
            renewing = [lease for lease in leases if lease.renews]
            for start in range(0, len(renewing), limits.BATCH_MAX):
                self._beat(renewing[start : start + limits.BATCH_MAX])

    def _take_due(self) -> list[Beating] | None:
        with self._changed:
            while not self._stopping:
                now = self._clock.monotonic_ms()
                for tick in [tick for tick in self._ticks if tick * TICK_MS <= now]:
                    due = [lease for lease in self._ticks.pop(tick).values() if not lease.is_over]
                    if due:
                        return due
                self._sleeps_until = min(self._ticks, default=None)
                until = self._sleeps_until
                self._changed.wait(None if until is None else (until * TICK_MS - now) / 1000)
                self._sleeps_until = 0  # awake: nobody need notify
            return None

    def _beat(self, leases: list[Beating]) -> None:
        called = self._clock.monotonic_ms()
        patience_s = min(lease.lease_ms for lease in leases) / 3000
        try:
            outcomes = self._link.beat([lease.token for lease in leases], patience_s)
        except OmniRelayError as error:
            outcomes = [error] * len(leases)
        for lease, outcome in zip(leases, outcomes, strict=True):
            self._settle(lease, outcome, called)

    def _settle(self, lease: Beating, outcome: object, called: int) -> None:
        if lease.is_over:
            return  # it ended while the heartbeat was under way: a refusal says nothing new
        if isinstance(outcome, Beats):
            outcome = outcome.outcomes[0]
        if isinstance(outcome, Beat):
            lease.renewed_at_ms = called
            self.add([lease])
        elif isinstance(outcome, Unavailable | ResourceExhausted):
            # Nobody said no. Try again soon, but never believe in a lease whose time is up.
            if self._clock.monotonic_ms() >= lease.renewed_at_ms + lease.lease_ms:
                lease.lost.set(f"not renewed in time: {outcome}")
            else:
                self._again_soon(lease)
        else:
            lease.lost.set(str(outcome))

    def _again_soon(self, lease: Beating) -> None:
        at = self._clock.monotonic_ms() + min(250, lease.heartbeat_ms)
        at = min(at, lease.renewed_at_ms + lease.lease_ms)
        with self._changed:
            self._put(lease, at)


def _give_up(leases: Iterable[Beating]) -> None:
    """From here on nothing would tell the holder that its time is up."""
    for lease in leases:
        if not lease.is_over:
            lease.lost.set("the relay was closed: nothing renews it any more")
