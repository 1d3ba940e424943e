"""Turns taken on an event loop's own thread, as long as the disk is quick.

Handing a call to the shard's thread and its answer back costs two changes of thread, more than a
quick sync itself. But a loop that waits for a slow disk serves nobody else, so after a slow turn
the shard's own thread takes over for a while (docs/adr/0006).
"""

import asyncio

from omnirelay.mesh.calls import AnyCall
from omnirelay.mesh.shard import Shard
from omnirelay.model.ports import stopwatch

SLOW_S = 0.010
"""A turn that takes longer than this is for the shard's own thread."""
BACK_AFTER_S = 1.0


class LoopDriver:
    """Only over a store that blocks. Offered to from its loop's thread alone."""

    def __init__(self, shard: Shard, loop: asyncio.AbstractEventLoop) -> None:
        self._shard = shard
        self._loop = loop
        self._is_due = False
        self._away_until = 0.0

    def offer(self, call: AnyCall) -> None:
        if self._away_until:
            if stopwatch() < self._away_until:
                self._shard.offer(call)
                return
            self._away_until = 0.0
        self._shard.put(call)
        if not self._is_due:
            # All that comes in during this turn of the loop goes into one turn of the shard.
            self._is_due = True
            self._loop.call_soon(self._drive)

    def _drive(self) -> None:
        self._is_due = False
        began = stopwatch()
        try:
            self._shard.drive()
        finally:
            ended = stopwatch()
            if ended - began > SLOW_S:
                self._away_until = ended + BACK_AFTER_S
