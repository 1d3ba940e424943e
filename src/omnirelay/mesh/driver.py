"""Turns taken on an event loop's own thread, as long as the disk is quick.

Handing a call to the shard's thread and its answer back costs two changes of thread, more than a
quick sync itself. But a loop that waits for a slow disk serves nobody else, so after a slow turn
the shard's own thread takes over until the disk is quick again (docs/adr/0006).
"""

import asyncio
import threading

from omnirelay.mesh.calls import AnyCall
from omnirelay.mesh.gathering import Gathering
from omnirelay.mesh.shard import Shard
from omnirelay.model.ports import stopwatch

SLOW_S = 0.020
"""Appends that usually take longer than this are for the shard's own thread."""
STUCK_S = 0.250
"""One that takes this long is at once. Shorter hiccups every disk has."""
BACK_AFTER_S = 1.0
BACK_LATEST_S = 60.0
"""A disk that is slow again as soon as it is trusted again is trusted less and less."""


class LoopDriver:
    """Only over a store that blocks. Made on its loop's thread; offered to from any."""

    def __init__(self, shard: Shard, loop: asyncio.AbstractEventLoop) -> None:
        self._shard = shard
        self._loop = loop
        self._thread = threading.get_ident()
        self._is_due = False
        self._gathering = Gathering()
        self._usual_s = 0.0
        self._away_s = BACK_AFTER_S
        self._away_until = 0.0
        self._back_at = 0.0

    def offer(self, call: AnyCall) -> None:
        if self._away_until and not self._may_come_back():
            self._shard.offer(call)
            return
        if threading.get_ident() != self._thread:
            self._shard.offer(call)  # somebody gives back what was leased for a loop that ended
            return
        self._shard.put(call)
        if not self._is_due:
            # All that comes in during this turn of the loop goes into one turn of the shard.
            self._is_due = True
            self._loop.call_soon(self._drive_or_hold)

    def _may_come_back(self) -> bool:
        """When time is up and the last commit, made on the other thread, was quick."""
        now = stopwatch()
        if now < self._away_until or self._shard.tally.append_s > SLOW_S:
            return False
        self._away_until, self._back_at = 0.0, now
        return True

    def _drive_or_hold(self) -> None:
        now, waiting = stopwatch(), self._shard.waiting
        if self._gathering.is_wanted(waiting, now):
            # For as long as one commit takes: that much is saved if somebody comes.
            self._hold(waiting, now + self._usual_s)
        else:
            self._drive()

    def _hold(self, waiting: int, until: float) -> None:
        """Looks at every turn of the loop: its timers are too coarse, and this is rare."""
        if self._shard.waiting == waiting and stopwatch() < until:
            self._loop.call_soon(self._hold, waiting, until)
        else:
            self._drive()

    def _drive(self) -> None:
        # What is left waits for the next turn of the loop: until then answers go out and are read,
        # and a node and its callers work at the same time.
        self._is_due = self._shard.drive()
        if self._is_due:
            self._loop.call_soon(self._drive)
        append_s = self._shard.tally.append_s
        self._usual_s += (append_s - self._usual_s) / 8
        if self._usual_s > SLOW_S or append_s > STUCK_S:
            self._go_away(stopwatch())

    def _go_away(self, now: float) -> None:
        self._usual_s = 0.0
        is_again = self._back_at and now - self._back_at < self._away_s
        self._away_s = min(2 * self._away_s, BACK_LATEST_S) if is_again else BACK_AFTER_S
        self._away_until = now + self._away_s
