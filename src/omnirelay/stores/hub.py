"""`hub://host:port` — journals that another node keeps, each shard in the store behind it.

An append is one call. What the store decides is what comes back; an answer that does not come
leaves the outcome unknown, and nothing is asked twice.
"""

from collections.abc import AsyncIterator, Sequence

import msgspec

from omnirelay.journal import replication as wire
from omnirelay.journal.backend import Durability, JournalSource, SnapshotRef, one_by_one
from omnirelay.journal.format import Sealed
from omnirelay.model import limits
from omnirelay.model.ports import failpoint
from omnirelay.stores.hub_reading import PIECES_S, HubReader


class HubJournal(HubReader):
    name = "hub"

    async def open(self) -> None:
        await self.close()
        await self._link.ask("open", wire.OpenRequest(self.shard), wire.HeadResponse)

    async def durability(self) -> Durability:
        """What the store behind the hub states; the loss of the hub's node is that store's too."""
        stated = await self._describe()
        return Durability(
            stated.survives_process_kill,
            stated.survives_power_loss,
            stated.survives_node_loss,
            f"{stated.store} behind {self.target.shown}: {stated.condition}",
        )

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        assert sealed.first == expected + 1
        await self._append(sealed, is_first=False)

    async def begin(self, sealed: Sealed) -> None:
        await self._append(sealed, is_first=True)

    async def extend(self, envelopes: Sequence[Sealed], *, expected: int) -> None:
        await one_by_one(self, envelopes, expected=expected)

    async def _append(self, sealed: Sealed, *, is_first: bool) -> None:
        expected = sealed.first - 1
        failpoint("hub.before_append")
        if len(sealed.body) <= limits.HUB_PIECE_BYTES_MAX:
            request = wire.AppendRequest(self.shard, expected, sealed.body, is_first)
            await self._link.ask("append", request, wire.AppendResponse, changes=True)
        else:
            pieces = self._pieces(sealed.body, expected, is_first)
            await self._link.tell("appendPieces", pieces, wire.AppendResponse, seconds=PIECES_S)
        failpoint("hub.after_append")

    async def _pieces(
        self, body: bytes, expected: int, is_first: bool
    ) -> AsyncIterator[wire.AppendRequest]:
        for piece in wire.pieces_of(body):
            yield wire.AppendRequest(self.shard, expected, piece, is_first)

    def reader(self) -> JournalSource:
        return HubReader(self.target, self.shard)

    # -- keeping it bounded ---------------------------------------------------------------------

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        async def pieces() -> AsyncIterator[wire.WritePartRequest]:
            for piece in wire.pieces_of(body):
                yield wire.WritePartRequest(self.shard, sequence, part, piece)

        await self._link.tell("writePart", pieces(), wire.Done, seconds=PIECES_S)
        failpoint("hub.after_part")

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        snapshot = wire.Snapshot(**msgspec.structs.asdict(ref))
        request = wire.FinishSnapshotRequest(self.shard, snapshot)
        await self._link.ask("finishSnapshot", request, wire.Done, changes=True)

    async def prune(self, through: int, *, before_ms: int, limit: int) -> int:
        request = wire.PruneRequest(
            self.shard, min(through, limits.WIRE_NUMBER_MAX), before_ms, limit
        )
        answer = await self._link.ask("prune", request, wire.PruneResponse, changes=True)
        return answer.gone
