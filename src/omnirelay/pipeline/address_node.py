"""The events of a live node, as its events endpoint tells them.

Less than a journal: an event does not carry the envelope it was stored in, the rules of an epoch,
nor how long a lease was asked for, so those columns are null. Where the file can be read, read it.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from omnirelay.journal.events import Event
from omnirelay.mesh import wire
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError, Unavailable
from omnirelay.model.items import to_ms
from omnirelay.pipeline.address import NAMESPACE, Damage, Extent
from omnirelay.pipeline.decode import Part
from omnirelay.pipeline.decode_events import batch_of_events
from omnirelay.pipeline.node_positions import NodePositions
from omnirelay.pipeline.offsets import Places
from omnirelay.sdk.asking import Asking, Route
from omnirelay.sdk.connect import route_to
from omnirelay.sdk.reading import read_events

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_ROWS = 16_384


class NodeAddress:
    """A shard is a namespace of the node. Used from one thread, by one caller at a time."""

    def __init__(
        self, url: str, *, token: str | None = None, namespaces: tuple[str, ...] = ()
    ) -> None:
        self.url = url
        self._token = token
        self._namespaces = namespaces or (NAMESPACE,)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._askings: dict[str, Asking] = {}

    def _route(self, shard: str) -> Route:
        return route_to(self.url, shard, token=self._token)

    def _wait(self, work: Coroutine[None, None, T]) -> T:
        """Every call is made on one loop, which runs only while somebody waits here."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work)

    async def _asking(self, shard: str) -> Asking:
        if shard not in self._askings:
            self._askings[shard] = self._route(shard).asking(limits.NODE_RETRY_S)
        return self._askings[shard]

    def shards(self) -> list[str]:
        return list(self._namespaces)

    def extent(self, shard: str) -> Extent:
        return self._wait(self._extent(shard))

    async def _extent(self, shard: str) -> Extent:
        asking = await self._asking(shard)
        stats = await asking.ask("stats", wire.StatsRequest(), wire.StatsResponse)
        assert stats is not None, "stats always has an answer"
        last = stats.last_sequence
        # A node does not say where its journal begins; it refuses what it has pruned.
        low, high = 1, 1 if await _is_kept(asking, 1) else last
        while low < high:
            middle = (low + high) // 2
            if await _is_kept(asking, middle):
                high = middle
            else:
                low = middle + 1
        return Extent(low, last)

    def sequence_before(self, shard: str, time_ms: int) -> int:
        return self._wait(self._before(shard, time_ms))

    async def _before(self, shard: str, time_ms: int) -> int:
        kept, asking = await self._extent(shard), await self._asking(shard)
        low, high = kept.first, kept.last + 1
        while low < high:
            middle = (low + high) // 2
            event = await _first(asking, middle - 1)
            if event is None:
                raise _ended(self.url, shard, middle - 1, kept.last)
            if to_ms(event.timestamp) < time_ms:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def read(self, shard: str, part: Part) -> "Iterator[pa.RecordBatch]":
        """Raises Unavailable if the node ends before the part does: rows must not be missing."""
        kinds, last = part.event_types, part.after
        events = read_events(self._wait(self._asking(shard)), part.after, follow=False)
        try:
            while last < part.through:
                held = self._wait(_page(events, min(_ROWS, part.through - last)))
                if not held:
                    raise _ended(self.url, shard, last, part.through)
                last = held[-1].sequence_number
                wanted = held if kinds is None else [e for e in held if e.event_type in kinds]
                if wanted:
                    yield batch_of_events(wanted, part.names)
        finally:
            self._wait(events.aclose())

    def damaged(self, shard: str, after: int, through: int) -> Iterator[Damage]:
        """A node checks what it reads out, and refuses to go on behind damage."""
        return iter(())

    def link(self, shard: str, sequence: int) -> str | None:
        return None

    def positions(self) -> Places:
        return NodePositions(self._route)

    def close(self) -> None:
        for asking in self._askings.values():
            self._wait(asking.close())
        self._askings.clear()
        if self._loop is not None:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._loop = None


def _ended(url: str, shard: str, last: int, through: int) -> Unavailable:
    return Unavailable(f"{url}: {shard} ended at {last}, not {through}")


async def _page(events: AsyncGenerator[Event], count: int) -> list[Event]:
    page: list[Event] = []
    async for event in events:
        page.append(event)
        if len(page) >= count:
            break
    return page


async def _first(asking: Asking, after: int) -> Event | None:
    async with aclosing(read_events(asking, after, follow=False)) as events:
        return await anext(events, None)


async def _is_kept(asking: Asking, sequence: int) -> bool:
    try:
        await _first(asking, sequence - 1)
    except OmniRelayError as error:
        if error.status != "DATA_LOSS":
            raise
        return False
    return True
