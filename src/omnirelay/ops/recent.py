"""Who holds what, asked for no more often than it is cheap to tell."""

import threading
from collections.abc import Sequence

import msgspec

from omnirelay.model.ports import Clock
from omnirelay.ops.view import Holder, ShardView

_REST = 20
"""How many times longer than a look took the next one waits. A look goes through every lease, and
many windows may be open at once: all of them together get a twentieth of the time."""


class _Look(msgspec.Struct, frozen=True):
    holders: Sequence[Holder]
    at_ms: int
    took_ms: int


class RecentHolders:
    """From any thread. What is not fresh is moved on by its age, so that times still run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: dict[str, _Look] = {}
        self._looking = threading.Lock()

    def of(self, name: str, shard: ShardView) -> Sequence[Holder]:
        with self._looking:  # who comes meanwhile waits and shares
            now = self._clock.monotonic_ms()
            look = self._looks.get(name)
            if look is None or now - look.at_ms > look.took_ms * _REST:
                holders = shard.holders()
                took = self._clock.monotonic_ms() - now
                look = self._looks[name] = _Look(holders, now + took, took)
                return holders
        age = now - look.at_ms
        return [_moved_on(holder, age) for holder in look.holders] if age > 0 else look.holders


def _moved_on(holder: Holder, age_ms: int) -> Holder:
    return msgspec.structs.replace(
        holder,
        oldest_grant_ms=holder.oldest_grant_ms + age_ms,
        next_expiry_ms=holder.next_expiry_ms - age_ms,
    )
