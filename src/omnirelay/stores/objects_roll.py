"""Rolling up and pruning: the object first that makes others needless, then the names of those that
stay for good (objects_layout.py), then the floor, then the deletion. Cut off between any two,
nothing is lost; the next run sweeps up."""

from collections.abc import AsyncIterator
from itertools import takewhile

from omnirelay.journal.format import Chain
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt
from omnirelay.model.ports import failpoint
from omnirelay.stores.objects_bucket import Bucket, get_all
from omnirelay.stores.objects_layout import (
    Floor,
    Layout,
    Span,
    beginnings_of,
    floor_of,
    numbers,
    spans_of,
)
from omnirelay.stores.objects_segment import Outline, Row, decode, encode, outline


class _Shard:
    def __init__(self, bucket: Bucket, shard: str) -> None:
        self.bucket = bucket
        self.shard = shard
        self.layout = Layout(shard)
        self.firsts: list[int] = []
        """Of every object that is an envelope of its own, those under the floor too."""
        self.floor = Floor()
        self.floor_keys: list[str] = []
        self.epochs: dict[int, int] = {}
        """Of the envelopes that were read, by their beginning."""
        self.beginnings: dict[int, int] = {}
        """Of epochs, and which: all under the floor, since they are read after it."""

    async def look(self) -> None:
        keys = await self.bucket.keys(self.layout.envelopes)
        self.firsts = [one for key in keys for one in numbers(key)]
        self.floor_keys = await self.bucket.keys(self.layout.floors)
        self.floor = floor_of(self.floor_keys)
        self.beginnings = beginnings_of(await self.bucket.keys(self.layout.epochs))

    @property
    def above(self) -> list[int]:
        return [first for first in self.firsts if first > self.floor.height]

    async def bodies(self, firsts: list[int]) -> list[bytes]:
        """Up to the first that is gone meanwhile."""
        found = await get_all(self.bucket, [self.layout.envelope(first) for first in firsts])
        return [
            body for body in takewhile(lambda body: body is not None, found) if body is not None
        ]

    async def spans(self) -> list[Span]:
        return spans_of(await self.bucket.keys(self.layout.segments))

    async def raise_floor(self, floor: Floor) -> None:
        """Kept as names and not as content, so that of two writers the higher floor counts."""
        await self._name_beginnings(floor.height)
        failpoint("objects.after_beginnings")
        await self.bucket.create(self.layout.floor(floor), b"")
        failpoint("objects.after_floor")
        self.floor = Floor(
            max(self.floor.rolled, floor.rolled), max(self.floor.pruned, floor.pruned)
        )
        under = [first for first in self.firsts if first <= self.floor.height]
        needless = [first for first in under if first not in self.beginnings]
        await self.bucket.delete([self.layout.envelope(first) for first in needless])
        failpoint("objects.after_sweep")
        gone = [span.key for span in await self.spans() if span.last <= self.floor.pruned]
        await self.bucket.delete(gone)
        new = self.layout.floor(floor)
        await self.bucket.delete([key for key in self.floor_keys if _is_under(key, new)])

    async def _name_beginnings(self, height: int) -> None:
        """Of envelopes that were read; others were named when the floor passed them."""
        firsts = sorted(first for first in self.epochs if first <= height)
        start = firsts[0] if firsts else 0
        newest = max((epoch for at, epoch in self.beginnings.items() if at < start), default=0)
        for first in firsts:
            epoch = self.epochs[first]
            if epoch > newest:
                await self.bucket.create(self.layout.beginning(first, epoch), b"")
                self.beginnings[first] = newest = epoch


def _is_under(key: str, other: str) -> bool:
    """Neither of its two numbers is needed once the other stands."""
    return key != other and all(
        one <= two for one, two in zip(numbers(key), numbers(other), strict=True)
    )


async def roll(bucket: Bucket, shard: str, *, count: int) -> int:
    """The oldest `count` envelopes become one segment, if at least as many stay. Returns how many.

    Raises Corrupt, and deletes nothing, unless they follow one another.
    """
    own = _Shard(bucket, shard)
    await own.look()
    firsts = own.above[: min(count, limits.SEGMENT_ENVELOPES_MAX)]
    if len(own.above) < len(firsts) + count or not firsts:
        return 0
    bodies = _that_fit(await own.bodies(firsts))
    if not bodies:
        return 0
    envelopes = list(Chain(shard, own.floor.height, None).accept_all(bodies))
    own.epochs = {envelope.first: envelope.epoch for envelope in envelopes}
    rows = [
        Row(envelope.first, envelope.last, envelope.time, len(body))
        for body, envelope in zip(bodies, envelopes, strict=True)
    ]
    await bucket.create(
        own.layout.segment(rows[0].first, rows[-1].last), encode(shard, rows, bodies)
    )
    failpoint("objects.after_segment")
    await own.raise_floor(Floor(rows[-1].last, own.floor.pruned))
    return len(rows)


def _that_fit(bodies: list[bytes]) -> list[bytes]:
    """Never none: the one that reaches the limit may pass it."""
    size = 0
    for number, body in enumerate(bodies):
        size += len(body)
        if size >= limits.SEGMENT_BYTES_MAX:
            return bodies[: number + 1]
    return bodies


async def prune(bucket: Bucket, shard: str, through: int, *, before_ms: int, limit: int) -> int:
    own = _Shard(bucket, shard)
    await own.look()

    def is_old(row: Row | Outline) -> bool:
        return row.last <= through and row.time <= before_ms

    rows: list[Row | Outline] = []
    async for row in _oldest(own, limit + 1):
        rows.append(row)
        if len(rows) > limit or not is_old(row):
            break
    # One row more than will go, so that the last envelope stays.
    gone = list(takewhile(is_old, rows[:-1]))
    if not gone:
        return 0
    await own.raise_floor(Floor(own.floor.rolled, gone[-1].last))
    return len(gone)


async def _oldest(own: _Shard, most: int) -> AsyncIterator[Row | Outline]:
    """From the first that was not pruned on; in segments, then alone."""
    at = own.floor.pruned
    while at < own.floor.rolled:
        span = next((one for one in await own.spans() if one.first <= at + 1 <= one.last), None)
        data = None if span is None else await own.bucket.get(span.key)
        if span is None or data is None:
            raise Corrupt(own.shard, at + 1, "no segment holds it")
        for row in decode(data, own.shard, span.first).rows:
            if row.last > at:
                yield row
        at = span.last
    for start in range(0, min(most, len(own.above)), limits.OBJECT_FETCHES_MAX):
        for body in await own.bodies(own.above[start : start + limits.OBJECT_FETCHES_MAX]):
            alone = outline(body)
            if alone is None:
                return  # damaged: whoever reads it will say so; it is not for pruning to hide
            own.epochs[alone.first] = alone.epoch
            yield alone
