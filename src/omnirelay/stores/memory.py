"""`memory:` — a journal that dies with its process. Several handles may share one medium."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import takewhile

from omnirelay.journal.backend import Durability, Head, JournalSource, SnapshotRef, one_by_one
from omnirelay.journal.bell import Bell
from omnirelay.journal.format import Sealed
from omnirelay.model.errors import Corrupt, Fenced, SequenceTaken


class MemoryMedium:
    def __init__(self) -> None:
        self.envelopes: list[Sealed] = []
        self.lasts: list[int] = []
        self.parts: dict[tuple[int, int], bytes] = {}
        self.snapshot: SnapshotRef | None = None
        self.pruned_through = 0
        self.bell = Bell()


class MemoryJournal:
    name = "memory"
    blocks = False

    def __init__(self, shard: str, medium: MemoryMedium | None = None) -> None:
        self.shard = shard
        self.medium = medium or MemoryMedium()

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def durability(self) -> Durability:
        return Durability(False, False, False, "kept in memory only")

    async def head(self) -> Head:
        if not self.medium.envelopes:
            return Head()
        last = self.medium.envelopes[-1]
        return Head(last.last, last.epoch, last.checksum, last.time)

    async def first(self) -> int:
        return self.medium.pruned_through + 1

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        head = await self.head()
        if head.epoch > sealed.epoch:
            raise Fenced(self.shard, sealed.epoch, head.epoch)
        if head.last != expected:
            raise SequenceTaken(self.shard, expected, head.last)
        assert sealed.first == expected + 1
        self.medium.envelopes.append(sealed)
        self.medium.lasts.append(sealed.last)
        self.medium.bell.ring(sealed.last)

    async def begin(self, sealed: Sealed) -> None:
        last = (await self.head()).last
        if last:
            raise SequenceTaken(self.shard, 0, last)
        self.medium.envelopes.append(sealed)
        self.medium.lasts.append(sealed.last)
        self.medium.pruned_through = sealed.first - 1
        self.medium.bell.ring(sealed.last)

    async def extend(self, envelopes: Sequence[Sealed], *, expected: int) -> None:
        await one_by_one(self, envelopes, expected=expected)

    async def read(self, after: int, limit: int) -> list[bytes]:
        if after < self.medium.pruned_through:
            raise Corrupt(self.shard, after + 1, "it was pruned")
        at = bisect_right(self.medium.lasts, after)
        return [sealed.body for sealed in self.medium.envelopes[at : at + limit]]

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        await self.medium.bell.wait(after, timeout_s)

    def reader(self) -> JournalSource:
        return MemoryJournal(self.shard, self.medium)

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        self.medium.parts[(sequence, part)] = body

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        newest = self.medium.snapshot
        if newest is not None and newest.sequence > ref.sequence:
            return
        self.medium.snapshot = ref
        for key in [key for key in self.medium.parts if key[0] < ref.sequence]:
            del self.medium.parts[key]

    async def snapshot(self) -> SnapshotRef | None:
        return self.medium.snapshot

    async def read_part(self, sequence: int, part: int) -> bytes:
        body = self.medium.parts.get((sequence, part))
        if body is None:
            raise Corrupt(self.shard, sequence, f"part {part} of its snapshot is missing")
        return body

    async def prune(self, through: int, *, before_ms: int, limit: int) -> int:
        most = min(bisect_right(self.medium.lasts, through), limit, len(self.medium.lasts) - 1)
        old = (sealed.time <= before_ms for sealed in self.medium.envelopes[: max(0, most)])
        count = sum(takewhile(bool, old))
        if count <= 0:
            return 0
        self.medium.pruned_through = self.medium.lasts[count - 1]
        del self.medium.envelopes[:count]
        del self.medium.lasts[:count]
        return count
