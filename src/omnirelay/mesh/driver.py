"""Turns taken on an event loop's own thread, as long as the disk is quick.

Handing a call to the shard's thread and its answer back costs two changes of thread, more than a
quick sync itself. But a loop that waits for a slow disk serves nobody else, so after a slow turn
the shard's own thread takes over until the disk is quick again (docs/adr/0006).

A large turn is appended on a thread beside the loop, which meanwhile decides the next one, reads
and answers: what the hand-over costs is little beside what such an append takes (docs/adr/0022).
"""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from omnirelay.mesh.calls import AnyCall
from omnirelay.mesh.driven import DrivenShard
from omnirelay.mesh.gathering import Gathering
from omnirelay.mesh.turn import Turn
from omnirelay.model import limits
from omnirelay.model.ports import stopwatch

if TYPE_CHECKING:
    from omnirelay.model.errors import OmniRelayError

SLOW_S = 0.020
"""Appends that usually take longer than this are for the shard's own thread."""
STUCK_S = 0.250
"""One that takes this long is at once. Shorter hiccups every disk has."""
BACK_AFTER_S = 1.0
BACK_LATEST_S = 60.0
"""A disk that is slow again as soon as it is trusted again is trusted less and less."""


class LoopDriver:
    """Only over a store that blocks. Made on its loop's thread; offered to from any."""

    def __init__(self, shard: DrivenShard, loop: asyncio.AbstractEventLoop) -> None:
        self._shard = shard
        self._loop = loop
        self._thread = threading.get_ident()
        self._is_due = False
        self._beside = ThreadPoolExecutor(1, f"omnirelay-{shard.name}-appends")
        self._leaving: Turn | None = None
        """What is being appended beside this loop."""
        self._ahead: Turn | None = None
        """What was decided behind it."""
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
        if self._leaving is None and self._gathering.is_wanted(self._shard.asked, now):
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
        self._is_due = False
        if self._leaving is not None:
            self._look_ahead(self._leaving)
            return
        turn = self._shard.begin()
        if turn is None:
            return
        if len(turn.records) < limits.BESIDE_RECORDS_MIN:
            self._go_on(self._shard.commit(turn))
        else:
            self._send(turn)

    def _go_on(self, has_more: bool) -> None:
        # What is left waits for the next turn of the loop: until then answers go out and are read,
        # and a node and its callers work at the same time.
        if has_more and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._drive)
        append_s = self._shard.tally.append_s
        self._usual_s += (append_s - self._usual_s) / 8
        if self._usual_s > SLOW_S or append_s > STUCK_S:
            self._go_away(stopwatch())

    # -- beside the loop ------------------------------------------------------------------------

    def _look_ahead(self, leaving: Turn) -> None:
        if self._ahead is None:
            self._ahead = self._shard.begin_ahead(leaving)

    def _send(self, turn: Turn) -> None:
        self._leaving = turn
        appending = self._beside.submit(self._shard.append, turn)
        appending.add_done_callback(partial(self._bring, turn))

    def _bring(self, turn: Turn, appended: "Future[OmniRelayError | None]") -> None:
        """On the thread beside."""
        try:
            self._loop.call_soon_threadsafe(self._came, turn, appended)
        except RuntimeError:
            self._came(turn, appended)  # the loop has ended, and nobody else holds the state

    def _came(self, turn: Turn, appended: "Future[OmniRelayError | None]") -> None:
        ahead, self._ahead, self._leaving = self._ahead, None, None
        try:
            failure = appended.result()
            if failure is None and ahead is not None:
                self._send(ahead)  # on its way before the answers of the last one are made
            self._shard.finish(turn, failure, ahead)
        except BaseException as error:
            over = [turn] if ahead is None or ahead is self._leaving else [turn, ahead]
            self._shard.give_up(over, error)
            raise
        finally:
            if self._leaving is None:
                self._go_on(self._shard.leave())
            elif not self._is_due:
                self._look_ahead(self._leaving)

    def _go_away(self, now: float) -> None:
        self._usual_s = 0.0
        is_again = self._back_at and now - self._back_at < self._away_s
        self._away_s = min(2 * self._away_s, BACK_LATEST_S) if is_again else BACK_AFTER_S
        self._away_until = now + self._away_s
