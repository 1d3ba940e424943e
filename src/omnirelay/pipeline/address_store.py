"""The journals on a server or an object store (PostgreSQL, Redis, NATS, files, S3, Google, Azure),
read through the port that their own node reads them by.

That port hands out bodies and not the keys they are stored under, so an envelope that cannot be
read is placed by its neighbours: it begins where the one before ends.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, TypeVar

import msgspec

from omnirelay.journal.backend import JournalReader
from omnirelay.model.errors import Corrupt, InvalidOption
from omnirelay.pipeline.address import NAMESPACE, Damage, Extent, Seen, Stored
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.offsets import Places
from omnirelay.pipeline.quarantine import Inspector, damages, link_in, whole_batches
from omnirelay.stores.address import masked
from omnirelay.stores.registry import open_address

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_PAGE = 256


class _Outline(msgspec.Struct, gc=False):
    first: int
    last: int
    time: int = 0


class StoreAddress:
    """Such a store keeps many journals apart by name and lists none of them: the shards are those
    that were asked for."""

    def __init__(self, url: str, shards: tuple[str, ...] = ()) -> None:
        self.url = url
        self._names = shards or (NAMESPACE,)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: dict[str, JournalReader] = {}

    def _wait(self, work: Coroutine[None, None, T]) -> T:
        """A reader stays on the loop that it was first used on."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work)

    def _reader(self, shard: str) -> JournalReader:
        if shard not in self._readers:
            self._readers[shard] = open_address(self.url, shard).journal.reader()
        return self._readers[shard]

    def shards(self) -> list[str]:
        return list(self._names)

    def extent(self, shard: str) -> Extent:
        reader = self._reader(shard)
        last = self._wait(reader.head()).last
        if not last:
            raise InvalidOption(
                f"shards: {masked(self.url)} has no journal of {shard!r}; name the shards to read"
            )
        return Extent(self._wait(reader.first()), last)

    def sequence_before(self, shard: str, time_ms: int) -> int:
        kept = self.extent(shard)
        low, high = kept.first, kept.last + 1
        while low < high:
            found = next(self._bodies(shard, (low + high) // 2 - 1, high, page=1), None)
            outline = None if found is None else _outline(found)
            if outline is None:
                break
            if outline.time < time_ms:
                low = outline.last + 1
            else:
                high = max(low, outline.first)
        return low - 1

    def read(self, shard: str, part: Part) -> "Iterator[pa.RecordBatch]":
        return whole_batches(self.seen(shard, part.after, part.through), part)

    def damaged(self, shard: str, after: int, through: int) -> Iterator[Damage]:
        end = after

        def watched() -> Iterator[Seen]:
            nonlocal end
            for stored, verdict in self.seen(shard, after, through):
                end = max(end, stored.last)
                yield stored, verdict

        found = damages(watched())
        yield from (one for one in found if after < one.sequence <= through)
        if end < through:
            yield Damage(end + 1, f"sequences {end + 1} to {through} are missing")

    def seen(self, shard: str, after: int, through: int) -> Iterator[Seen]:
        inspector = Inspector(shard, self._before(shard, after))
        for stored in self._stored(shard, after, through):
            yield from inspector.look(stored)

    def _before(self, shard: str, after: int) -> Stored | None:
        """The envelope before the one that holds `after + 1`; None if that one is the oldest."""
        oldest = self._wait(self._reader(shard).first())
        start = next(self._bodies(shard, after, after + 1, page=1), None)
        outline = None if start is None else _outline(start)
        first = after + 1 if outline is None else outline.first
        if first <= oldest:
            return None
        before = next(self._bodies(shard, first - 2, first - 1, page=1), None)
        found = None if before is None else _outline(before)
        if before is None or found is None:
            return Stored(first - 1, first - 1, before or b"")
        return Stored(found.first, found.last, before)

    def _stored(self, shard: str, after: int, through: int) -> Iterator[Stored]:
        """With the places they are found by; one that cannot be read waits for the next to tell
        where it ends."""
        at, unread = after, None
        for body in self._bodies(shard, after, through):
            outline = _outline(body)
            if unread is not None:
                end = at + 1 if outline is None else max(at + 1, outline.first - 1)
                yield Stored(at + 1, end, unread)
                at, unread = end, None
            if outline is None:
                unread = body
            else:
                yield Stored(outline.first, outline.last, body)
                at = outline.last
        if unread is not None:
            yield Stored(at + 1, max(at + 1, through), unread)

    def _bodies(self, shard: str, after: int, through: int, page: int = _PAGE) -> Iterator[bytes]:
        """Every envelope that has a sequence of (after, through]. Where some are missing it goes on
        behind them; who looks at the numbers sees that."""
        reader, unread = self._reader(shard), None
        while after < through:
            try:
                found = self._wait(reader.read(after, page))
            except Corrupt:
                goes_on = self._behind_the_gap(reader, after, through)
                if goes_on is None:
                    return
                after = goes_on
                continue
            for body in found:
                outline = _outline(body)
                if outline is not None and outline.first > through:
                    return
                if outline is not None or body != unread:
                    yield body
                # Where an unreadable one ends is not known: it may come again at its next sequence.
                unread = body if outline is None else None
                after = max(after + 1, after if outline is None else outline.last)
            if not found:
                return

    def _behind_the_gap(self, reader: JournalReader, after: int, through: int) -> int | None:
        """Where reading works again, by halving; None: not before `through`."""

        def works(at: int) -> bool:
            try:
                return bool(self._wait(reader.read(at, 1)))
            except Corrupt:
                return False

        low, high = after + 1, through
        if low >= high or not works(high - 1):
            return None
        while low < high - 1:
            middle = (low + high - 1) // 2
            low, high = (low, middle + 1) if works(middle) else (middle + 1, high)
        return low

    def link(self, shard: str, sequence: int) -> str | None:
        return link_in(self.seen(shard, sequence - 1, sequence), sequence)

    def positions(self) -> Places:
        return open_address(self.url, self._names[0]).checkpoints

    def close(self) -> None:
        for reader in self._readers.values():
            self._wait(reader.close())
        self._readers.clear()
        if self._loop is not None:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._loop = None


def _outline(body: bytes) -> _Outline | None:
    try:
        return msgspec.json.decode(body, type=_Outline)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
