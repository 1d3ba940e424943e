"""Positions `{shard: sequence}`: everything up to and including the sequence was read."""

import asyncio
from collections.abc import Mapping

import msgspec

from omnirelay.journal.checkpoint import Checkpoint, CheckpointStore
from omnirelay.model.ports import Clock, SystemClock

Positions = dict[str, int]


class Span(msgspec.Struct, frozen=True):
    """The events of one shard in (after, through]."""

    shard: str
    after: int
    through: int

    @property
    def rows(self) -> int:
        return max(0, self.through - self.after)


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
    store: CheckpointStore, name: str, positions: Mapping[str, int], clock: Clock | None = None
) -> None:
    """Store how far the named reader is, durably: pruning waits for it from now on. A position
    that would go back is left as it is."""
    at = (clock or SystemClock()).wall_ms()

    async def write() -> None:
        for shard, position in positions.items():
            await store.write(Checkpoint(name, shard, position, {}, at))
        await store.close()

    asyncio.run(write())


def held(store: CheckpointStore, name: str, shards: list[str]) -> Positions:
    """Where the named reader is, of the shards that it has read before."""

    async def read() -> Positions:
        found = {shard: await store.read(name, shard) for shard in shards}
        await store.close()
        return {shard: one.position for shard, one in found.items() if one is not None}

    return asyncio.run(read())


def forget(store: CheckpointStore, name: str, shards: list[str]) -> None:
    """The reader is gone for good: it holds back pruning no more."""

    async def drop() -> None:
        for shard in shards:
            await store.forget(name, shard)
        await store.close()

    asyncio.run(drop())
