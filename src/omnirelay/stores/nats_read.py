"""One shard of a stream, read. A message's headers say which records it holds, so that a place is
found by halving the stream; after that, each read goes on where the last one ended."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from omnirelay.journal.backend import Head, SnapshotRef
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt, OmniRelayError
from omnirelay.stores.nats_address import NatsAddress
from omnirelay.stores.nats_link import NatsLink, StoredMessage
from omnirelay.stores.nats_parts import PIECES, NatsParts
from omnirelay.stores.nats_streams import check_version

if TYPE_CHECKING:
    from nats.aio.msg import Msg

FIRST, LAST, EPOCH, TIME, CHECKSUM = (
    "Omni-First",
    "Omni-Last",
    "Omni-Epoch",
    "Omni-Time",
    "Omni-Checksum",
)

UNTOLD_S = 0.25
"""How long to wait before another look where nobody tells."""


class Marks(msgspec.Struct, frozen=True, gc=False):
    """What a message says of its envelope, and where it stands in the stream."""

    place: int
    first: int
    last: int
    epoch: int
    time: int
    checksum: str
    pieces: int
    """0: the envelope is the message's own data."""


class NatsReader:
    blocks = False

    def __init__(self, address: NatsAddress, shard: str) -> None:
        self.address = address
        self.shard = shard
        self._link = NatsLink(address)
        self._parts = NatsParts(self._link, shard)
        self._subject = address.journal_subject(shard)
        self._spot: tuple[int, int] | None = None
        """Where the last read ended: the record's sequence, and the place after its message."""
        self._heard = 0
        """The highest sequence the server told us of."""
        self._stored: asyncio.Event | None = None
        self._is_told = True
        """The stream tells of what it stored, as one that we made does."""

    async def _opened(self) -> NatsLink:
        if not self._link.is_open:
            self._stored = None
            await self._link.open()
            try:
                await check_version(self._link)
            except BaseException:
                await self._link.close()  # so that the next call asks again
                raise
        return self._link

    async def head(self) -> Head:
        tip = await self._tip()
        return Head() if tip is None else Head(tip.last, tip.epoch, tip.checksum, tip.time)

    async def _tip(self) -> Marks | None:
        link = await self._opened()
        found = await link.leader_get(self.address.stream, last_by_subj=self._subject)
        return None if found is None else self._marks(found)

    async def first(self) -> int:
        oldest = await self._leader_next(1)
        return 1 if oldest is None else self._marks(oldest).first

    async def read(self, after: int, limit: int) -> list[bytes]:
        found = await self._from(await self._place(after), limit)
        if found and self._marks(found[0]).first > after + 1 and self._spot is not None:
            # What was remembered is of a stream that was since replaced.
            self._spot = None
            found = await self._from(await self._place(after), limit)
        if not found:
            return []
        first, last = self._marks(found[0]), self._marks(found[-1])
        if first.first > after + 1:
            raise Corrupt(
                self.shard, after + 1, f"it is gone; the journal goes on at {first.first}"
            )
        self._spot = (last.last, last.place + 1)
        return [await self._body(message) for message in found]

    async def _body(self, message: StoredMessage) -> bytes:
        marks = self._marks(message)
        if not marks.pieces:
            return message.data
        body = await self._parts.get(pieces_of(marks.first, marks.checksum))
        if body is None:
            raise Corrupt(self.shard, marks.first, f"not all its {marks.pieces} pieces are there")
        return body

    async def _place(self, after: int) -> int:
        """The lowest place from which the next message of the shard ends after `after`."""
        if self._spot is not None and self._spot[0] == after:
            return self._spot[1]
        if after == 0:
            return 1
        tip = await self._tip()
        if tip is None or tip.last <= after:
            return 1 if tip is None else tip.place + 1
        low, high = 1, tip.place
        while low < high:
            middle = (low + high) // 2
            found = await self._next(middle)
            if found is None or self._marks(found).last > after:
                high = middle
            else:
                low = found.sequence + 1
        return low

    async def _next(self, place: int) -> StoredMessage | None:
        link = await self._opened()
        found = await link.batch(
            self.address.stream, seq=place, batch=1, next_by_subj=self._subject
        )
        return found[0] if found else await self._leader_next(place)

    async def _leader_next(self, place: int) -> StoredMessage | None:
        link = await self._opened()
        return await link.leader_get(self.address.stream, seq=place, next_by_subj=self._subject)

    async def _from(self, place: int, limit: int) -> list[StoredMessage]:
        """Messages from `place` on; less than `limit` only at the end or for their size."""
        link = await self._opened()
        found = await link.batch(
            self.address.stream,
            seq=place,
            batch=limit,
            max_bytes=limits.NATS_READ_BYTES_MAX,
            next_by_subj=self._subject,
        )
        size = sum(len(message.data) for message in found)
        while len(found) < limit and size < limits.NATS_READ_BYTES_MAX:
            # The replica that answered may lag: only the leader knows that this is the end.
            following = await self._leader_next(found[-1].sequence + 1 if found else place)
            if following is None:
                break
            found.append(following)
            size += len(following.data)
        return found

    def _marks(self, message: StoredMessage) -> Marks:
        fields = message.headers
        try:
            return Marks(
                message.sequence,
                int(fields[FIRST]),
                int(fields[LAST]),
                int(fields[EPOCH]),
                int(fields[TIME]),
                fields[CHECKSUM],
                int(fields.get(PIECES, "0")),
            )
        except (KeyError, ValueError):
            why = f"message {message.sequence} of stream {self.address.stream} is no envelope"
            raise Corrupt(self.shard, 0, why) from None

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        """The server tells of what it stored; what it stored before we listened, we look for."""
        try:
            stored = await self._listening()
        except OmniRelayError:  # whoever reads afterwards learns of it
            await asyncio.sleep(min(timeout_s, UNTOLD_S))
            return
        if self._heard > after:
            return
        stored.clear()
        try:
            async with asyncio.timeout(timeout_s if self._is_told else min(timeout_s, UNTOLD_S)):
                await stored.wait()
        except TimeoutError:
            return

    async def _listening(self) -> asyncio.Event:
        link = await self._opened()
        if self._stored is not None:
            return self._stored
        stored = asyncio.Event()

        async def note(message: "Msg") -> None:
            last = (message.headers or {}).get(LAST, "")
            if last.isdigit():
                self._heard = max(self._heard, int(last))
            stored.set()

        with link.errors():
            info = await link.manager.stream_info(self.address.stream)
            self._is_told = info.config.republish is not None
            await link.client.subscribe(self.address.stored_subject(self.shard), cb=note)
            await link.client.flush()
        tip = await self._tip()
        self._heard = max(self._heard, 0 if tip is None else tip.last)
        self._stored = stored
        return stored

    async def snapshot(self) -> SnapshotRef | None:
        await self._opened()
        return await self._parts.snapshot()

    async def read_part(self, sequence: int, part: int) -> bytes:
        await self._opened()
        return await self._parts.read_part(sequence, part)

    async def close(self) -> None:
        self._spot, self._stored = None, None
        await self._link.close()


def pieces_of(first: int, checksum: str) -> str:
    """Two rivals for one sequence keep their pieces apart."""
    return f"e.{first}.{checksum}"
