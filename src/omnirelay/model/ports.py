"""Doors to the outside that everything else takes by constructor: time, chance, failpoints."""

import os
import random
import time
from collections.abc import Callable
from typing import Protocol

from omnirelay.model.items import dashed


class Clock(Protocol):
    """Two clocks. Only differences of `monotonic_ms` decide anything; `wall_ms` is for people
    and may jump either way."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class SystemClock:
    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


stopwatch: Callable[[], float] = time.perf_counter
"""Seconds since some moment, to a microsecond: for how long something took, never for when."""


def chance() -> float:
    """From 0 up to 1, for jitter and sampling; nothing secret hangs on it."""
    return random.random()  # noqa: S311


def seeded_chance(seed: str) -> Callable[[], float]:
    """From 0 up to 1, and the same numbers again for the same seed, on every machine."""
    return random.Random(seed).random  # noqa: S311


class ShardClock:
    """Milliseconds that never go back, over restarts too: the journal's last time is its floor.

    Starts at the wall clock (or at `floor_ms`, if the wall clock was set back since) and then runs
    with the monotonic clock, so a jump of the wall clock moves no lease.
    """

    def __init__(self, clock: Clock, floor_ms: int = 0) -> None:
        self._clock = clock
        self._offset = max(clock.wall_ms(), floor_ms) - clock.monotonic_ms()

    def now_ms(self) -> int:
        return self._clock.monotonic_ms() + self._offset


class Ids(Protocol):
    def lease_id(self) -> str:
        """A dashed UUID nobody can guess."""

    def lease_ids(self, count: int) -> list[str]:
        """So many for one caller: nobody else can guess any of them."""
        return [self.lease_id() for _ in range(count)]


class RandomIds(Ids):
    """128 random bits an id, drawn from the operating system 64 ids at a time. Those of one caller
    share 80 of them, which nobody else has seen: to put every id together from five pieces would
    cost a batch more than to decide who gets what."""

    def __init__(self) -> None:
        self._pool: list[str] = []

    def lease_id(self) -> str:
        if not self._pool:
            drawn = os.urandom(16 * 64).hex()
            self._pool = [dashed(drawn[i : i + 32]) for i in range(0, len(drawn), 32)]
        return self._pool.pop()

    def lease_ids(self, count: int) -> list[str]:
        shared, own = self.lease_id()[:_SHARED], os.urandom(6 * count).hex()
        return [shared + own[i : i + 12] for i in range(0, len(own), 12)]


_SHARED = 24
"""Characters of a dashed UUID before its last group."""

_failpoint: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """A named place where a test may crash, raise or delay. Costs one comparison otherwise."""
    if _failpoint is not None:
        _failpoint(name)


def set_failpoint(hook: Callable[[str], None] | None) -> None:
    global _failpoint
    _failpoint = hook
