"""When each lease ends. Adding, moving and removing cost O(1); nothing stale is kept.

A wheel of ticks, each a dictionary of what ends within it, and a heap of the ticks in use. A heap
of leases would keep every finished lease until its time came: at 100,000 grants a second and a
lease of 30 s that is three million dead entries.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice

TICK_SHIFT = 6
"""A tick is 64 ms wide; exact times inside a due tick are compared one by one."""


class Deadlines:
    """Invariant: the heap holds exactly the keys of `_ticks`. A tick that became empty stays until
    it comes to the front, so that a tick is never in the heap twice."""

    __slots__ = ("_heap", "_ticks")

    def __init__(self) -> None:
        self._ticks: dict[int, dict[int, int]] = {}
        self._heap: list[int] = []

    def add(self, sequence_id: int, at: int) -> None:
        tick = at >> TICK_SHIFT
        bucket = self._ticks.get(tick)
        if bucket is None:
            bucket = self._ticks[tick] = {}
            heappush(self._heap, tick)
        bucket[sequence_id] = at

    def add_all(self, sequence_ids: Sequence[int], ends: Sequence[int]) -> None:
        """`add` for each, with the time of its own."""
        low, high = min(ends) >> TICK_SHIFT, max(ends) >> TICK_SHIFT
        if low == high:  # as of a batch that was granted at once
            self.add(sequence_ids[0], ends[0])
            self._ticks[low].update(zip(sequence_ids, ends, strict=True))
            return
        for sequence_id, at in zip(sequence_ids, ends, strict=True):
            self.add(sequence_id, at)

    def remove(self, sequence_id: int, at: int) -> None:
        tick = at >> TICK_SHIFT
        bucket = self._ticks[tick]
        del bucket[sequence_id]
        if not bucket and self._heap[0] == tick:
            self._settle()

    def remove_all(self, sequence_ids: Sequence[int], ends: Sequence[int]) -> None:
        """`remove` for each, with the time of its own."""
        ticks = self._ticks
        for sequence_id, at in zip(sequence_ids, ends, strict=True):
            del ticks[at >> TICK_SHIFT][sequence_id]
        self._settle()

    def due(self, now: int, limit: int) -> list[int]:
        """Sequence ids whose time is up, earliest first; where `limit` cuts through a tick, those
        that were added first. Looks at no tick that is not due and, in one that is over, at no
        more than it returns: after a restart a million leases may share a tick."""
        found: list[tuple[int, int]] = []
        last = now >> TICK_SHIFT
        passed: list[int] = []
        while self._heap and self._heap[0] <= last and len(found) < limit:
            tick = heappop(self._heap)
            passed.append(tick)
            bucket = self._ticks[tick].items()
            due = bucket if tick < last else (entry for entry in bucket if entry[1] <= now)
            chosen = islice(due, limit - len(found))
            found.extend((at, sequence_id) for sequence_id, at in chosen)
        for tick in passed:
            heappush(self._heap, tick)
        found.sort()
        return [sequence_id for _, sequence_id in found]

    def earliest(self) -> int | None:
        """No deadline is before this."""
        return self._heap[0] << TICK_SHIFT if self._heap else None

    def next_at(self) -> int | None:
        """A time by which the earliest deadline has passed: the end of its tick. Waking then
        costs at most 64 ms and never finds nothing."""
        if not self._heap:
            return None
        return (self._heap[0] + 1) << TICK_SHIFT

    def _settle(self) -> None:
        heap, ticks = self._heap, self._ticks
        while heap and not ticks[heap[0]]:
            del ticks[heappop(heap)]
