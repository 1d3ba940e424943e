"""One shard of an object store, read: newest envelopes one by one, older ones from segments."""

import asyncio
from bisect import bisect_right

import msgspec

from omnirelay.journal.backend import Head, SnapshotRef
from omnirelay.journal.format import unseal
from omnirelay.model.errors import Corrupt, OmniRelayError
from omnirelay.stores.objects_bucket import Bucket, get_all
from omnirelay.stores.objects_layout import (
    VERSION,
    Floor,
    Layout,
    Span,
    floor_of,
    numbers,
    spans_of,
)
from omnirelay.stores.objects_segment import Segment, decode, outline
from omnirelay.stores.objects_snapshots import ObjectSnapshots
from omnirelay.stores.versions import refuse_later

PAUSE_MIN_S = 0.02
PAUSE_MAX_S = 1.0
_TRIES = 4
"""Looks at a journal that is being rolled up, pruned or written meanwhile."""


class Look(msgspec.Struct, frozen=True):
    """Beginnings of the envelopes that have an object of their own, above the floor."""

    firsts: list[int]
    floor: Floor


class ObjectReader:
    blocks = False

    def __init__(self, bucket: Bucket, shard: str) -> None:
        self.shard = shard
        self._bucket = bucket
        self._layout = Layout(shard)
        self._snapshots = ObjectSnapshots(bucket, shard)
        self._floor = Floor()
        self._head: tuple[int, Head] = (0, Head())
        """Where the last envelope that was looked at begins. What it says never changes."""
        self._ended = 0
        """The last read ended with the end of an envelope, here."""
        self._segment: tuple[Span, Segment] | None = None
        self._pause_s = PAUSE_MIN_S
        self._is_known = False
        """Its layout is of a version that this program knows."""

    async def _check_version(self) -> int:
        """The latest one that is marked; 0 if none is."""
        keys = await self._bucket.keys(self._layout.versions)
        marked = max((one for key in keys for one in numbers(key)), default=0)
        refuse_later(self._bucket.shown, marked, VERSION)
        self._is_known = True
        return marked

    async def _look(self, after: int = 0) -> Look:
        """Names first, floor afterwards: see the layout for why."""
        if not self._is_known:
            await self._check_version()
        layout = self._layout
        start = layout.envelope(max(after, self._floor.height))
        keys = await self._bucket.keys(layout.envelopes, start)
        self._floor = floor_of(await self._bucket.keys(layout.floors)) if keys else self._floor
        firsts = [one for key in keys for one in numbers(key) if one > self._floor.height]
        return Look(firsts, self._floor)

    async def head(self) -> Head:
        first = 0
        for _ in range(_TRIES):
            look = await self._look(max(0, self._head[0] - 1))
            if not look.firsts:
                return self._head[1]
            first = look.firsts[-1]
            if first == self._head[0]:
                return self._head[1]
            body = await self._bucket.get(self._layout.envelope(first))
            if body is not None:
                found = unseal(body, shard=self.shard, at=first)
                head = Head(found.last, found.epoch, found.checksum, found.time)
                self._head = (first, head)
                return head
        raise Corrupt(self.shard, first, "it is listed but not there")

    async def first(self) -> int:
        self._floor = floor_of(await self._bucket.keys(self._layout.floors))
        return self._floor.pruned + 1

    async def read(self, after: int, limit: int) -> list[bytes]:
        """What is missing is looked for again: a folder that is listed while it grows may show the
        newer of two objects and not the older."""
        damage = Corrupt(self.shard, after + 1, "it is gone, or something under way hides it")
        for _ in range(_TRIES):
            try:
                found = await self._read(after, limit)
            except Corrupt as error:
                damage = error
                continue
            if found is not None:
                return found
        raise damage

    async def _read(self, after: int, limit: int) -> list[bytes] | None:
        """None: what was listed is elsewhere by now."""
        is_end = after == self._ended
        look = await self._look(after if is_end else 0)
        if after < look.floor.pruned:
            raise Corrupt(self.shard, after + 1, f"it was pruned, up to {look.floor.pruned}")
        if after < look.floor.rolled:
            return await self._from_segment(after, limit)
        at = bisect_right(look.firsts, after + 1) - 1
        if at < 0:
            if look.firsts:
                why = f"it is gone; the journal goes on at {look.firsts[0]}"
                raise Corrupt(self.shard, after + 1, why)
            return []
        firsts = look.firsts[at : at + limit + 1]
        bodies = await get_all(self._bucket, [self._layout.envelope(one) for one in firsts])
        if any(body is None for body in bodies):
            return None
        return self._cut(after, limit, firsts, [body for body in bodies if body is not None])

    def _cut(self, after: int, limit: int, firsts: list[int], bodies: list[bytes]) -> list[bytes]:
        row = outline(bodies[0])
        if firsts[0] <= after and row is not None and row.last <= after:
            self._ended = row.last
            del firsts[0], bodies[0]
            if firsts and firsts[0] > after + 1:
                why = f"it is gone; the journal goes on at {firsts[0]}"
                raise Corrupt(self.shard, after + 1, why)
        found = _unbroken(firsts, bodies)[:limit]
        if found:
            last = outline(found[-1])
            self._ended = 0 if last is None else last.last
        return found

    async def _from_segment(self, after: int, limit: int) -> list[bytes] | None:
        span, segment = await self._segment_of(after + 1)
        if span is None or segment is None:
            return None
        at = next((n for n, row in enumerate(segment.rows) if row.last > after), None)
        if at is None or segment.rows[at].first > after + 1:
            raise Corrupt(self.shard, after + 1, f"it is missing in {span.key}")
        found = segment.bodies[at : at + limit]
        self._ended = segment.rows[at + len(found) - 1].last
        return found

    async def _segment_of(self, sequence: int) -> tuple[Span | None, Segment | None]:
        """Two that overlap hold the same: either will do."""
        known = self._segment
        if known is not None and known[0].first <= sequence <= known[0].last:
            return known
        spans = await self._spans()
        span = next((one for one in spans if one.first <= sequence <= one.last), None)
        if span is None:
            return None, None
        data = await self._bucket.get(span.key)
        if data is None:
            return span, None
        self._segment = (span, decode(data, self.shard, span.first))
        return self._segment

    async def _spans(self) -> list[Span]:
        return spans_of(await self._bucket.keys(self._layout.segments))

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        """Looks more and more rarely while nothing comes: a cloud takes money for each look."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            if await self._is_longer(after):
                self._pause_s = PAUSE_MIN_S
                return
            left = until - loop.time()
            await asyncio.sleep(max(0.0, min(left, self._pause_s)))
            self._pause_s = min(1.5 * self._pause_s, PAUSE_MAX_S)
            if loop.time() >= until:
                return

    async def _is_longer(self, after: int) -> bool:
        try:
            return (await self.head()).last > after
        except OmniRelayError:
            return False  # whoever reads afterwards learns of it

    async def snapshot(self) -> SnapshotRef | None:
        return await self._snapshots.latest()

    async def read_part(self, sequence: int, part: int) -> bytes:
        return await self._snapshots.read_part(sequence, part)

    async def close(self) -> None:
        self._floor, self._head, self._ended = Floor(), (0, Head()), 0
        self._segment = None
        self._is_known = False


def _unbroken(firsts: list[int], bodies: list[bytes]) -> list[bytes]:
    """Up to where one is missing by the names of the rest."""
    for number, first in enumerate(firsts[1:], start=1):
        row = outline(bodies[number - 1])
        if row is not None and first > row.last + 1:
            return bodies[:number]
    return bodies
