"""Reading one shard that a hub keeps, over a connection of the reader's own."""

import asyncio
from contextlib import aclosing, suppress

import msgspec

from omnirelay.journal import replication as wire
from omnirelay.journal.backend import Head, SnapshotRef
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError
from omnirelay.stores.hub_link import HubLink, HubTarget

READ_S = 30.0
PIECES_S = 60.0
"""How long a body in pieces may take."""
AGAIN_S = 0.2
"""Between two tries to reach a hub that one waits for."""


class HubReader:
    """Used on one loop. After a failure the next call connects again."""

    blocks = False

    def __init__(self, target: HubTarget, shard: str) -> None:
        self.target = target
        self.shard = shard
        self._link = HubLink(target)
        self._ears = Ears(target, shard)

    async def _head(self) -> wire.HeadResponse:
        return await self._link.ask("head", wire.HeadRequest(self.shard), wire.HeadResponse)

    async def head(self) -> Head:
        found = await self._head()
        return Head(found.last, found.epoch, found.checksum, found.time)

    async def first(self) -> int:
        return (await self._head()).first

    async def read(self, after: int, limit: int) -> list[bytes]:
        request = wire.SubscribeRequest(self.shard, after + 1, follow=False, limit=limit)
        told = self._link.hear("subscribe", request, wire.SubscribeResponse, seconds=READ_S)
        found: list[bytes] = []
        cut: list[bytes] = []
        size = 0
        try:
            async with aclosing(told) as messages:
                async for message in messages:
                    size += sum(map(len, message.envelopes))
                    _put_together(message, found, cut)
                    if size >= limits.HUB_READ_BYTES_MAX and not cut:
                        break
        except OmniRelayError:
            if not found:
                raise
            # Whoever reads on behind what came is told.
        return found

    async def _describe(self) -> wire.DescribeResponse:
        request = wire.DescribeRequest(self.shard)
        return await self._link.ask("describe", request, wire.DescribeResponse)

    async def snapshot(self) -> SnapshotRef | None:
        found = (await self._describe()).snapshot
        return None if found is None else SnapshotRef(**msgspec.structs.asdict(found))

    async def read_part(self, sequence: int, part: int) -> bytes:
        request = wire.ReadPartRequest(self.shard, sequence, part)
        told = self._link.hear("readPart", request, wire.ReadPartResponse, seconds=PIECES_S)
        async with aclosing(told) as messages:
            return b"".join([message.piece async for message in messages])

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        await self._ears.wait(after, timeout_s)

    async def close(self) -> None:
        await self._ears.close()
        await self._link.close()


def _put_together(message: wire.SubscribeResponse, found: list[bytes], cut: list[bytes]) -> None:
    """`cut` has the pieces of the envelope that is not whole yet."""
    for body in message.envelopes:
        if cut:
            body, cut[:] = b"".join((*cut, body)), []
        found.append(body)
    if message.is_cut:
        cut.append(found.pop())


class Ears:
    """A subscription that tells how far the journal is: opened by the first wait, and again after
    every failure, for as long as somebody waits."""

    def __init__(self, target: HubTarget, shard: str) -> None:
        self._link = HubLink(target)
        self._shard = shard
        self._last = 0
        self._told = asyncio.Event()
        self._hearing: asyncio.Task[None] | None = None

    async def wait(self, after: int, timeout_s: float) -> None:
        if self._hearing is None:
            self._hearing = asyncio.create_task(self._hear())
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._last <= after:
                    self._told.clear()
                    await self._told.wait()

    async def _hear(self) -> None:
        request = wire.SubscribeRequest(self._shard, 1, bodies=False)
        while True:
            told = self._link.hear("subscribe", request, wire.SubscribeResponse, seconds=None)
            with suppress(OmniRelayError):
                async with aclosing(told) as messages:
                    async for message in messages:
                        self._last = message.last_sequence
                        self._told.set()
            await asyncio.sleep(AGAIN_S)

    async def close(self) -> None:
        hearing, self._hearing = self._hearing, None
        if hearing is not None:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
        self._last = 0
        await self._link.close()
