"""Bodies in pieces that fit a message, each replaceable by name; on them snapshots, and envelopes
larger than the server's max_payload.

Pieces change nothing by themselves: what names them is written afterwards, in one message.
"""

import asyncio

import msgspec
import nats.errors
import nats.js.errors

from omnirelay.journal.backend import SnapshotRef
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt
from omnirelay.model.ports import failpoint
from omnirelay.stores.nats_link import REQUEST_S, NatsLink, StoredMessage

PIECES = "Omni-Pieces"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
WRONG_LAST = (10071, 10164)
"""The message that is there is another; the second says so of one that is still being stored."""
_ROOM = 16 << 10
"""Of a message's largest size, for subject and headers."""


class NatsParts:
    def __init__(self, link: NatsLink, shard: str) -> None:
        self._link = link
        self._shard = shard
        self._stream = link.address.parts_stream
        self._base = link.address.parts_subject(shard)

    @property
    def piece_bytes(self) -> int:
        return max(1, min(self._link.client.max_payload, limits.NATS_PENDING_BYTES_MAX) - _ROOM)

    async def put(self, name: str, body: bytes) -> int:
        """Durable in as many pieces as returned."""
        size = self.piece_bytes
        pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
        headers = {PIECES: str(len(pieces))}
        with self._link.errors():
            for number, piece in enumerate(pieces):
                subject = f"{self._base}.{name}.{number}"
                await self._link.publish(subject, piece, headers=headers, timeout_s=REQUEST_S)
        return len(pieces)

    async def get(self, name: str) -> bytes | None:
        """None if any piece is missing."""
        first = await self._last(f"{name}.0")
        if first is None:
            return None
        count = int(first.headers.get(PIECES, "1"))
        rest = await asyncio.gather(*(self._last(f"{name}.{n}") for n in range(1, count)))
        if any(piece is None for piece in rest):
            return None
        return b"".join((first.data, *(piece.data for piece in rest if piece is not None)))

    async def _last(self, name: str) -> StoredMessage | None:
        return await self._link.leader_get(self._stream, last_by_subj=f"{self._base}.{name}")

    async def drop(self, name: str) -> None:
        with self._link.errors():
            await self._link.manager.purge_stream(self._stream, subject=f"{self._base}.{name}.>")

    # -- snapshots ----------------------------------------------------------------------------

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        await self.put(f"s.{sequence}.{part}", body)
        failpoint("nats.after_part")

    async def read_part(self, sequence: int, part: int) -> bytes:
        body = await self.get(f"s.{sequence}.{part}")
        if body is None:
            raise Corrupt(self._shard, sequence, f"part {part} of its snapshot is missing")
        return body

    async def snapshot(self) -> SnapshotRef | None:
        return (await self._finished())[1]

    async def _finished(self) -> tuple[int, SnapshotRef | None]:
        """The message's place, for a conditional write, and the reference in it."""
        found = await self._last("ref")
        if found is None:
            return 0, None
        try:
            return found.sequence, msgspec.json.decode(found.data, type=SnapshotRef)
        except msgspec.DecodeError as error:
            raise Corrupt(
                self._shard, 0, f"the snapshot's reference is unreadable: {error}"
            ) from None

    async def finish(self, ref: SnapshotRef) -> None:
        """A later snapshot stays the latest: a writer whose term is over may come last."""
        body = msgspec.json.encode(ref)
        while True:
            place, known = await self._finished()
            if known is not None and known.sequence > ref.sequence:
                return
            with self._link.errors():
                try:
                    headers = {EXPECTED: str(place)}
                    subject = f"{self._base}.ref"
                    await self._link.publish(subject, body, headers=headers, timeout_s=REQUEST_S)
                    break
                except nats.js.errors.BadRequestError as error:
                    if error.err_code not in WRONG_LAST:
                        raise
        failpoint("nats.after_finish")
        await self._drop_before(ref.sequence)

    async def _drop_before(self, sequence: int) -> None:
        """Only what is older: what is newer may be a rival's that is still being written."""
        with self._link.errors():
            info = await self._link.manager.stream_info(self._stream, f"{self._base}.s.>")
        at = self._base.count(".") + 2
        found = {int(subject.split(".")[at]) for subject in info.state.subjects or ()}
        for old in sorted(one for one in found if one < sequence):
            await self.drop(f"s.{old}")
