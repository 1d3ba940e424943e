"""Positions `{shard: sequence}`: everything up to and including the sequence was read."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Protocol, TypeVar

import msgspec

from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.model.ports import Clock, SystemClock

T = TypeVar("T")
Positions = dict[str, int]


class Span(msgspec.Struct, frozen=True):
    """The events of one shard in (after, through]."""

    shard: str
    after: int
    through: int

    @property
    def rows(self) -> int:
        return max(0, self.through - self.after)


class Places(Protocol):
    """What of a journal's `CheckpointStore` its readers need, and who keeps them apart from the
    journal has to offer."""

    async def read(self, name: str, shard: str) -> Checkpoint | None: ...

    async def write(self, checkpoint: Checkpoint) -> None: ...

    async def forget(self, name: str, shard: str) -> None: ...

    async def close(self) -> None: ...


def cut(span: Span, rows: int) -> list[Span]:
    """Parts of at most so many rows. The same span is always cut at the same places."""
    starts = range(span.after, span.through, rows)
    return [Span(span.shard, start, min(start + rows, span.through)) for start in starts]


def admitted(start: Mapping[str, int], head: Mapping[str, int], rows: int | None) -> Positions:
    """How far one batch of at most `rows` goes. Shards that lag less leave their share to those
    that lag more, so that none waits for another and the farthest behind catches up."""
    lags = {shard: max(0, last - start.get(shard, 0)) for shard, last in head.items()}
    left = sum(lags.values()) if rows is None else rows
    end: Positions = dict(start)
    waiting = sorted(lags, key=lambda shard: (lags[shard], shard))
    for index, shard in enumerate(waiting):
        share = -(-left // (len(waiting) - index))
        taken = min(lags[shard], share)
        end[shard] = start.get(shard, 0) + taken
        left -= taken
    return end


def hold(
    store: Places, name: str, positions: Mapping[str, int], clock: Clock | None = None
) -> None:
    """Store how far the named reader is, durably: pruning waits for it from now on. A position
    that would go back is left as it is."""
    at = (clock or SystemClock()).wall_ms()

    async def write() -> None:
        for shard, position in positions.items():
            await store.write(Checkpoint(name, shard, position, {}, at))

    _run(store, write())


def held(store: Places, name: str, shards: list[str]) -> Positions:
    """Where the named reader is, of the shards that it has read before."""

    async def read() -> Positions:
        found = {shard: await store.read(name, shard) for shard in shards}
        return {shard: one.position for shard, one in found.items() if one is not None}

    return _run(store, read())


def forget(store: Places, name: str, shards: list[str]) -> None:
    """The reader is gone for good: it holds back pruning no more."""

    async def drop() -> None:
        for shard in shards:
            await store.forget(name, shard)

    _run(store, drop())


def _run(store: Places, work: Coroutine[None, None, T]) -> T:
    """On a loop of its own, which the store is left on too, whatever happened."""

    async def close_after() -> T:
        try:
            return await work
        finally:
            await store.close()

    return asyncio.run(close_after())
